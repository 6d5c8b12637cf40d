//! Who has been heard, and whether this node may speak: the quiet second, the silence of a leader
//! without a quorum, and the leave to campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoch_core::NodeId;
use epoch_machine::{Leadership, PublicKey};

use crate::clock;

/// For so long after its start a process neither grants, campaigns, votes nor acknowledges
/// appends. A node brought back on a rolled-back disk thereby lets every leadership that could
/// still count on its old acknowledgements fall silent first.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// A leader that no quorum has acknowledged for so long says nothing more in that leadership. Must
/// be well below [`QUIET`].
pub(crate) const SILENCE_AFTER: Duration = Duration::from_millis(600);
/// A peer counts as heard for so long after its last answer to a ping.
const HEARD_FOR: Duration = Duration::from_millis(500);

/// Shared by transport, peer service, proposer and the leadership task.
#[derive(Debug, Clone)]
pub(crate) struct Contact(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    me: NodeId,
    quiet_until: Duration,
    voters: BTreeSet<NodeId>,
    heard: BTreeMap<NodeId, Peer>,
    leading: Option<Leading>,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    at: Duration,
    public_key: PublicKey,
    initialized: bool,
    /// Whether its silence has been reported.
    lost: bool,
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
    /// Begins the quiet second.
    pub(crate) fn new(me: NodeId) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            me,
            quiet_until: clock::boot() + QUIET,
            voters: BTreeSet::new(),
            heard: BTreeMap::new(),
            leading: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The voters now.
    pub(crate) fn set_voters(&self, voters: BTreeSet<NodeId>) {
        self.lock().voters = voters;
    }

    /// How much of the quiet second is left; `None` when it is over.
    pub(crate) fn quiet_left(&self) -> Option<Duration> {
        let left = self.lock().quiet_until.saturating_sub(clock::boot());
        (!left.is_zero()).then_some(left)
    }

    /// A peer has answered a ping.
    pub(crate) fn heard(&self, peer: NodeId, public_key: PublicKey, initialized: bool) {
        let at = clock::boot();
        let answered = Peer {
            at,
            public_key,
            initialized,
            lost: false,
        };
        let before = self.lock().heard.insert(peer, answered);
        if before.is_none_or(|before| before.lost) {
            tracing::info!(peer, "peer heard");
        }
    }

    /// Reports the peers that have not answered for a while, once each.
    pub(crate) fn report_lost(&self) {
        let now = clock::boot();
        for (peer, known) in &mut self.lock().heard {
            if !known.lost && now.saturating_sub(known.at) > HEARD_FOR {
                known.lost = true;
                tracing::warn!(peer, "peer lost: it has not answered for {HEARD_FOR:?}");
            }
        }
    }

    /// Whether a quorum of the voters, this node included, has been heard lately. Who hears none
    /// must not campaign: once healed, it would depose a leader that serves.
    pub(crate) fn hears_quorum(&self) -> bool {
        let now = clock::boot();
        let inner = self.lock();
        inner.is_quorum(|voter| {
            inner
                .heard
                .get(voter)
                .is_some_and(|peer| now.saturating_sub(peer.at) <= HEARD_FOR)
        })
    }

    /// Whether some peer that has been heard has a log already.
    pub(crate) fn hears_initialized(&self) -> bool {
        self.lock().heard.values().any(|peer| peer.initialized)
    }

    /// The public keys that peers have told.
    pub(crate) fn public_keys(&self) -> Vec<(NodeId, PublicKey)> {
        self.lock()
            .heard
            .iter()
            .map(|(node, peer)| (*node, peer.public_key))
            .collect()
    }

    /// Whether this node may say anything under `leadership`, which is its own. The first call
    /// for a leadership begins it; once silent, a leadership stays silent.
    pub(crate) fn may_speak(&self, leadership: Leadership) -> bool {
        let now = clock::boot();
        let mut inner = self.lock();
        if now < inner.quiet_until {
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
    use super::*;

    fn speaking() -> Contact {
        let contact = Contact::new(1);
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
        let contact = Contact::new(1);
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
        assert!(contact.hears_quorum());
        assert!(contact.may_speak(TERM_1));
        backdate(&contact, SILENCE_AFTER * 2);
        assert!(contact.may_speak(TERM_1));
    }

    #[test]
    fn who_hears_nobody_hears_no_quorum() {
        let contact = speaking();
        assert!(!contact.hears_quorum());
        contact.heard(2, [0; 32], true);
        assert!(contact.hears_quorum());
    }
}
