//! Whether the nodes' states are the same: each hashes its own at the same indexes, and they tell
//! each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoch_core::NodeId;
use epoch_machine::StateHash;

/// The state is hashed at every index that this divides: often enough to find a divergence within
/// seconds under load, seldom enough to cost nothing.
const INTERVAL: u64 = 1_024;
/// Hashes kept, of this node and of each other: one that lags this many of them behind is not
/// compared until it has caught up.
const KEPT: usize = 64;
/// Hashes told at once: more than the busiest cluster comes by between two pings.
pub(crate) const TOLD: usize = 8;

/// This node's state is not the one that most voters have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state of node {me} has diverged: its hash at index {index} is {own}, that of nodes \
     {holders:?}, a majority of the voters, is {theirs}. Keep the data folder for analysis, and \
     replace the node under a new node id"
)]
pub(crate) struct Divergence {
    me: NodeId,
    index: u64,
    own: StateHash,
    theirs: StateHash,
    holders: Vec<NodeId>,
}

/// Written by the apply loop; read and compared with every ping.
#[derive(Debug, Clone)]
pub(crate) struct Hashes(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    me: NodeId,
    own: BTreeMap<u64, StateHash>,
    told: BTreeMap<NodeId, BTreeMap<u64, StateHash>>,
    /// Peers found to differ, once reported.
    differing: BTreeSet<NodeId>,
    /// Whether it has been reported that no majority says who is wrong.
    undecided: bool,
}

impl Hashes {
    pub(crate) fn new(me: NodeId) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            me,
            own: BTreeMap::new(),
            told: BTreeMap::new(),
            differing: BTreeSet::new(),
            undecided: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry at `index` has just been applied.
    pub(crate) fn applied(&self, index: u64, hash: impl FnOnce() -> StateHash) {
        if index.is_multiple_of(INTERVAL) {
            keep(&mut self.lock().own, index, hash());
        }
    }

    /// The state has been replaced by a snapshot's: what was found of the one before is void.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        inner.own.clear();
        inner.differing.clear();
        inner.undecided = false;
    }

    /// The latest of this node's own, to be told.
    pub(crate) fn latest(&self) -> Vec<(u64, StateHash)> {
        let inner = self.lock();
        let latest = inner.own.iter().rev().take(TOLD);
        latest.map(|(index, hash)| (*index, *hash)).collect()
    }

    /// `peer` has told hashes of its own. The divergence, if `voters` now outvote this node.
    pub(crate) fn heard(
        &self,
        peer: NodeId,
        told: &[(u64, StateHash)],
        voters: &BTreeSet<NodeId>,
    ) -> Option<Divergence> {
        let mut inner = self.lock();
        let known = inner.told.entry(peer).or_default();
        for (index, hash) in told.iter().take(TOLD) {
            keep(known, *index, *hash);
        }
        inner.compare(peer, voters)
    }
}

fn keep(hashes: &mut BTreeMap<u64, StateHash>, index: u64, hash: StateHash) {
    hashes.insert(index, hash);
    if hashes.len() > KEPT {
        hashes.pop_first();
    }
}

impl Inner {
    fn compare(&mut self, peer: NodeId, voters: &BTreeSet<NodeId>) -> Option<Divergence> {
        let me = self.me;
        let told = self.told.get(&peer)?;
        for (index, theirs) in told {
            let Some(own) = self.own.get(index).copied() else {
                continue;
            };
            if own == *theirs {
                continue;
            }
            if self.differing.insert(peer) {
                tracing::error!(
                    node = me,
                    peer,
                    index,
                    %own,
                    %theirs,
                    "the states of two nodes differ"
                );
            }
            let holders = self.holders(*index, *theirs, voters);
            if is_majority(&holders, voters) {
                return Some(Divergence {
                    me,
                    index: *index,
                    own,
                    theirs: *theirs,
                    holders,
                });
            }
            let own_holders = self.holders(*index, own, voters);
            if !self.undecided && !is_majority(&own_holders, voters) {
                self.undecided = true;
                tracing::warn!(
                    node = me,
                    index,
                    "no majority of the voters says yet whose state is wrong: going on"
                );
            }
        }
        None
    }

    /// The voters known to have this hash at this index.
    fn holders(&self, index: u64, hash: StateHash, voters: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let hash_of = |voter: &NodeId| {
            let hashes = if *voter == self.me {
                Some(&self.own)
            } else {
                self.told.get(voter)
            };
            hashes.and_then(|hashes| hashes.get(&index))
        };
        let holders = voters.iter().filter(|voter| hash_of(voter) == Some(&hash));
        holders.copied().collect()
    }
}

fn is_majority(holders: &[NodeId], voters: &BTreeSet<NodeId>) -> bool {
    holders.len() > voters.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(byte: u8) -> StateHash {
        StateHash::from_bytes([byte; 16])
    }

    fn at(index: u64, byte: u8) -> Hashes {
        let hashes = Hashes::new(1);
        hashes.applied(index, || hash(byte));
        hashes
    }

    fn voters(last: NodeId) -> BTreeSet<NodeId> {
        (1..=last).collect()
    }

    #[test]
    fn the_state_is_hashed_at_every_1024th_index_and_the_latest_are_kept() {
        let hashes = Hashes::new(1);
        for index in 0..=100 * INTERVAL {
            hashes.applied(index, || hash(u8::try_from(index / INTERVAL).unwrap()));
        }
        assert_eq!(hashes.lock().own.len(), KEPT);
        let latest = hashes.latest();
        assert_eq!(latest.len(), TOLD);
        assert_eq!(latest[0], (100 * INTERVAL, hash(100)));
        assert_eq!(latest[7], (93 * INTERVAL, hash(93)));
    }

    #[test]
    fn equal_states_pass() {
        let hashes = at(1_024, 5);
        let told = [(1_024, hash(5)), (2_048, hash(6))];
        assert_eq!(hashes.heard(2, &told, &voters(3)), None);
        assert!(hashes.lock().differing.is_empty());
    }

    #[test]
    fn the_odd_one_of_three_is_told_the_index_both_hashes_and_what_to_do() {
        let odd = at(1_024, 5);
        assert_eq!(odd.heard(2, &[(1_024, hash(6))], &voters(3)), None);
        assert!(odd.lock().undecided, "one against one: nobody knows who");
        let found = odd.heard(3, &[(1_024, hash(6))], &voters(3)).unwrap();
        assert_eq!(
            (found.index, found.holders.as_slice()),
            (1_024, &[2, 3][..])
        );
        let text = found.to_string();
        for part in ["1024", &"05".repeat(16), &"06".repeat(16), "data folder"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_majority_goes_on_beside_the_odd_one() {
        let hashes = at(1_024, 5);
        assert_eq!(hashes.heard(2, &[(1_024, hash(5))], &voters(3)), None);
        assert_eq!(hashes.heard(3, &[(1_024, hash(6))], &voters(3)), None);
        let inner = hashes.lock();
        assert_eq!(inner.differing, [3].into());
        assert!(!inner.undecided);
    }

    #[test]
    fn three_of_five_outvote_and_two_do_not() {
        let odd = at(1_024, 5);
        for peer in [2, 3] {
            assert_eq!(odd.heard(peer, &[(1_024, hash(6))], &voters(5)), None);
        }
        assert!(odd.heard(4, &[(1_024, hash(6))], &voters(5)).is_some());
        let scattered = at(1_024, 5);
        for peer in [2, 3, 4, 5] {
            let theirs = hash(u8::try_from(peer).unwrap() / 2 + 10);
            assert_eq!(scattered.heard(peer, &[(1_024, theirs)], &voters(5)), None);
        }
    }

    #[test]
    fn learners_do_not_count_but_a_learner_is_outvoted_too() {
        let voter = at(1_024, 5);
        for learner in [4, 5, 6] {
            assert_eq!(voter.heard(learner, &[(1_024, hash(6))], &voters(3)), None);
        }
        let learner = at(1_024, 5);
        let others = BTreeSet::from([2, 3, 4]);
        assert_eq!(learner.heard(2, &[(1_024, hash(6))], &others), None);
        assert!(learner.heard(3, &[(1_024, hash(6))], &others).is_some());
    }

    #[test]
    fn a_node_that_comes_later_to_an_index_is_compared_then() {
        let late = Hashes::new(1);
        for peer in [2, 3] {
            assert_eq!(late.heard(peer, &[(1_024, hash(6))], &voters(3)), None);
        }
        late.applied(1_024, || hash(5));
        assert!(late.heard(2, &[], &voters(3)).is_some());
    }

    #[test]
    fn a_snapshot_voids_what_was_found_before() {
        let hashes = at(1_024, 5);
        assert_eq!(hashes.heard(2, &[(1_024, hash(6))], &voters(3)), None);
        hashes.clear();
        assert_eq!(hashes.latest(), []);
        assert_eq!(hashes.heard(3, &[(1_024, hash(6))], &voters(3)), None);
        assert!(hashes.lock().differing.is_empty());
    }
}
