//! How long a client waits.

use std::time::Duration;

/// How long a call may take in all by default: an election (about one second) and a slow node
/// fit in it several times.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
/// How long one node may take to answer by default, before the next one is asked.
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// How long a client waits.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call may take in all, retries included.
    pub deadline: Duration,
    /// How long one node may take to answer, before the next one is asked.
    pub attempt_timeout: Duration,
    /// How often an HTTP/2 ping goes out while a call is under way: a partition kills connections
    /// without a word.
    pub ping_interval: Duration,
    /// How long a ping's answer may take before the connection counts as broken.
    pub ping_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: DEADLINE_DEFAULT,
            attempt_timeout: ATTEMPT_TIMEOUT_DEFAULT,
            ping_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(1),
        }
    }
}
