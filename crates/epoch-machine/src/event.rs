//! What applying an entry brought about, beside the outcomes: for leases and timers of the leader,
//! for watches, and for metrics.

use std::sync::Arc;

use epoch_core::{Cursor, Epoch, Holder, RequestId, SessionId};

use crate::command::{SessionKey, Ttl};
use crate::terms::{LockDelay, Wait};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session was opened, or a live one was opened again by a client that missed the answer: it
    /// counts its TTL from this Open.
    SessionOpened {
        /// Which.
        session: SessionKey,
        /// Its time to live.
        ttl: Ttl,
        /// False when it was there already.
        new: bool,
    },
    /// A session has ended.
    SessionEnded {
        /// Which.
        session: SessionKey,
        /// By expiry, not by its own Close.
        expired: bool,
    },
    /// A grant began or ended.
    Grant(GrantEvent),
    /// An acquire waits in its scope's queue.
    WaitBegun {
        /// For what.
        scope: Arc<str>,
        /// Whose.
        session: SessionKey,
        /// Under which request id.
        request_id: RequestId,
        /// For how long at most.
        wait: Wait,
    },
    /// An acquire waits no longer.
    WaitEnded {
        /// For what.
        scope: Arc<str>,
        /// Whose.
        session: SessionKey,
        /// Under which request id.
        request_id: RequestId,
        /// Why.
        end: WaitEnd,
    },
    /// A scope lost by expiry is kept from all.
    DelayBegun {
        /// Which.
        scope: Arc<str>,
        /// The epoch that was lost.
        epoch: Epoch,
        /// For how long.
        delay: LockDelay,
    },
    /// It is not any more.
    DelayEnded {
        /// Which.
        scope: Arc<str>,
    },
}

/// Why a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// The scope was granted.
    Granted,
    /// Its time ran out, or its caller went away.
    Expired,
    /// The session cancelled it.
    Cancelled,
    /// Its session has ended.
    SessionEnded,
}

/// A grant began or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantEvent {
    /// Where it stands in the log.
    pub cursor: Cursor,
    /// Replicated time, in milliseconds since 1970.
    pub time_ms: u64,
    /// What happened.
    pub kind: GrantEventKind,
    /// In which scope.
    pub scope: Arc<str>,
    /// The scope's epoch from then on; when the grant has just ended, the one that ended.
    pub epoch: Epoch,
    /// The epoch that ended by it.
    pub ended: Option<Epoch>,
    /// The request id that a new grant answers.
    pub request_id: Option<RequestId>,
    /// The new holder, or the one that lost it.
    pub who: Option<(Holder, SessionId)>,
}

/// What happened to a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantEventKind {
    /// A session was granted the scope.
    Granted,
    /// It was given back, or its session was closed.
    Released,
    /// Its session expired.
    Expired,
    /// An operator ended it, or burnt an epoch of a free scope.
    Revoked,
    /// Its session gave it to another.
    Transferred,
}

impl GrantEventKind {
    /// Its public name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Transferred => "transferred",
        }
    }
}
