//! What goes into the log: batches of commands, each already checked for form.

use std::num::NonZeroU64;
use std::sync::Arc;

use epoch_core::{
    Epoch, Holder, KeyId, KeyOffer, NodeId, OpenId, Principal, RequestId, Scope, SessionHash,
    SessionId, SignedBundle,
};

use crate::limits::Limits;
use crate::permission::{Prefix, Verbs};
use crate::record::{IntentDigest, Value};
use crate::terms::{Terms, Wait};
use crate::token::{TokenHash, TokenLabel};

/// Shortest session TTL, in milliseconds.
pub const TTL_MS_MIN: u64 = 1_000;
/// Longest session TTL, in milliseconds: a day.
pub const TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;

/// The SHA-256 thumbprint of a JSON web key (RFC 7638).
pub type HolderKey = [u8; 32];

/// One leadership: a term can have several, told apart by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leadership {
    /// The Raft term.
    pub term: u64,
    /// The node that leads.
    pub node: NodeId,
}

/// Where an entry stands in the log, as the log itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The leadership that wrote the entry.
    pub leadership: Leadership,
    /// The log index.
    pub index: u64,
}

/// The value of one log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The leadership under which the batch was made: void under any other.
    pub leadership: Leadership,
    /// The cluster's time as the leader saw it, in milliseconds since 1970.
    pub wall_ms: u64,
    /// In the order in which they take effect.
    pub commands: Vec<Command>,
}

/// A session's time to live, or its stall limit: from 1 s to 24 h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(u32);

/// A TTL out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ttl is {0} ms; it must be from 1 s to 24 h")]
pub struct TtlError(pub u64);

impl Ttl {
    /// Checks the range.
    ///
    /// # Errors
    /// Below 1 s or above 24 h.
    pub fn from_ms(ms: u64) -> Result<Self, TtlError> {
        match u32::try_from(ms) {
            Ok(short) if (TTL_MS_MIN..=TTL_MS_MAX).contains(&ms) => Ok(Self(short)),
            _ => Err(TtlError(ms)),
        }
    }

    /// In milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::from(self.0)
    }
}

/// A session inside the machine: the position of its Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Log index of the Open.
    pub index: u64,
    /// Its offset in the batch.
    pub offset: u32,
}

impl SessionKey {
    /// The whole id.
    #[must_use]
    pub fn with(self, open_id: OpenId) -> SessionId {
        SessionId {
            open_id,
            index: self.index,
            offset: self.offset,
        }
    }
}

impl From<&SessionId> for SessionKey {
    fn from(id: &SessionId) -> Self {
        Self {
            index: id.index,
            offset: id.offset,
        }
    }
}

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Opens a session, or finds the live one of the same open id.
    Open {
        /// Chosen by the client.
        open_id: OpenId,
        /// Whom the session acts for.
        holder: Holder,
        /// Its time to live.
        ttl: Ttl,
        /// How long keepalives renew it without progress.
        stall_limit: Option<Ttl>,
        /// Who opens it, where that is known: from then on the session acts for it.
        principal: Option<Principal>,
        /// The thumbprint of the key that its holder proves to have.
        holder_key: Option<HolderKey>,
    },
    /// Closes a session and ends its grants and waits.
    Close {
        /// Which.
        session: SessionId,
    },
    /// Ends a session whose time has run out, by the leader's clock.
    Expire {
        /// Which.
        session: SessionKey,
    },
    /// Takes a scope if it is free, or waits for it.
    Acquire {
        /// What.
        scope: Scope,
        /// For whom.
        session: SessionId,
        /// The client's name for this acquire.
        request_id: RequestId,
        /// What else is asked for.
        terms: Terms,
        /// How long to wait.
        wait: Wait,
        /// Whether the next epoch is taken if the session holds the scope already.
        reissue: bool,
    },
    /// Takes all of some scopes, or none.
    AcquireMany {
        /// Which.
        scopes: Scopes,
        /// For whom.
        session: SessionId,
        /// The client's name for the first one; the others' follow.
        request_id: RequestId,
        /// What else is asked for.
        terms: Terms,
    },
    /// Ends a wait, by its own session.
    CancelWait {
        /// For what.
        scope: Scope,
        /// By whom.
        session: SessionId,
        /// Which wait.
        request_id: RequestId,
    },
    /// Ends a wait whose time has run out or whose caller is gone, by the leader's clock.
    EndWait {
        /// Whose.
        session: SessionKey,
        /// Which wait.
        request_id: RequestId,
    },
    /// Ends a lock delay, by the leader's clock.
    EndDelay {
        /// Of which scope.
        scope: Scope,
        /// The epoch that was lost.
        epoch: Epoch,
    },
    /// Gives a grant to another session.
    Transfer {
        /// What.
        scope: Scope,
        /// By whom.
        session: SessionId,
        /// Which grant.
        epoch: Epoch,
        /// To whom.
        to: SessionHash,
    },
    /// Gives a grant back.
    Release {
        /// What.
        scope: Scope,
        /// By whom.
        session: SessionId,
        /// Which grant.
        epoch: Epoch,
    },
    /// Burns one epoch that nobody holds, ending the current grant if there is one.
    Revoke {
        /// What.
        scope: Scope,
        /// The epoch that must still be current.
        epoch: Option<Epoch>,
        /// By whom, where that is known.
        by: Option<Principal>,
    },
    /// Writes a scope's record, or removes its value.
    WriteRecord {
        /// Whose record.
        scope: Scope,
        /// By whom.
        session: SessionId,
        /// Under which grant.
        epoch: Epoch,
        /// The new value; `None` removes it.
        value: Option<Value>,
        /// The revision that must be the current one, 0 for no value.
        expected_revision: Option<u64>,
        /// The caller's action.
        intent: Option<IntentDigest>,
    },
    /// Gives a permission: in place of the one that the principal had for the prefix, if any. The
    /// first one must be to operate, and closes the cluster to all who have none. Waits that are
    /// no longer allowed end as cancelled; grants stay until they end.
    GrantPermission {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// To whom.
        principal: Principal,
        /// For which scopes.
        prefix: Prefix,
        /// To do what.
        verbs: Verbs,
    },
    /// Takes a permission away; never the last one to operate. Waits that are no longer allowed
    /// end as cancelled; grants stay until they end: by release, expiry, or a [`Command::Revoke`].
    RevokePermission {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// From whom.
        principal: Principal,
        /// For which scopes.
        prefix: Prefix,
    },
    /// Adds a token of a principal.
    AddToken {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// Whose.
        principal: Principal,
        /// What it is called.
        label: TokenLabel,
        /// Of what it is known by.
        hash: TokenHash,
        /// From when on it is no good, in milliseconds since 1970; `None` is never.
        expires_ms: Option<NonZeroU64>,
    },
    /// Removes a token of a principal.
    RemoveToken {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// Whose.
        principal: Principal,
        /// What it is called.
        label: TokenLabel,
    },
    /// Sets the limits of a principal, in place of those it had. What it has already stays.
    SetLimits {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// Whose.
        principal: Principal,
        /// The limits.
        limits: Limits,
    },
    /// Takes a trust bundle in: the first one, or one that follows the newest. Its signatures say
    /// whether it counts.
    PutBundle {
        /// Who brought it, where an operator did.
        by: Option<Principal>,
        /// The bundle.
        bundle: Arc<SignedBundle>,
    },
    /// Offers a node's new signing key for the next bundle. Its signatures say whether it counts.
    OfferKey(Arc<KeyOffer>),
    /// Asks nodes for new signing keys.
    RotateKeys {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// Which node; all of the bundle when absent.
        node: Option<NodeId>,
    },
    /// Leaves a signing key out of the next bundle and all later ones.
    RetireKey {
        /// By whom, where that is known.
        by: Option<Principal>,
        /// Which.
        kid: KeyId,
    },
    /// Takes an operator's statement in, in place of the one before it of its kind.
    PutStatement {
        /// Who brought it, where that is known.
        by: Option<Principal>,
        /// As it was signed.
        text: Arc<str>,
    },
}

/// Scopes of one [`Command::AcquireMany`] at most.
pub const SCOPES_MAX: usize = 64;

/// From 1 to 64 scopes, each once, in the caller's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

/// Scopes that cannot be taken together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopesError {
    /// None, or too many.
    #[error("there are {0}; from 1 to {SCOPES_MAX}")]
    Count(usize),
    /// One is there twice.
    #[error("{0:?} is there twice")]
    Twice(String),
}

impl Scopes {
    /// Checks number and difference.
    ///
    /// # Errors
    /// None, more than 64, or one of them twice.
    pub fn new(scopes: Vec<Scope>) -> Result<Self, ScopesError> {
        if scopes.is_empty() || scopes.len() > SCOPES_MAX {
            return Err(ScopesError::Count(scopes.len()));
        }
        let mut sorted: Vec<&Scope> = scopes.iter().collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        }) {
            return Err(ScopesError::Twice(twice.to_string()));
        }
        Ok(Self(scopes))
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Scope> {
        self.0.iter()
    }
}
