//! What every peer message says of its sender.

use bytes::Bytes;
use epoch_core::{ClusterId, Incarnation, NodeId};
use epoch_proto::raft::Envelope;
use tonic::Status;

use super::types::ProcessId;
use crate::tls::PeerName;

/// What every peer message says of its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) cluster_id: ClusterId,
    pub(crate) incarnation: Incarnation,
    pub(crate) group: u32,
    pub(crate) me: NodeId,
    pub(crate) process: ProcessId,
}

impl Identity {
    pub(crate) fn envelope(&self, to: NodeId, body: Bytes) -> Envelope {
        Envelope {
            cluster_id: Bytes::copy_from_slice(self.cluster_id.0.as_bytes()),
            incarnation: Bytes::copy_from_slice(self.incarnation.0.as_bytes()),
            group: self.group,
            from: self.me,
            to,
            body,
            process: self.process.0,
        }
    }

    /// Whether an envelope is for this node, and from the one whose certificate `sender` is.
    pub(crate) fn check_from(
        &self,
        sender: Option<&PeerName>,
        envelope: &Envelope,
    ) -> Result<(), Status> {
        self.check(envelope)?;
        if sender.is_some_and(|sender| sender.node == envelope.from) {
            Ok(())
        } else {
            Err(Status::permission_denied(
                "the certificate is not of the node that the message says it is from",
            ))
        }
    }

    /// Whether an envelope is for this node, and from another one of its cluster.
    pub(crate) fn check(&self, envelope: &Envelope) -> Result<(), Status> {
        let refused = |what: &str| {
            Err(Status::permission_denied(format!(
                "this node is of another {what}"
            )))
        };
        if *envelope.cluster_id != *self.cluster_id.0.as_bytes() {
            return refused("cluster");
        }
        if *envelope.incarnation != *self.incarnation.0.as_bytes() {
            return refused("incarnation");
        }
        if envelope.group != self.group {
            return refused("group");
        }
        if envelope.to != self.me {
            return refused("node id");
        }
        if envelope.from == self.me {
            return Err(Status::permission_denied(
                "another process runs under this node's id",
            ));
        }
        Ok(())
    }
}
