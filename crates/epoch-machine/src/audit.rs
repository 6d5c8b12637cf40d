//! What operators did.

use std::fmt;
use std::sync::Arc;

use epoch_core::{Principal, Reason};

/// Longest target, in bytes of UTF-8.
pub const TARGET_BYTES_MAX: usize = 600;

/// What an operator did, or wanted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Rises by one with each record.
    pub number: u64,
    /// Replicated time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The log index of the command.
    pub index: u64,
    /// By whom, where that is known.
    pub principal: Option<Principal>,
    /// What.
    pub action: AuditAction,
    /// To what.
    pub target: AuditTarget,
    /// Why it was refused, if it was.
    pub refused: Option<Reason>,
}

/// What kind of thing an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditAction {
    /// Ended a grant, or burnt an epoch.
    Revoke,
    /// Gave a permission.
    PermissionGrant,
    /// Took one away.
    PermissionRevoke,
    /// Added a token.
    TokenAdd,
    /// Removed one.
    TokenRemove,
    /// Set a principal's limits.
    LimitsSet,
    /// Asked nodes for new signing keys.
    KeyRotate,
    /// Took a signing key out of use.
    KeyRetire,
    /// Brought a bundle that the root key signed.
    BundlePut,
    /// Brought a statement.
    StatementPut,
}

impl AuditAction {
    /// Each of them; their places are their numbers in stored bytes, from 1.
    pub const ALL: [Self; 10] = [
        Self::Revoke,
        Self::PermissionGrant,
        Self::PermissionRevoke,
        Self::TokenAdd,
        Self::TokenRemove,
        Self::LimitsSet,
        Self::KeyRotate,
        Self::KeyRetire,
        Self::BundlePut,
        Self::StatementPut,
    ];

    /// Its public name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::PermissionGrant => "permission-grant",
            Self::PermissionRevoke => "permission-revoke",
            Self::TokenAdd => "token-add",
            Self::TokenRemove => "token-remove",
            Self::LimitsSet => "limits-set",
            Self::KeyRotate => "key-rotate",
            Self::KeyRetire => "key-retire",
            Self::BundlePut => "bundle-put",
            Self::StatementPut => "statement-put",
        }
    }

    /// Its number in stored bytes.
    #[must_use]
    pub fn number(self) -> u32 {
        (1..)
            .zip(Self::ALL)
            .find_map(|(number, action)| (action == self).then_some(number))
            .unwrap_or(0)
    }

    /// The one of a number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(at).copied()
    }
}

/// What an action was about, as text: UTF-8, at most 600 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct AuditTarget(Arc<str>);

/// A target out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {0} bytes; at most {TARGET_BYTES_MAX}")]
pub struct TargetError(pub usize);

impl AuditTarget {
    /// Checks the length.
    ///
    /// # Errors
    /// Above 600 bytes.
    pub fn new(text: &str) -> Result<Self, TargetError> {
        if text.len() > TARGET_BYTES_MAX {
            return Err(TargetError(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// As much of a text as fits, `…` at its end where that is not all.
    pub(crate) fn cut(text: &str) -> Self {
        const MORE: &str = "…";
        if text.len() <= TARGET_BYTES_MAX {
            return Self(text.into());
        }
        let end = text.floor_char_boundary(TARGET_BYTES_MAX.saturating_sub(MORE.len()));
        let kept = text.get(..end).unwrap_or_default();
        Self(format!("{kept}{MORE}").into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AuditTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
