//! The lease clock: it goes on while the machine is suspended, as the cluster's does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest a timer sleeps before the lease clock is read again. Timers stop in suspend and the
/// lease does not: after a resume, a lapsed lease is noticed within this time.
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

    /// Returns once the clock has reached `wake_ms`, and after one [`TICK`] at the latest; never
    /// without a time.
    pub(crate) async fn doze(&self, wake_ms: Option<u64>) {
        let Some(wake_ms) = wake_ms else {
            return std::future::pending().await;
        };
        let left = wake_ms.saturating_sub(self.now_ms());
        if left > 0 {
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

    #[tokio::test(start_paused = true)]
    async fn a_doze_ends_at_its_time_and_after_a_tick_at_the_latest() {
        let clock = Clock::given(|| 5_000);
        for (wake_ms, slept_ms) in [(0, 0), (5_000, 0), (5_020, 20), (9_000, 250)] {
            let began = tokio::time::Instant::now();
            clock.doze(Some(wake_ms)).await;
            assert_eq!(began.elapsed(), Duration::from_millis(slept_ms));
        }
    }
}
