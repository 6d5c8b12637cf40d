//! What a history consists of.

use epoch_core::{Epoch, Incarnation, Position, RequestId, Scope, SessionId};

use crate::command::Entry;
use crate::outcome::Grant;

/// One answered acquire, as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// What was granted.
    pub scope: Scope,
    /// In which life of the cluster's state.
    pub incarnation: Incarnation,
    /// The epoch.
    pub epoch: Epoch,
    /// To which session.
    pub session: SessionId,
    /// Under which request id; `None` for a grant that was transferred.
    pub request_id: Option<RequestId>,
    /// When the call was sent, on any clock that all records of the history share and that never
    /// steps back: nanoseconds, or a counter.
    pub sent: u64,
    /// When its answer was there, on the same clock.
    pub returned: u64,
}

/// One grant as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// What was granted.
    pub scope: Scope,
    /// In which life of the cluster's state.
    pub incarnation: Incarnation,
    /// The epoch.
    pub epoch: Epoch,
    /// To which session.
    pub session: SessionId,
    /// Under which request id; `None` for a grant that was transferred.
    pub request_id: Option<RequestId>,
    /// Where it says it was granted.
    pub position: Position,
}

impl Acquired {
    /// The record of a call that was answered with `grant`.
    #[must_use]
    pub fn new(grant: &Grant, incarnation: Incarnation, sent: u64, returned: u64) -> Self {
        Self {
            scope: grant.scope.clone(),
            incarnation,
            epoch: grant.epoch,
            session: grant.session,
            request_id: grant.request_id,
            sent,
            returned,
        }
    }
}

impl Committed {
    /// The record of a grant that was applied.
    #[must_use]
    pub fn new(grant: &Grant, incarnation: Incarnation) -> Self {
        Self {
            scope: grant.scope.clone(),
            incarnation,
            epoch: grant.epoch,
            session: grant.session,
            request_id: grant.request_id,
            position: grant.position,
        }
    }
}

/// One entry that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedEntry {
    /// Its place in the log.
    pub entry: Entry,
    /// How many commands its batch has.
    pub commands: u32,
}

/// What raised a resource's fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionKind {
    /// A write that took effect.
    Write,
    /// A barrier.
    Barrier,
}

/// One write or barrier that a resource let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The scope that the resource checks.
    pub scope: Scope,
    /// The certificate's incarnation.
    pub incarnation: Incarnation,
    /// The certificate's epoch.
    pub epoch: Epoch,
    /// Which of the two.
    pub kind: AdmissionKind,
}

/// A keepalive that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptAlive {
    /// Of which session.
    pub session: SessionId,
    /// When it was sent, in milliseconds of any clock that all records share: clients count from
    /// then.
    pub sent_ms: u64,
    /// The TTL it was acknowledged with.
    pub ttl_ms: u64,
}

/// A session that was seen to have expired: its calls were refused, or another got its scope. Not
/// one that was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Which.
    pub session: SessionId,
    /// When it was seen, on the keepalives' clock: it expired then or before.
    pub seen_ms: u64,
}
