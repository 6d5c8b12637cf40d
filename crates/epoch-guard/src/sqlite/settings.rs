//! The bounds of a SQLite guard.

use std::time::Duration;

/// How long intents are kept by default: 7 days, in milliseconds.
pub const INTENT_AGE_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// How many intents are kept per scope by default.
pub const INTENTS_PER_SCOPE_MAX: u64 = 10_000;
/// Longest stored outcome by default, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 64 * 1024;
/// How many refusals are kept by default.
pub const REFUSALS_MAX: u64 = 10_000;
/// How long a busy database is waited for by default, in milliseconds.
pub const BUSY_TIMEOUT_MS: u32 = 5_000;

/// The bounds of a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteSettings {
    /// An intent older than this may be forgotten, in milliseconds: a retry after that is a new
    /// action. Let it be longer than any caller retries.
    pub intent_age_ms_max: u64,
    /// Most intents kept per scope; beyond it the oldest are forgotten. At least 1.
    pub intents_per_scope_max: u64,
    /// Longest outcome a write may return, in bytes: it is stored for replays.
    pub outcome_bytes_max: usize,
    /// Most refusals kept; beyond it the oldest are forgotten.
    pub refusals_max: u64,
    /// How long to wait for another writer of the database, in milliseconds. Set on each
    /// connection the guard is given.
    pub busy_timeout_ms: u32,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        Self {
            intent_age_ms_max: INTENT_AGE_MS_MAX,
            intents_per_scope_max: INTENTS_PER_SCOPE_MAX,
            outcome_bytes_max: OUTCOME_BYTES_MAX,
            refusals_max: REFUSALS_MAX,
            busy_timeout_ms: BUSY_TIMEOUT_MS,
        }
    }
}

impl SqliteSettings {
    pub(super) fn busy_timeout(&self) -> Duration {
        Duration::from_millis(self.busy_timeout_ms.into())
    }
}
