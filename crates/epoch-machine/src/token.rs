//! Tokens: secrets by which a principal is known. Only their hashes are kept.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use epoch_core::Principal;

/// Longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// The SHA-256 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

/// What a token is called, once within its principal: 1 to 64 of `A-Z`, `a-z`, `0-9`, `.`, `_`
/// and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenLabel(Arc<str>);

/// Why a label was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a token's label must have 1 to {LABEL_BYTES_MAX} of A-Z, a-z, 0-9, '.', '_' and '-'")]
pub struct LabelError;

impl TokenLabel {
    /// Checks length and characters.
    ///
    /// # Errors
    /// Empty, longer than 64 bytes, or with another character.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.into()))
        } else {
            Err(LabelError)
        }
    }

    /// The label as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for TokenLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for TokenLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token of a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Of what it is known by.
    pub hash: TokenHash,
    /// Whose.
    pub principal: Principal,
    /// What it is called.
    pub label: TokenLabel,
    /// Replicated time when it was added, in milliseconds since 1970.
    pub created_ms: u64,
    /// From when on it is no good, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<NonZeroU64>,
}

impl Token {
    /// Whether it is no good any more at a time, in milliseconds since 1970.
    #[must_use]
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms
            .is_some_and(|expires_ms| expires_ms.get() <= now_ms)
    }
}
