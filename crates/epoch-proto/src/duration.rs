//! Durations: `"10s"` in JSON, whole milliseconds inside.

use prost_types::Duration;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Longest duration that is taken, in milliseconds: a year. Every field has a tighter bound.
const DURATION_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

/// As a whole number of milliseconds; `None` when negative, not whole, or longer than a year.
#[must_use]
pub fn to_ms(duration: &Duration) -> Option<u64> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    if nanos % 1_000_000 != 0 {
        return None;
    }
    let ms = seconds
        .checked_mul(1_000)?
        .checked_add(u64::from(nanos / 1_000_000))?;
    (ms <= DURATION_MS_MAX).then_some(ms)
}

/// From milliseconds; saturates at a year.
#[must_use]
pub fn from_ms(ms: u64) -> Duration {
    let ms = ms.min(DURATION_MS_MAX);
    Duration {
        seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0),
    }
}

/// Writes `"10s"`.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        None => serializer.serialize_none(),
        Some(duration) => {
            let seconds = u64::try_from(duration.seconds).unwrap_or(0);
            let nanos = u32::try_from(duration.nanos).unwrap_or(0).min(999_999_999);
            let duration = std::time::Duration::new(seconds, nanos);
            serializer.collect_str(&humantime::format_duration(duration))
        }
    }
}

/// Reads `"10s"`, `"1m 30s"`, `"500ms"`.
///
/// # Errors
/// Anything else.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let parsed = humantime::parse_duration(&text).map_err(|error| {
        de::Error::custom(format!(
            "{text:?} is not a duration ({error}); write \"10s\""
        ))
    })?;
    Ok(Some(Duration {
        seconds: i64::try_from(parsed.as_secs()).map_err(de::Error::custom)?,
        nanos: i32::try_from(parsed.subsec_nanos()).map_err(de::Error::custom)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_trip() {
        for ms in [0, 1, 999, 1_000, 86_400_000] {
            assert_eq!(to_ms(&from_ms(ms)), Some(ms));
        }
    }

    #[test]
    fn negative_fractional_and_endless_durations_are_refused() {
        assert_eq!(
            to_ms(&Duration {
                seconds: -1,
                nanos: 0
            }),
            None
        );
        assert_eq!(
            to_ms(&Duration {
                seconds: 1,
                nanos: -1
            }),
            None
        );
        assert_eq!(
            to_ms(&Duration {
                seconds: 1,
                nanos: 1
            }),
            None
        );
        assert_eq!(
            to_ms(&Duration {
                seconds: i64::MAX,
                nanos: 0
            }),
            None
        );
    }
}
