//! Who has been heard, and whether this node may speak: the quiet second, the silence of a leader
//! without a quorum, and the leave to campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoch_core::NodeId;
use epoch_machine::Leadership;

use super::memory::Memory;
use crate::clock;

/// For so long after its start a process neither grants, campaigns, votes nor acknowledges
/// appends. A node brought back on a rolled-back disk thereby lets every leadership that could
/// still count on its old acknowledgements fall silent first.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// A leader that no quorum has acknowledged for so long says nothing more in that leadership. Must
/// be well below [`QUIET`].
pub(crate) const SILENCE_AFTER: Duration = Duration::from_millis(600);
/// A follower that has accepted a leader's message this lately has a leader. Below the shortest
/// time in which the consensus library gives a leader up, so that failover does not wait for it.
const LEADER_LIVE: Duration = Duration::from_millis(300);
/// A leader from whom nothing has been accepted for so long is not named to anybody any more.
const LEADER_NAMED: Duration = Duration::from_secs(1);
/// A peer counts as heard for so long after its last answer to a ping.
const HEARD_FOR: Duration = Duration::from_millis(500);

/// Shared by transport, peer service, proposer and the leadership task.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    inner: Arc<Mutex<Inner>>,
    memory: Memory,
}

#[derive(Debug)]
struct Inner {
    me: NodeId,
    quiet_until: Duration,
    voters: BTreeSet<NodeId>,
    heard: BTreeMap<NodeId, Peer>,
    /// Those that have refused this node's pings, once reported.
    refusing: BTreeSet<NodeId>,
    leading: Option<Leading>,
    /// When a leader's message was last accepted.
    followed: Option<Duration>,
    /// Whether this node is writing a snapshot or checkpoint now.
    tending: bool,
    /// When each verified peer that does so has last said it.
    peers_tending: BTreeMap<NodeId, Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    at: Duration,
    initialized: bool,
    has_leader: bool,
    /// Whether its silence has been reported.
    lost: bool,
}

/// What a peer says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// Whether it has a log already.
    pub(crate) initialized: bool,
    /// Whether it leads with a quorum behind it, or has just heard from such a leader.
    pub(crate) has_leader: bool,
}

/// One leadership of this node.
#[derive(Debug)]
struct Leading {
    leadership: Leadership,
    begun: Duration,
    /// When the latest message that each voter has acknowledged was sent.
    acknowledged: BTreeMap<NodeId, Duration>,
    silent: bool,
}

impl Contact {
    /// The quiet second counts from when the process `begun`: reading the disk is a part of it.
    pub(crate) fn new(me: NodeId, memory: Memory, begun: Duration) -> Self {
        let inner = Inner {
            me,
            quiet_until: begun + QUIET,
            voters: BTreeSet::new(),
            heard: BTreeMap::new(),
            refusing: BTreeSet::new(),
            leading: None,
            followed: None,
            tending: false,
            peers_tending: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of the peers.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Why this node has no say any more, if its disk was wiped or rolled back.
    pub(crate) fn own_loss(&self) -> Option<String> {
        self.memory.own_loss()
    }

    /// The voters now.
    pub(crate) fn set_voters(&self, voters: BTreeSet<NodeId>) {
        self.lock().voters = voters;
    }

    /// The voters, as last set.
    pub(crate) fn voters(&self) -> BTreeSet<NodeId> {
        self.lock().voters.clone()
    }

    /// Whether this node is writing a snapshot or checkpoint: its peers then put theirs off.
    pub(crate) fn set_tending(&self, tending: bool) {
        self.lock().tending = tending;
    }

    /// As last set.
    pub(crate) fn is_tending(&self) -> bool {
        self.lock().tending
    }

    /// A peer has said whether it is writing a snapshot or checkpoint.
    pub(crate) fn heard_tending(&self, peer: NodeId, tending: bool) {
        let mut inner = self.lock();
        if tending {
            inner.peers_tending.insert(peer, clock::boot());
        } else {
            inner.peers_tending.remove(&peer);
        }
    }

    /// Whether a peer has lately said that it is writing a snapshot or checkpoint.
    pub(crate) fn a_peer_is_tending(&self) -> bool {
        let now = clock::boot();
        let inner = self.lock();
        let mut said = inner.peers_tending.values();
        said.any(|at| now.saturating_sub(*at) <= HEARD_FOR)
    }

    /// How much of the quiet second is left; `None` when it is over.
    pub(crate) fn quiet_left(&self) -> Option<Duration> {
        let left = self.lock().quiet_until.saturating_sub(clock::boot());
        (!left.is_zero()).then_some(left)
    }

    /// A peer has answered a ping.
    pub(crate) fn heard(&self, peer: NodeId, answer: Answer) {
        let answered = Peer {
            at: clock::boot(),
            initialized: answer.initialized,
            has_leader: answer.has_leader,
            lost: false,
        };
        let mut inner = self.lock();
        inner.refusing.remove(&peer);
        let before = inner.heard.insert(peer, answered);
        if before.is_none_or(|before| before.lost) {
            tracing::info!(node = inner.me, peer, "peer heard");
        }
    }

    /// A peer has refused a ping, or is refused: it is not of this cluster, or not who it should be.
    pub(crate) fn refused(&self, peer: NodeId, why: &str) {
        let mut inner = self.lock();
        if inner.refusing.insert(peer) {
            tracing::warn!(
                node = inner.me,
                peer,
                why,
                "this node and a peer do not accept each other: check the seeds and certificates of both"
            );
        }
    }

    /// Reports the peers that have not answered for a while, once each.
    pub(crate) fn report_lost(&self) {
        let now = clock::boot();
        let mut inner = self.lock();
        let me = inner.me;
        for (peer, known) in &mut inner.heard {
            if !known.lost && now.saturating_sub(known.at) > HEARD_FOR {
                known.lost = true;
                tracing::warn!(
                    node = me,
                    peer,
                    "peer lost: it has not answered for {HEARD_FOR:?}"
                );
            }
        }
    }

    /// A leader's message has been accepted.
    pub(crate) fn follows(&self) {
        self.lock().followed = Some(clock::boot());
    }

    /// Whether a leader's message has been accepted lately: the leader lives.
    pub(crate) fn has_leader(&self) -> bool {
        self.followed_within(LEADER_LIVE)
    }

    /// Whether callers may still be sent to the leader.
    pub(crate) fn may_name_leader(&self) -> bool {
        self.followed_within(LEADER_NAMED)
    }

    fn followed_within(&self, time: Duration) -> bool {
        let now = clock::boot();
        let followed = self.lock().followed;
        followed.is_some_and(|at| now.saturating_sub(at) <= time)
    }

    /// Whether this node may campaign: its quiet second is over, and a quorum of the voters, this
    /// node included, has been heard lately and has no leader. Any other campaign is lost, and its
    /// higher term would depose the leader as soon as the two can talk. Nodes that have lost what
    /// they had acknowledged neither campaign nor count.
    pub(crate) fn may_campaign(&self) -> bool {
        let now = clock::boot();
        let inner = self.lock();
        now >= inner.quiet_until
            && !self.memory.is_own_loss()
            && inner.is_quorum(|voter| {
                inner.heard.get(voter).is_some_and(|peer| {
                    !peer.has_leader && now.saturating_sub(peer.at) <= HEARD_FOR
                }) && !self.memory.is_lost(*voter)
            })
    }

    /// Whether it falls to this node to begin the cluster's log: no peer has one, and none with a
    /// lower id is there. Two that begin it at once are safe, but one election more.
    pub(crate) fn may_initialize(&self) -> bool {
        let now = clock::boot();
        let inner = self.lock();
        !inner.heard.iter().any(|(id, peer)| {
            peer.initialized || *id < inner.me && now.saturating_sub(peer.at) <= HEARD_FOR
        })
    }

    /// Whether this node may say anything under `leadership`, which is its own. The first call
    /// for a leadership begins it; once silent, a leadership stays silent.
    pub(crate) fn may_speak(&self, leadership: Leadership) -> bool {
        let now = clock::boot();
        let mut inner = self.lock();
        if now < inner.quiet_until || self.memory.is_own_loss() {
            return false;
        }
        match &inner.leading {
            Some(leading) if leading.leadership >= leadership => {
                if leading.leadership != leadership || leading.silent {
                    return false;
                }
            }
            Some(_) | None => {
                inner.leading = Some(Leading {
                    leadership,
                    begun: now,
                    acknowledged: BTreeMap::new(),
                    silent: false,
                });
            }
        }
        let lost = inner.leading.as_ref().is_some_and(|leading| {
            let since = now.saturating_sub(SILENCE_AFTER);
            leading.begun < since
                && !inner.is_quorum(|voter| {
                    leading
                        .acknowledged
                        .get(voter)
                        .is_some_and(|sent| *sent >= since)
                })
        });
        if let (true, Some(leading)) = (lost, &mut inner.leading) {
            leading.silent = true;
            tracing::warn!(
                term = leadership.term,
                "no quorum has acknowledged this leader for {SILENCE_AFTER:?}: falling silent"
            );
        }
        !lost
    }

    /// A voter has acknowledged what was sent to it under `leadership` at `sent`.
    pub(crate) fn acknowledged(&self, leadership: Leadership, voter: NodeId, sent: Duration) {
        if let Some(leading) = &mut self.lock().leading
            && leading.leadership == leadership
        {
            let latest = leading.acknowledged.entry(voter).or_insert(sent);
            *latest = (*latest).max(sent);
        }
    }
}

impl Inner {
    fn is_quorum(&self, counts: impl Fn(&NodeId) -> bool) -> bool {
        let count = self
            .voters
            .iter()
            .filter(|voter| **voter == self.me || counts(voter))
            .count();
        count > self.voters.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::types::Position;
    use super::*;

    fn begun() -> Contact {
        let nowhere = Path::new("/nonexistent");
        let process = crate::raft::types::ProcessId::draw();
        let memory = Memory::open(nowhere, 1, process, Position::default()).unwrap();
        Contact::new(1, memory, clock::boot())
    }

    fn speaking() -> Contact {
        let contact = begun();
        contact.set_voters([1, 2, 3].into());
        contact.lock().quiet_until = Duration::ZERO;
        contact
    }

    fn backdate(contact: &Contact, by: Duration) {
        if let Some(leading) = &mut contact.lock().leading {
            leading.begun = leading.begun.saturating_sub(by);
            for sent in leading.acknowledged.values_mut() {
                *sent = sent.saturating_sub(by);
            }
        }
    }

    const TERM_1: Leadership = Leadership { term: 1, node: 1 };
    const TERM_2: Leadership = Leadership { term: 2, node: 1 };

    #[test]
    fn nothing_is_said_in_the_quiet_second() {
        let contact = begun();
        contact.set_voters([1].into());
        assert!(!contact.may_speak(TERM_1));
    }

    #[test]
    fn a_leader_without_a_quorum_stays_silent_in_that_leadership_only() {
        let contact = speaking();
        assert!(contact.may_speak(TERM_1));
        backdate(&contact, SILENCE_AFTER * 2);
        assert!(!contact.may_speak(TERM_1));
        contact.acknowledged(TERM_1, 2, clock::boot());
        assert!(
            !contact.may_speak(TERM_1),
            "a late acknowledgement does not revive it"
        );
        assert!(contact.may_speak(TERM_2));
        assert!(!contact.may_speak(TERM_1), "an earlier leadership is over");
    }

    #[test]
    fn one_acknowledgement_of_three_voters_keeps_a_leader_speaking() {
        let contact = speaking();
        assert!(contact.may_speak(TERM_1));
        backdate(&contact, SILENCE_AFTER * 2);
        contact.acknowledged(TERM_1, 3, clock::boot());
        assert!(contact.may_speak(TERM_1));
    }

    #[test]
    fn a_single_voter_is_its_own_quorum() {
        let contact = speaking();
        contact.set_voters([1].into());
        assert!(contact.may_campaign());
        assert!(contact.may_speak(TERM_1));
        backdate(&contact, SILENCE_AFTER * 2);
        assert!(contact.may_speak(TERM_1));
    }

    #[test]
    fn a_node_that_has_lost_its_disk_neither_speaks_nor_campaigns() {
        let contact = speaking();
        contact.set_voters([1].into());
        assert!(contact.may_speak(TERM_1) && contact.may_campaign());
        contact.memory.found_lost(2, &Position::default());
        assert!(!contact.may_speak(TERM_1));
        assert!(!contact.may_campaign());
        assert!(contact.own_loss().is_some());
    }

    #[test]
    fn a_peer_tends_for_as_long_as_it_keeps_saying_so() {
        let contact = speaking();
        contact.set_tending(true);
        assert!(contact.is_tending());
        assert!(
            !contact.a_peer_is_tending(),
            "this node itself does not count"
        );
        contact.heard_tending(2, true);
        contact.heard_tending(3, false);
        assert!(contact.a_peer_is_tending());
        contact.heard_tending(2, false);
        assert!(!contact.a_peer_is_tending());
        contact.heard_tending(2, true);
        for at in contact.lock().peers_tending.values_mut() {
            *at = at.saturating_sub(HEARD_FOR * 2);
        }
        assert!(!contact.a_peer_is_tending(), "it may have ended");
    }

    #[test]
    fn who_hears_nobody_without_a_leader_does_not_campaign() {
        let contact = speaking();
        let answer = |has_leader| Answer {
            initialized: true,
            has_leader,
        };
        assert!(!contact.may_campaign());
        contact.heard(2, answer(true));
        assert!(
            !contact.may_campaign(),
            "the leader serves: the campaign would be lost"
        );
        contact.heard(2, answer(false));
        assert!(contact.may_campaign());
        contact.lock().quiet_until = clock::boot() + QUIET;
        assert!(!contact.may_campaign());
    }
}
