//! What an acquire asks for beside the scope.

use std::fmt;
use std::sync::Arc;

/// Longest metadata, in bytes of UTF-8.
pub const METADATA_BYTES_MAX: usize = 1_024;
/// Longest wait and longest lock delay, in milliseconds: a day.
pub const WAIT_MS_MAX: u64 = 24 * 3_600 * 1_000;

/// What an acquire asks for beside the scope. A retry has to ask for the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// For how long the scope is kept from all after it is lost by expiry.
    pub lock_delay: LockDelay,
    /// Text that is shown with the grant.
    pub metadata: Metadata,
}

impl Terms {
    pub(crate) fn are_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A time out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {0} ms; it must be at most 24 h")]
pub struct WaitError(pub u64);

/// For how long a scope is kept from all after it is lost by expiry: up to 24 h; 0 is not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LockDelay(u32);

impl LockDelay {
    /// Checks the range.
    ///
    /// # Errors
    /// Above 24 h.
    pub fn from_ms(ms: u64) -> Result<Self, WaitError> {
        checked_ms(ms).map(Self)
    }

    /// In milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::from(self.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// How long an acquire waits while another holds the scope: up to 24 h; 0 is not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Wait(u32);

impl Wait {
    /// Checks the range.
    ///
    /// # Errors
    /// Above 24 h.
    pub fn from_ms(ms: u64) -> Result<Self, WaitError> {
        checked_ms(ms).map(Self)
    }

    /// In milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::from(self.0)
    }

    /// Whether it is a try.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

fn checked_ms(ms: u64) -> Result<u32, WaitError> {
    match u32::try_from(ms) {
        Ok(short) if ms <= WAIT_MS_MAX => Ok(short),
        _ => Err(WaitError(ms)),
    }
}

/// Text that is shown with a grant: UTF-8, at most 1 KiB, any characters.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Metadata(Arc<str>);

/// Metadata out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {0} bytes; at most {METADATA_BYTES_MAX}")]
pub struct MetadataError(pub usize);

impl Metadata {
    /// Checks the length.
    ///
    /// # Errors
    /// Above 1 KiB.
    pub fn new(text: &str) -> Result<Self, MetadataError> {
        if text.len() > METADATA_BYTES_MAX {
            return Err(MetadataError(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// The text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
