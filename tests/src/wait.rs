//! Waiting for a condition, never for a time.

use std::time::Duration;

use anyhow::{Result, anyhow};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// The longest that anything here is waited for. Far above what is ever needed: a bound that is
/// reached means that something hangs.
pub const BOUND: Duration = Duration::from_secs(60);

/// Asks `probe` again and again until it succeeds, for [`BOUND`] at most.
///
/// # Errors
/// The bound was reached; the text has the probe's last error.
pub async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let mut last = None;
    let asking = async {
        loop {
            match probe().await {
                Ok(value) => return value,
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    match tokio::time::timeout(BOUND, asking).await {
        Ok(value) => Ok(value),
        Err(_elapsed) => match last {
            Some(error) => Err(error.context(format!("gave up waiting until {what}"))),
            None => Err(anyhow!("gave up waiting until {what}: it never answered")),
        },
    }
}
