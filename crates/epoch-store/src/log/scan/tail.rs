//! What follows the last good frame of a segment: nothing, zeros, or what a crash left of a write.

use std::ops::Range;
use std::path::Path;

use super::{Window, damaged, refused};
use crate::log::OpenError;
use crate::log::format::{FrameFault, PAYLOAD_BYTES_MAX, SECTOR, SectorEnd, frame_bytes};

/// The last good frame of a segment.
#[derive(Clone, Copy)]
pub(super) struct LastFrame {
    pub(super) number: u64,
    pub(super) crc: u32,
}

/// Where a good frame was looked for and not found.
pub(super) struct Rest<'a> {
    pub(super) path: &'a Path,
    pub(super) segment: u64,
    /// From the end of the last good frame to the end of the file.
    pub(super) range: Range<u64>,
    pub(super) fault: FrameFault,
    pub(super) last: LastFrame,
}

impl Rest<'_> {
    /// The bytes that are left of the one write that a crash can have cut off, which was never
    /// acknowledged; empty if all is zero. An error if anything else is there: frames are synced
    /// one at a time, so whatever comes before another frame was acknowledged; and a write leaves
    /// of each sector all or nothing, and no sectors outside its frame.
    ///
    /// A sector that ends in zero is taken for one that was never written, whatever else is in it.
    pub(super) fn torn(&self, window: &mut Window<'_>) -> Result<Range<u64>, OpenError> {
        let start = self.range.start;
        let FrameFault::Torn(what) = self.fault else {
            return Err(refused(self.path, start, self.fault));
        };
        let frame_end = start + self.frame_len(window)? as u64;
        let mut torn = start..start;
        let mut at = start;
        while at < self.range.end {
            let sector = window.bytes(at, SECTOR)?;
            if sector.iter().any(|byte| *byte != 0) {
                torn.end = at + sector.len() as u64;
                match SectorEnd::of(sector) {
                    SectorEnd::First if at > start => {
                        let expected =
                            format!("a whole frame, since another begins at byte {at}, but {what}");
                        return Err(damaged(self.path, start, expected));
                    }
                    SectorEnd::Wrong => {
                        return Err(damaged(self.path, at, "a sector of a frame, or zeros"));
                    }
                    SectorEnd::First | SectorEnd::Next | SectorEnd::Unwritten => {}
                }
                if at >= frame_end {
                    return Err(damaged(self.path, at, "zeros after the last frame"));
                }
            }
            at += SECTOR as u64;
        }
        Ok(torn)
    }

    /// How long the frame that was cut off is, as far as its header was written; at most.
    fn frame_len(&self, window: &mut Window<'_>) -> Result<usize, OpenError> {
        let Ok((header, _)) = window.header(self.range.start, self.segment)? else {
            return Ok(frame_bytes(PAYLOAD_BYTES_MAX));
        };
        self.last
            .check_next(header.number, header.previous_crc)
            .map_err(|expected| damaged(self.path, self.range.start, expected))?;
        Ok(header.frame_bytes())
    }
}

impl LastFrame {
    /// Numbers are far below `u64::MAX`.
    pub(super) fn next(self) -> u64 {
        self.number.saturating_add(1)
    }

    /// Whether a frame continues the chain; the error says what would.
    pub(super) fn check_next(self, number: u64, previous_crc: u32) -> Result<(), String> {
        if number == self.next() && previous_crc == self.crc {
            Ok(())
        } else {
            Err(format!("the frame that follows frame {}", self.number))
        }
    }
}
