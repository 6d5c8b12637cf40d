//! What comes out of the log: one outcome for each command.

use epoch_core::{Epoch, Holder, NodeId, Position, Reason, RequestId, Scope, SessionId};

use crate::command::Ttl;

/// A current grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What is held.
    pub scope: Scope,
    /// The fencing token.
    pub epoch: Epoch,
    /// For whom.
    pub holder: Holder,
    /// By which session.
    pub session: SessionId,
    /// Under which request id.
    pub request_id: RequestId,
    /// Where in the log.
    pub position: Position,
}

/// The outcome of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The session, new or found by its open id.
    Opened {
        /// Its id.
        session: SessionId,
        /// Its time to live.
        ttl: Ttl,
        /// Whom it acts for.
        holder: Holder,
        /// False when the open id's session was there already.
        new: bool,
    },
    /// A Close took effect, or found nothing to do.
    Closed {
        /// False when there was no such session.
        closed: bool,
        /// Grants that ended with it.
        ended: usize,
    },
    /// An Expire took effect, or found nothing to do.
    Expired {
        /// False when there was no such session.
        expired: bool,
        /// Grants that ended with it.
        ended: usize,
    },
    /// The scope is the session's.
    Granted {
        /// The grant.
        grant: Grant,
        /// False when this request id had it already.
        new: bool,
    },
    /// A Release took effect, or found it done.
    Released {
        /// False when it had been released before.
        released: bool,
    },
    /// An epoch that nobody holds.
    Revoked {
        /// Of which scope.
        scope: Scope,
        /// The epoch burnt.
        epoch: Epoch,
        /// Where in the log.
        position: Position,
        /// True when a grant ended by it.
        ended: bool,
    },
    /// The key is known.
    KeyRegistered {
        /// Whose.
        node: NodeId,
    },
    /// The command changed nothing.
    Refused(Refusal),
}

/// The batch was made under another leadership than the one that wrote it to the log. It changed
/// nothing; its callers propose again, except what only that leadership could know (an expiry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch was made under another leadership; nothing changed")]
pub struct ForeignLeadership;

/// Why a command changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such session.
    #[error("the session has expired or was closed")]
    SessionExpired,
    /// Another session holds the scope.
    #[error("the scope is held by another session, at epoch {epoch}")]
    ScopeHeld {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The same session holds the scope under another request id.
    #[error("this session holds the scope already, at epoch {epoch}, under another request id")]
    AlreadyHeld {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The grant has ended.
    #[error("the grant has ended")]
    Superseded {
        /// The scope's last epoch, where it is known and higher.
        epoch: Option<Epoch>,
    },
    /// The grant named is another session's.
    #[error("epoch {epoch} is another session's grant")]
    NotTheHolder {
        /// The epoch named.
        epoch: Epoch,
    },
    /// The request id named another scope before.
    #[error("the request id was used before, for another scope")]
    RequestIdReused,
    /// The open id is of a live session with another holder or TTL.
    #[error("the open_id is of a live session with another holder or ttl")]
    OpenIdReused,
    /// The request id is at or below the highest one forgotten.
    #[error("the request id is too old: ids up to {forgotten} are forgotten")]
    RequestIdTooOld {
        /// The highest id forgotten.
        forgotten: u64,
    },
    /// No such epoch was granted.
    #[error("epoch {epoch} was never granted in this scope")]
    EpochUnknown {
        /// The epoch named.
        epoch: Epoch,
    },
    /// The scope has no epochs left.
    #[error("the scope has no epochs left below 2^53")]
    EpochExhausted,
    /// Too many sessions.
    #[error("the cluster keeps no more sessions")]
    SessionLimit,
    /// Too many grants.
    #[error("the cluster keeps no more grants")]
    GrantLimit,
    /// Too many keys.
    #[error("the cluster keeps no more signing keys")]
    KeyLimit,
}

impl Refusal {
    /// The public reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::SessionExpired => Reason::SessionExpired,
            Self::ScopeHeld { .. } => Reason::ScopeHeld,
            Self::AlreadyHeld { .. } => Reason::AlreadyHeld,
            Self::Superseded { .. } => Reason::EpochSuperseded,
            Self::NotTheHolder { .. } => Reason::PermissionDenied,
            Self::RequestIdReused | Self::OpenIdReused => Reason::RequestIdReused,
            Self::RequestIdTooOld { .. } => Reason::RequestIdTooOld,
            Self::EpochUnknown { .. } => Reason::InvalidArgument,
            Self::EpochExhausted => Reason::EpochExhausted,
            Self::SessionLimit => Reason::SessionLimit,
            Self::GrantLimit => Reason::GrantLimit,
            Self::KeyLimit => Reason::Internal,
        }
    }

    /// The scope's last epoch, where the refusal names one.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::ScopeHeld { epoch } | Self::AlreadyHeld { epoch } => Some(*epoch),
            Self::Superseded { epoch } => *epoch,
            Self::SessionExpired
            | Self::NotTheHolder { .. }
            | Self::RequestIdReused
            | Self::OpenIdReused
            | Self::RequestIdTooOld { .. }
            | Self::EpochUnknown { .. }
            | Self::EpochExhausted
            | Self::SessionLimit
            | Self::GrantLimit
            | Self::KeyLimit => None,
        }
    }
}
