//! Time, as histories, verifiers and measurements need it.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started: one clock for all processes, which never steps back.
#[must_use]
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// The same as a duration.
#[must_use]
pub fn boot() -> Duration {
    Duration::from_nanos(boot_ns())
}

/// Milliseconds since 1970.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The processor time that a process has taken, all threads together, to 10 ms or so.
///
/// # Errors
/// There is no such process.
pub fn of_process(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, can hold anything. User and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").context("no name in it")?;
    let times = fields.split(' ').skip(11).take(2);
    let ticks: u64 = times.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    let a_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1_000 / a_second))
}
