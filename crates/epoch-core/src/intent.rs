//! The caller's name for one business action, and what a resource keeps of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

use crate::name::{NameError, checked};

/// Longest intent id, in bytes of UTF-8.
pub const INTENT_ID_BYTES_MAX: usize = 256;

/// The caller's name for one business action: UTF-8, 1 to 256 bytes, no control characters. A
/// retry of the same action carries the same id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(Arc<str>);

impl IntentId {
    /// Parses and checks `text`.
    ///
    /// # Errors
    /// Empty, longer than the bound, or with a control character.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        checked("intent id", INTENT_ID_BYTES_MAX, text).map(Self)
    }

    /// The id as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IntentId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// SHA-256 of what the action writes: tells a retry from another action under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadDigest(pub [u8; 32]);

impl PayloadDigest {
    /// The digest of `payload`.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(digest(&SHA256, payload).as_ref());
        Self(out)
    }
}

/// One business action, as the caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its name.
    pub id: IntentId,
    /// What it writes.
    pub payload: PayloadDigest,
}

/// What a resource keeps of an action that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentRecord {
    /// What it wrote.
    pub payload: PayloadDigest,
    /// What the caller was told.
    pub outcome: Vec<u8>,
    /// The content's revision after it.
    pub revision: u64,
}
