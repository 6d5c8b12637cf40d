//! Records: one small value a scope.

use std::fmt;
use std::sync::Arc;

use epoch_core::{Epoch, IntentId, PayloadDigest};

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// Intents kept of each scope: the latest ones. Part of the replicated behaviour.
pub const INTENTS_KEPT: usize = 16;
/// Bytes that a row takes besides its scope and value: what the bound of all records counts.
const ROW_BYTES: usize = 64;
const INTENT_BYTES: usize = 40;

/// A record's value: at most 4 KiB.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value(Arc<[u8]>);

/// A value out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {0} bytes; at most {VALUE_BYTES_MAX}")]
pub struct ValueError(pub usize);

impl Value {
    /// Checks the length.
    ///
    /// # Errors
    /// Above 4 KiB.
    pub fn new(bytes: &[u8]) -> Result<Self, ValueError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(ValueError(bytes.len()));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

/// An intent as the record's ledger keeps it: 16 bytes of SHA-256 of each part, so that a row stays
/// small whatever clients call their actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntentDigest {
    /// Of the id.
    pub id: [u8; 16],
    /// Of what the action does: the value, or that it is removed.
    pub payload: [u8; 16],
}

impl IntentDigest {
    /// Of an action that writes `value`, or removes what is there.
    #[must_use]
    pub fn of(id: &IntentId, value: Option<&Value>) -> Self {
        let mut payload = vec![u8::from(value.is_some())];
        payload.extend(value.map_or(&[][..], Value::as_bytes));
        Self {
            id: first_half(PayloadDigest::of(id.as_str().as_bytes())),
            payload: first_half(PayloadDigest::of(&payload)),
        }
    }
}

fn first_half(digest: PayloadDigest) -> [u8; 16] {
    let mut half = [0; 16];
    for (to, from) in half.iter_mut().zip(digest.0) {
        *to = from;
    }
    half
}

/// An intent that has taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DoneIntent {
    /// Which, and what it did.
    pub intent: IntentDigest,
    /// The revision that came of it.
    pub revision: u64,
    /// Whether there was a value to remove; true for a write.
    pub had_effect: bool,
}

/// A scope's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Rises with each change, like an epoch, without being dense.
    pub revision: u64,
    /// `None` once removed: the row stays for the intents' sake for [`REMOVED_KEPT_MS`].
    pub value: Option<Value>,
    /// Of the grant that wrote or removed it.
    pub epoch: Epoch,
    /// The latest intents, oldest first.
    pub intents: Arc<[DoneIntent]>,
}

/// How long the row of a removed value is kept, in milliseconds of replicated time: 7 days.
pub const REMOVED_KEPT_MS: u64 = 7 * 24 * 3_600 * 1_000;

impl Record {
    /// What the bound of all records counts.
    pub(crate) fn bytes(&self, scope: &str) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.0.len());
        ROW_BYTES
            .saturating_add(scope.len())
            .saturating_add(value)
            .saturating_add(self.intents.len().saturating_mul(INTENT_BYTES))
    }

    /// The revision that a caller may expect: 0 while there is no value.
    #[must_use]
    pub fn expected(&self) -> u64 {
        if self.value.is_some() {
            self.revision
        } else {
            0
        }
    }
}
