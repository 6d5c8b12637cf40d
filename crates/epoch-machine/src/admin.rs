//! Rows of which there are few and which change seldom: one kind among the kinds of rows, so that
//! hash, changes, snapshots and checkpoints have to know of one more only.

use std::sync::Arc;

use epoch_core::{NodeId, Principal};

use crate::audit::AuditRecord;
use crate::command::PublicKey;
use crate::limits::Limits;
use crate::permission::{Prefix, Verbs};
use crate::token::{Token, TokenHash};

/// What a rare row is found by. Their order is the order of the rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminKey {
    /// A signing key of a node.
    SigningKey(NodeId, Arc<PublicKey>),
    /// What a principal may do with the scopes of a prefix.
    Permission(Principal, Prefix),
    /// A token.
    Token(TokenHash),
    /// The limits of a principal.
    Limits(Principal),
    /// An audit record, by its number.
    Audit(u64),
}

/// A rare row, its key included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRow {
    /// A signing key of a node.
    SigningKey {
        /// Whose.
        node: NodeId,
        /// The key.
        public_key: Arc<PublicKey>,
    },
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
            Self::SigningKey { node, public_key } => {
                AdminKey::SigningKey(*node, Arc::clone(public_key))
            }
            Self::Permission(permission) => {
                let Permission {
                    principal, prefix, ..
                } = permission;
                AdminKey::Permission(principal.clone(), prefix.clone())
            }
            Self::Token(token) => AdminKey::Token(token.hash),
            Self::Limits { principal, .. } => AdminKey::Limits(principal.clone()),
            Self::Audit(record) => AdminKey::Audit(record.number),
        }
    }

    pub(crate) fn signing_key(&self) -> Option<(NodeId, &PublicKey)> {
        if let Self::SigningKey { node, public_key } = self {
            Some((*node, &**public_key))
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
