//! What a broken promise looks like.

use epoch_core::{RequestId, SessionId};

use super::record::{Acquired, Admission, Committed};
use crate::command::SessionKey;

/// A broken promise, with the records that show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// P1: two grants of one scope share an epoch.
    #[error("P1 unique: two grants share an epoch: {first:?} and {second:?}")]
    Twice {
        /// One.
        first: Box<Acquired>,
        /// The other.
        second: Box<Acquired>,
    },
    /// P1: a grant that was asked for later has a lower epoch.
    #[error("P1 rising: {earlier:?} returned before {later:?} was sent")]
    NotRising {
        /// Returned first, with the higher epoch.
        earlier: Box<Acquired>,
        /// Sent after that.
        later: Box<Acquired>,
    },
    /// The history is none: a record returned before it was sent.
    #[error("not a history: {record:?} returned before it was sent")]
    Backwards {
        /// The record.
        record: Box<Acquired>,
    },
    /// P2: a grant that is not in the log was answered.
    #[error("P2 committed before seen: no entry has {answered:?}")]
    NotCommitted {
        /// The answer.
        answered: Box<Acquired>,
    },
    /// P3: one request id has several epochs.
    #[error("P3 exactly one: one request id yielded {first:?} and {second:?}")]
    MoreThanOne {
        /// One.
        first: Box<Acquired>,
        /// The other.
        second: Box<Acquired>,
    },
    /// P4: a grant names an entry that did not make it.
    #[error("P4 provenance: no entry stands where {grant:?} says")]
    NoSuchPosition {
        /// The grant.
        grant: Box<Committed>,
    },
    /// P4: two grants name one place.
    #[error("P4 provenance: {first:?} and {second:?} stand at one place")]
    SharedPosition {
        /// One.
        first: Box<Committed>,
        /// The other.
        second: Box<Committed>,
    },
    /// P5: a resource let something through that is below what it had let through before.
    #[error("P5 no late write: {late:?} was let through after {before:?}")]
    LateWrite {
        /// The higher one.
        before: Box<Admission>,
        /// The one after it.
        late: Box<Admission>,
    },
    /// P6: a session was gone before its time.
    #[error(
        "P6 no early loss: session {session:?} was gone at {seen_ms} ms, \
         and acknowledged until {until_ms} ms"
    )]
    EarlyLoss {
        /// Which.
        session: SessionId,
        /// When it was seen to be gone.
        seen_ms: u64,
        /// Until when its last acknowledged keepalive lasts.
        until_ms: u64,
    },
    /// A wait was granted before one of the same scope that had begun earlier.
    #[error("first come, first served: {granted:?} got {scope:?} before {first:?}")]
    OutOfTurn {
        /// The scope.
        scope: String,
        /// The wait that was granted.
        granted: (SessionKey, RequestId),
        /// The one whose turn it was.
        first: Option<(SessionKey, RequestId)>,
    },
    /// Parts of a state do not agree.
    #[error("the state is inconsistent: {0}")]
    Inconsistent(String),
}
