//! The lease clock: it goes on while the machine is suspended, as the cluster's does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest a timer sleeps before it reads the lease clock again. Timers stop in suspend and
/// the lease does not: after a resume, a lapsed lease is noticed within this time.
const TICK: Duration = Duration::from_millis(250);

/// Milliseconds of `CLOCK_BOOTTIME`.
pub(crate) fn now_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // The clock starts at 0 and its nanoseconds stay below a second: neither conversion fails.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000)
        .saturating_add(nanos / 1_000_000)
}

/// Returns once the lease clock has reached `deadline_ms`.
pub(crate) async fn sleep_until(deadline_ms: u64) {
    loop {
        let left = deadline_ms.saturating_sub(now_ms());
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(left).min(TICK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_only_once_the_clock_is_there() {
        let deadline_ms = now_ms() + 20;
        sleep_until(deadline_ms).await;
        assert!(now_ms() >= deadline_ms);
    }
}
