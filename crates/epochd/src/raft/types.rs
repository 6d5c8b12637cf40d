//! The types openraft is instantiated with.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use epoch_core::NodeId;
use epoch_machine::{ForeignLeadership, Leadership, Outcome};
use serde::{Deserialize, Serialize};

use super::snapshots::StoredSnapshot;
use crate::seed::Addresses;

openraft::declare_raft_types!(
    /// One Raft group.
    pub(crate) TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = NodeId,
        Node = Addresses,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = StoredSnapshot,
);

pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type Vote = openraft::Vote<NodeId>;
pub(crate) type LeaderId = openraft::LeaderId<NodeId>;
pub(crate) type LogId = openraft::LogId<NodeId>;
pub(crate) type StorageError = openraft::StorageError<NodeId>;
pub(crate) type StoredMembership = openraft::StoredMembership<NodeId, Addresses>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<NodeId, Addresses>;
pub(crate) type Metrics = openraft::RaftMetrics<NodeId, Addresses>;

/// An encoded batch: encoded once by the leader, stored and sent as it is, decoded to be applied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Proposal(pub(crate) Bytes);

/// What applying an entry gave; nothing for entries of openraft's own.
///
/// Never sent nor stored: openraft only asks that the type could be.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Applied {
    #[serde(skip)]
    pub(crate) outcomes: Option<Result<Vec<Outcome>, ForeignLeadership>>,
}

/// What of openraft's own state goes into a snapshot's head.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AppliedMeta {
    pub(crate) last_log_id: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

/// One process of a node, told apart by a number drawn when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId(pub(crate) u64);

impl ProcessId {
    pub(crate) fn draw() -> Self {
        Self(rand::random())
    }
}

/// How far a node's vote and log have come. Under one vote a log only grows, as far as its node
/// has acknowledged it under that vote; a higher vote may cut it short. The order is by vote
/// first, then by log id, so an honest node never falls behind what it has acknowledged.
///
/// Whether the vote is committed does not count: a leader that restarts finds its own uncommitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    pub(crate) vote: Option<LeaderId>,
    pub(crate) last: Option<LogId>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.vote {
            Some(vote) => write!(f, "vote {vote}")?,
            None => f.write_str("no vote")?,
        }
        match &self.last {
            Some(last) => write!(f, ", log up to {last}"),
            None => f.write_str(", no log"),
        }
    }
}

/// The leadership that a vote or log id names.
pub(crate) fn leadership(id: &openraft::LeaderId<NodeId>) -> Leadership {
    Leadership {
        term: id.term,
        node: id.node_id,
    }
}

/// The members with their addresses.
pub(crate) fn members(membership: &StoredMembership) -> BTreeMap<NodeId, Addresses> {
    membership
        .nodes()
        .map(|(id, node)| (*id, node.clone()))
        .collect()
}

/// Takes `committed` off a vote that names the node which receives it.
///
/// A node that hears its own old leadership from others must not take it up again: it leads only
/// by winning an election in this process. On a rolled-back disk, a leadership taken up again
/// writes a second entry under a log id that has one already.
pub(crate) fn without_own_leadership(vote: Vote, me: NodeId) -> Vote {
    let id = vote.leader_id();
    if vote.is_committed() && id.node_id == me {
        Vote::new(id.term, id.node_id)
    } else {
        vote
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_that_names_its_receiver_loses_its_leadership() {
        let mine = Vote::new_committed(7, 1);
        assert!(!without_own_leadership(mine, 1).is_committed());
        assert_eq!(
            without_own_leadership(mine, 1).leader_id(),
            mine.leader_id()
        );
        assert_eq!(without_own_leadership(mine, 2), mine);
    }
}
