//! Times and durations for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epoch_core::Epoch;

/// Milliseconds since 1970, by this machine's clock.
pub(crate) fn now_ms() -> u64 {
    ms_of(SystemTime::now())
}

/// Milliseconds since 1970; 0 for anything before.
pub(crate) fn ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When an epoch was granted, in milliseconds since 1970: its high bits are the time.
pub(crate) fn granted_ms(epoch: Epoch) -> u64 {
    epoch.get() >> 10
}

/// What was typed, as the API takes it: at most a day, in whole milliseconds.
pub(crate) fn of_api(given: Duration) -> prost_types::Duration {
    epoch_proto::duration::from_ms(u64::try_from(given.as_millis()).unwrap_or(u64::MAX))
}

/// A duration of the API for people.
pub(crate) fn duration(duration: Option<&prost_types::Duration>) -> String {
    let ms = duration.and_then(epoch_proto::duration::to_ms);
    let shown = |ms| humantime::format_duration(Duration::from_millis(ms)).to_string();
    ms.map_or_else(|| "-".to_owned(), shown)
}

/// A moment as RFC 3339.
pub(crate) fn rfc3339(ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    // Beyond the year 9999 there is no such text, and the formatter panics.
    const LAST_MS: u64 = 253_402_300_799_000;
    match time {
        Some(time) if ms <= LAST_MS => humantime::format_rfc3339_millis(time).to_string(),
        Some(_) | None => format!("{ms} ms after 1970"),
    }
}

/// A moment, and how far it is from `now_ms`.
pub(crate) fn moment(ms: u64, now_ms: u64) -> String {
    let seconds = |ms: u64| humantime::format_duration(Duration::from_secs(ms / 1_000)).to_string();
    let distance = match now_ms.checked_sub(ms) {
        Some(age) => format!("{} ago", seconds(age)),
        None => format!("in {}", seconds(ms - now_ms)),
    };
    format!("{} ({distance})", rfc3339(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_with_its_distance() {
        let ms = 1_700_000_000_123;
        assert_eq!(
            moment(ms, ms + 61_000),
            "2023-11-14T22:13:20.123Z (1m 1s ago)"
        );
        assert_eq!(moment(ms, ms - 2_000), "2023-11-14T22:13:20.123Z (in 2s)");
    }

    #[test]
    fn moments_at_the_end_of_time_are_shown_too() {
        for ms in [0, 1 << 53, u64::MAX] {
            assert!(!moment(ms, 0).is_empty());
        }
    }

    #[test]
    fn the_time_of_a_grant_is_in_its_epoch() {
        let epoch = Epoch::new((1_700_000_000_123 << 10) + 7).unwrap();
        assert_eq!(granted_ms(epoch), 1_700_000_000_123);
    }
}
