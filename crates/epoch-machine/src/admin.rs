//! Rows of which there are few and which change seldom: one kind among the kinds of rows, so that
//! hash, changes, snapshots and checkpoints have to know of one more only.

use std::sync::Arc;

use epoch_core::{KeyId, NodeId, Principal, SignedBundle, StatementKind, VerifyingKey};

use crate::audit::AuditRecord;
use crate::limits::Limits;
use crate::permission::{Prefix, Verbs};
use crate::token::{Token, TokenHash};

/// What a rare row is found by. Their order is the order of the rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminKey {
    /// What a principal may do with the scopes of a prefix.
    Permission(Principal, Prefix),
    /// A token.
    Token(TokenHash),
    /// The limits of a principal.
    Limits(Principal),
    /// An audit record, by its number.
    Audit(u64),
    /// A trust bundle, by its sequence number.
    Bundle(u64),
    /// The key that a node has offered for the next bundle.
    Offer(NodeId),
    /// A node that is asked for a new key.
    Rotation(NodeId),
    /// A key that has left the bundle, or is to.
    Retired(KeyId),
    /// The newest of the operator's statements of a kind.
    Statement(StatementTopic),
}

/// A rare row, its key included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRow {
    /// What a principal may do with the scopes of a prefix.
    Permission(Permission),
    /// A token.
    Token(Token),
    /// The limits of a principal: never without any.
    Limits {
        /// Whose.
        principal: Principal,
        /// The limits.
        limits: Limits,
    },
    /// What an operator did.
    Audit(AuditRecord),
    /// A trust bundle: one of the chain from the last one that the root key signed.
    Bundle(Arc<SignedBundle>),
    /// The key that a node has offered for the next bundle.
    Offer(Offer),
    /// A node that is asked for a new key.
    Rotation(NodeId),
    /// A key that has left the bundle, or is to.
    Retired(Retired),
    /// The newest of the operator's statements of a kind.
    Statement(KeptStatement),
}

/// A signing key that is to be in the next bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Whose.
    pub node: NodeId,
    /// The key.
    pub key: VerifyingKey,
    /// Whether a key of the same node has signed it; without that, only the root key can put it in
    /// a bundle.
    pub endorsed: bool,
}

/// A signing key that is not to be in a bundle any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// Which.
    pub kid: KeyId,
    /// Replicated time when it was, in milliseconds since 1970.
    pub time_ms: u64,
}

/// An operator's statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptStatement {
    /// Of which kind.
    pub topic: StatementTopic,
    /// When it was issued, in seconds since 1970: one that is issued earlier never takes its place,
    /// not even when this one has expired.
    pub issued_at_s: u64,
    /// As it was signed.
    pub text: Arc<str>,
}

/// What a statement is about; of each, one is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatementTopic {
    /// Grants while the cluster's time is ahead.
    Clock,
    /// How far ahead guards accept epochs.
    MaxFuture,
}

impl From<StatementKind> for StatementTopic {
    fn from(kind: StatementKind) -> Self {
        match kind {
            StatementKind::Clock => Self::Clock,
            StatementKind::MaxFuture { .. } => Self::MaxFuture,
        }
    }
}

/// What a principal may do with the scopes of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Who.
    pub principal: Principal,
    /// With which scopes.
    pub prefix: Prefix,
    /// What.
    pub verbs: Verbs,
}

impl AdminRow {
    /// What it is found by.
    #[must_use]
    pub fn key(&self) -> AdminKey {
        match self {
            Self::Permission(permission) => {
                let Permission {
                    principal, prefix, ..
                } = permission;
                AdminKey::Permission(principal.clone(), prefix.clone())
            }
            Self::Token(token) => AdminKey::Token(token.hash),
            Self::Limits { principal, .. } => AdminKey::Limits(principal.clone()),
            Self::Audit(record) => AdminKey::Audit(record.number),
            Self::Bundle(bundle) => AdminKey::Bundle(bundle.bundle().terms().sequence),
            Self::Offer(offer) => AdminKey::Offer(offer.node),
            Self::Rotation(node) => AdminKey::Rotation(*node),
            Self::Retired(retired) => AdminKey::Retired(retired.kid),
            Self::Statement(kept) => AdminKey::Statement(kept.topic),
        }
    }

    pub(crate) fn bundle(&self) -> Option<&SignedBundle> {
        if let Self::Bundle(bundle) = self {
            Some(bundle)
        } else {
            None
        }
    }

    pub(crate) fn offer(&self) -> Option<&Offer> {
        if let Self::Offer(offer) = self {
            Some(offer)
        } else {
            None
        }
    }

    pub(crate) fn rotation(&self) -> Option<NodeId> {
        if let Self::Rotation(node) = self {
            Some(*node)
        } else {
            None
        }
    }

    pub(crate) fn retired(&self) -> Option<Retired> {
        if let Self::Retired(retired) = self {
            Some(*retired)
        } else {
            None
        }
    }

    pub(crate) fn statement(&self) -> Option<&KeptStatement> {
        if let Self::Statement(kept) = self {
            Some(kept)
        } else {
            None
        }
    }

    pub(crate) fn permission(&self) -> Option<&Permission> {
        if let Self::Permission(permission) = self {
            Some(permission)
        } else {
            None
        }
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        if let Self::Token(token) = self {
            Some(token)
        } else {
            None
        }
    }

    pub(crate) fn limits(&self) -> Option<Limits> {
        if let Self::Limits { limits, .. } = self {
            Some(*limits)
        } else {
            None
        }
    }

    pub(crate) fn audit(&self) -> Option<&AuditRecord> {
        if let Self::Audit(record) = self {
            Some(record)
        } else {
            None
        }
    }
}
