//! Settings of a log and their bounds.

use std::ops::RangeInclusive;

use super::OpenError;

const CACHE_BYTES_LIMIT: u64 = 1 << 30;

/// Settings of a log. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// A segment that would grow beyond this many bytes is closed and the next begun, within
    /// [`SEGMENT_BYTES`](Self::SEGMENT_BYTES). Space is given back a segment at a time.
    pub segment_bytes_max: u64,
    /// Bytes of the latest entries to keep in memory; 0 to 1 GiB.
    pub cache_bytes_max: u64,
}

impl Default for LogOptions {
    /// Segments of 64 MiB, a cache of 2 MiB: a second of a busy log, for followers that are a little behind.
    fn default() -> Self {
        Self {
            segment_bytes_max: 64 << 20,
            cache_bytes_max: 2 << 20,
        }
    }
}

impl LogOptions {
    /// Bounds of a segment's size. Offsets in it fit into 32 bits with room to spare.
    pub const SEGMENT_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;

    /// Refuses settings out of bounds.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let bounds = [
            (
                "segment_bytes_max",
                self.segment_bytes_max,
                *Self::SEGMENT_BYTES.start(),
                *Self::SEGMENT_BYTES.end(),
            ),
            (
                "cache_bytes_max",
                self.cache_bytes_max,
                0,
                CACHE_BYTES_LIMIT,
            ),
        ];
        for (name, value, min, max) in bounds {
            if value < min || value > max {
                return Err(OpenError::Option {
                    name,
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }
}
