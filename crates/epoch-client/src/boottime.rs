//! The lease clock: it goes on while the machine is suspended, as the cluster's does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest a timer sleeps before it reads the lease clock again. Timers stop in suspend and
/// the lease does not: after a resume, a lapsed lease is noticed within this time.
const TICK: Duration = Duration::from_millis(250);

/// What leases are measured by: milliseconds that never go back. `CLOCK_BOOTTIME` unless a test
/// gives another.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<dyn Fn() -> u64 + Send + Sync>>);

impl Clock {
    /// A clock that a test reads for the client.
    pub fn given(read_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read_ms)))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        match &self.0 {
            None => boottime_ms(),
            Some(read_ms) => read_ms(),
        }
    }

    /// Returns once the clock has reached `deadline_ms`.
    pub(crate) async fn sleep_until(&self, deadline_ms: u64) {
        loop {
            let left = deadline_ms.saturating_sub(self.now_ms());
            if left == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(left).min(TICK)).await;
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "CLOCK_BOOTTIME",
            Some(_) => "a test's clock",
        })
    }
}

fn boottime_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // The clock starts at 0 and its nanoseconds stay below a second: neither conversion fails.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000)
        .saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_only_once_the_clock_is_there() {
        let clock = Clock::default();
        let deadline_ms = clock.now_ms() + 20;
        clock.sleep_until(deadline_ms).await;
        assert!(clock.now_ms() >= deadline_ms);
    }
}
