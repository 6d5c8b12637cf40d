//! The two clocks, and the only place that reads them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot, suspend included. Leases are measured by it: `Instant` stands still in
/// suspend, so a lease measured by it would outlive its holder's belief.
#[must_use]
pub fn boot() -> Duration {
    read(ClockId::Boottime)
}

/// Time since 1970; zero for a clock set before it.
#[must_use]
pub fn wall() -> Duration {
    read(ClockId::Realtime)
}

/// [`wall`] in milliseconds.
#[must_use]
pub fn wall_ms() -> u64 {
    u64::try_from(wall().as_millis()).unwrap_or(u64::MAX)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
