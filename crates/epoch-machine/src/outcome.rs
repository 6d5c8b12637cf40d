//! What comes out of the log: one outcome for each command.

use epoch_core::{Epoch, Holder, NodeId, Position, Reason, RequestId, Scope, SessionId};

use crate::command::Ttl;
use crate::event::Event;
use crate::state::QUEUE_MAX;
use crate::terms::Terms;

/// What came of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// One outcome for each command, in order.
    pub outcomes: Vec<Outcome>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

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
    /// Under which request id; `None` when it was transferred.
    pub request_id: Option<RequestId>,
    /// Where in the log.
    pub position: Position,
    /// What else was asked for.
    pub terms: Terms,
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
        /// How long keepalives renew it without progress.
        stall_limit: Option<Ttl>,
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
    /// The scope is not, and the acquire waits in its queue.
    Waiting,
    /// All the scopes are the session's.
    GrantedMany {
        /// The grants, in the caller's order.
        grants: Vec<Grant>,
        /// False when these request ids had them already.
        new: bool,
    },
    /// One of the scopes cannot be taken: none is.
    RefusedMany {
        /// Which.
        scope: Scope,
        /// Why.
        refusal: Refusal,
    },
    /// A CancelWait took effect, or found nothing to do.
    WaitCancelled {
        /// Whether a wait ended by it.
        cancelled: bool,
        /// The epoch, when the wait is a current grant by now.
        granted: Option<Epoch>,
    },
    /// An EndWait took effect, or found nothing to do.
    WaitEnded {
        /// Whether a wait ended by it.
        ended: bool,
    },
    /// An EndDelay took effect, or found nothing to do.
    DelayEnded {
        /// Whether a delay ended by it.
        ended: bool,
    },
    /// The scope is the other session's.
    Transferred {
        /// Its epoch.
        epoch: Epoch,
        /// False when it had been transferred before.
        new: bool,
    },
    /// The record is as asked for.
    RecordWritten {
        /// The revision that came of it.
        revision: u64,
        /// Whether there was a value to remove; true for a write.
        had_effect: bool,
        /// True when the intent had taken effect before.
        replayed: bool,
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
    /// The permission is given.
    PermissionGranted,
    /// A RevokePermission took effect, or found nothing to do.
    PermissionRevoked {
        /// False when there was no such permission.
        revoked: bool,
    },
    /// The token is known.
    TokenAdded {
        /// False when it was known before.
        new: bool,
    },
    /// A RemoveToken took effect, or found nothing to do.
    TokenRemoved {
        /// False when there was no such token.
        removed: bool,
    },
    /// The limits are as asked for.
    LimitsSet,
    /// The bundle is the newest, or was it before.
    BundlePut,
    /// The key is offered, or in the bundle already.
    KeyOffered,
    /// These nodes are asked for new keys.
    RotationWanted {
        /// Which.
        nodes: Vec<NodeId>,
    },
    /// A RetireKey took effect, or found it done.
    KeyRetired {
        /// False when it was retired before.
        retired: bool,
    },
    /// The statement is kept.
    StatementPut,
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
    /// The same session waits for the scope under another request id.
    #[error("this session waits for the scope already, under another request id")]
    AlreadyWaiting,
    /// The scope was lost by expiry, and its lock delay is not over.
    #[error("the scope was lost by expiry at epoch {epoch}, and its lock delay is not over")]
    LockDelayed {
        /// The epoch that was lost.
        epoch: Epoch,
    },
    /// The wait under the request id has ended without a grant.
    #[error("the wait under this request id has ended without a grant")]
    WaitExpired,
    /// The wait under the request id was cancelled.
    #[error("the wait under this request id was cancelled")]
    WaitCancelled,
    /// The scope's queue is full.
    #[error("{QUEUE_MAX} acquires wait for the scope already")]
    QueueFull,
    /// Too many waits.
    #[error("the cluster keeps no more waits")]
    WaitLimit,
    /// The session to transfer to is not there.
    #[error("the session to transfer to has expired, was closed, or never was")]
    TargetExpired,
    /// A transfer to the session that has the grant.
    #[error(
        "the session to transfer to is the grant's own; acquire with reissue gives it the next epoch"
    )]
    TargetIsSelf,
    /// The record is at another revision than the caller expects.
    #[error("the record is at revision {revision}, not at the expected one")]
    RevisionMismatch {
        /// Its revision, 0 while there is no value.
        revision: u64,
    },
    /// The intent id has been used for another action.
    #[error("the intent id was used before, for another action")]
    IntentReused,
    /// Too many bytes of records.
    #[error("the cluster keeps no more bytes of records")]
    RecordLimit,
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
    /// The request id asked for something else before.
    #[error("the request id was used before, for another scope or on other terms")]
    RequestIdReused,
    /// The open id is of a live session with another holder, TTL, stall limit or holder key.
    #[error("the open_id is of a live session with another holder, ttl, stall_limit or holder key")]
    OpenIdReused,
    /// The request ids of an AcquireMany run out of range.
    #[error("request_id and as many after it as there are scopes must stay below 2^53")]
    RequestIdsOver,
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
    #[error(
        "a node has as many signing keys as it may; retire one, or wait until older ones have left \
         the bundle"
    )]
    KeyLimit,
    /// The bundle does not follow the newest one, or is not signed as it must be.
    #[error(
        "the bundle does not follow the newest one, or is not signed as it must be; fetch the chain, \
         and sign its successor"
    )]
    BundleInvalid,
    /// Too many bundles since the last one that the root key signed.
    #[error("the chain of bundles is too long; sign the next one with the root key")]
    BundleLimit,
    /// The offer's signatures do not hold, or the key was in use before.
    #[error("the offered key is not signed as it must be, or was retired")]
    OfferInvalid,
    /// No node of that number has a signing key.
    #[error("no such node has a signing key")]
    NodeUnknown,
    /// No such key.
    #[error("no such signing key is in the bundle or offered")]
    KeyUnknown,
    /// Without the key, too few nodes could sign the next bundle.
    #[error(
        "without this key too few nodes could sign the next bundle; have its node make another one \
         first, or sign a bundle without it with the root key"
    )]
    LastKey,
    /// Too many nodes that are in no bundle offer keys.
    #[error(
        "too many nodes that are in no bundle offer keys; add them with the root key, or retire \
         what they offer"
    )]
    OfferLimit,
    /// The statement does not verify.
    #[error("the statement is not signed by the root key, is for another cluster, or has expired")]
    StatementInvalid,
    /// A statement of the same kind that was issued later is kept.
    #[error("a statement of this kind that was issued later is kept already; make a new one")]
    StatementOlder,
    /// The principal has no permission for this. Says neither for what nor whose it is.
    #[error("this is not permitted; ask an operator for the permission")]
    PermissionDenied,
    /// The first permission is not to operate.
    #[error(
        "the first permission must give operate on all scopes, so that somebody can give the others"
    )]
    FirstOperator,
    /// The last permission to operate would go.
    #[error(
        "this is the last permission to operate; give another principal operate on all scopes first"
    )]
    LastOperator,
    /// Too many permissions.
    #[error("the cluster keeps no more permissions, or no more of one principal; remove some")]
    PermissionLimit,
    /// Too many tokens.
    #[error("the cluster keeps no more tokens, or no more of one principal; remove some")]
    TokenLimit,
    /// The token or its label stands for another.
    #[error("the token or its label is used already; remove that one, or use another")]
    TokenReused,
    /// Too many principals with limits.
    #[error("the cluster keeps no more limits; remove those of another principal")]
    LimitsLimit,
    /// The principal has as many sessions as it may.
    #[error("the principal has as many sessions as it may have; close some")]
    PrincipalSessionLimit,
    /// The principal has as many grants and waits as it may have grants.
    #[error("the principal has as many grants, and waits for more, as it may have; release some")]
    PrincipalGrantLimit,
    /// The principal has as many waits as it may.
    #[error("the principal has as many waits as it may have; cancel some")]
    PrincipalWaitLimit,
}

impl Refusal {
    /// The public reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::SessionExpired => Reason::SessionExpired,
            Self::ScopeHeld { .. } => Reason::ScopeHeld,
            Self::AlreadyHeld { .. } => Reason::AlreadyHeld,
            Self::AlreadyWaiting => Reason::AlreadyWaiting,
            Self::LockDelayed { .. } => Reason::LockDelayed,
            Self::WaitExpired => Reason::WaitExpired,
            Self::WaitCancelled => Reason::WaitCancelled,
            Self::QueueFull => Reason::QueueFull,
            Self::WaitLimit | Self::PrincipalWaitLimit => Reason::WaitLimit,
            Self::TargetExpired => Reason::TargetExpired,
            Self::TargetIsSelf | Self::FirstOperator | Self::LastOperator => {
                Reason::InvalidArgument
            }
            Self::PermissionLimit | Self::TokenLimit | Self::LimitsLimit => Reason::PermissionLimit,
            Self::RevisionMismatch { .. } => Reason::RevisionMismatch,
            Self::IntentReused => Reason::IntentReused,
            Self::RecordLimit => Reason::RecordLimit,
            Self::Superseded { .. } => Reason::EpochSuperseded,
            Self::NotTheHolder { .. } | Self::PermissionDenied => Reason::PermissionDenied,
            Self::RequestIdReused | Self::OpenIdReused | Self::TokenReused => {
                Reason::RequestIdReused
            }
            Self::RequestIdTooOld { .. } => Reason::RequestIdTooOld,
            Self::RequestIdsOver | Self::EpochUnknown { .. } => Reason::InvalidArgument,
            Self::EpochExhausted => Reason::EpochExhausted,
            Self::SessionLimit | Self::PrincipalSessionLimit => Reason::SessionLimit,
            Self::GrantLimit | Self::PrincipalGrantLimit => Reason::GrantLimit,
            Self::KeyLimit | Self::BundleLimit | Self::OfferLimit => Reason::KeyLimit,
            Self::BundleInvalid
            | Self::OfferInvalid
            | Self::NodeUnknown
            | Self::KeyUnknown
            | Self::LastKey
            | Self::StatementInvalid
            | Self::StatementOlder => Reason::InvalidArgument,
        }
    }

    /// The scope's last epoch, where the refusal names one.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::ScopeHeld { epoch }
            | Self::AlreadyHeld { epoch }
            | Self::LockDelayed { epoch } => Some(*epoch),
            Self::Superseded { epoch } => *epoch,
            Self::SessionExpired
            | Self::AlreadyWaiting
            | Self::WaitExpired
            | Self::WaitCancelled
            | Self::QueueFull
            | Self::WaitLimit
            | Self::TargetExpired
            | Self::TargetIsSelf
            | Self::RevisionMismatch { .. }
            | Self::IntentReused
            | Self::RecordLimit
            | Self::NotTheHolder { .. }
            | Self::RequestIdReused
            | Self::OpenIdReused
            | Self::RequestIdsOver
            | Self::RequestIdTooOld { .. }
            | Self::EpochUnknown { .. }
            | Self::EpochExhausted
            | Self::SessionLimit
            | Self::GrantLimit
            | Self::KeyLimit
            | Self::BundleInvalid
            | Self::BundleLimit
            | Self::OfferInvalid
            | Self::NodeUnknown
            | Self::KeyUnknown
            | Self::LastKey
            | Self::OfferLimit
            | Self::StatementInvalid
            | Self::StatementOlder
            | Self::PermissionDenied
            | Self::FirstOperator
            | Self::LastOperator
            | Self::PermissionLimit
            | Self::TokenLimit
            | Self::TokenReused
            | Self::LimitsLimit
            | Self::PrincipalSessionLimit
            | Self::PrincipalGrantLimit
            | Self::PrincipalWaitLimit => None,
        }
    }
}
