//! What goes into the log: batches of commands, each already checked for form.

use std::sync::Arc;

use epoch_core::{Epoch, Holder, NodeId, OpenId, RequestId, Scope, SessionId};

/// Shortest session TTL, in milliseconds.
pub const TTL_MS_MIN: u64 = 1_000;
/// Longest session TTL, in milliseconds: a day.
pub const TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];

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

/// A session's time to live, from 1 s to 24 h.
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
    },
    /// Closes a session and ends its grants.
    Close {
        /// Which.
        session: SessionId,
    },
    /// Ends a session whose time has run out, by the leader's clock.
    Expire {
        /// Which.
        session: SessionKey,
    },
    /// Takes a scope if it is free.
    Acquire {
        /// What.
        scope: Scope,
        /// For whom.
        session: SessionId,
        /// The client's name for this acquire.
        request_id: RequestId,
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
    },
    /// Makes a node's signing key known to all.
    RegisterKey {
        /// Whose.
        node: NodeId,
        /// The key.
        public_key: Arc<PublicKey>,
    },
}
