//! Opening: reads every segment in order and rebuilds the index, or says what is wrong and where.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{
    FrameFault, FrameHeader, FrameKind, SECTOR, check_sector_ends, decode_payload,
};
use super::record::{Record, SegmentHead, decode_records};
use super::segment::{ActiveSegment, DiskError, segment_path};
use super::view::{SegmentFile, View};
use super::{OpenError, Purged};
use crate::fs::{File, FileSystem};

/// What one read from the disk brings in at least.
const WINDOW_BYTES: usize = 1 << 20;

/// What the segments say.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) view: View,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Bytes>,
    pub(super) active: ActiveSegment,
}

/// Reads the segments `numbers`, which rise and are not empty. `synced` is the number of a frame
/// known to have been synced.
pub(super) fn scan(
    fs: &dyn FileSystem,
    folder: &Path,
    numbers: &[u64],
    synced: u64,
    cache_bytes_max: u64,
) -> Result<Scanned, OpenError> {
    let mut scanner = Scanner {
        view: View::new(cache_bytes_max),
        vote: None,
        committed: None,
        last: None,
        synced,
    };
    let mut active = None;
    let mut expected = numbers.first().copied();
    for (at, number) in numbers.iter().copied().enumerate() {
        let path = segment_path(folder, number);
        if let Some(expected) = expected.filter(|expected| *expected != number) {
            return Err(OpenError::Missing {
                file: segment_path(folder, expected),
            });
        }
        expected = number.checked_add(1);
        let file = fs
            .open(&path)
            .map_err(|source| DiskError::new("open", &path, source))?;
        let segment = SegmentFile { path, file };
        scanner.view.add_segment(number, segment.clone());
        active = Some(scanner.segment(number, segment, at + 1 == numbers.len())?);
    }
    let missing = || OpenError::Missing {
        file: segment_path(folder, 1),
    };
    let active = active.ok_or_else(missing)?;
    if active.last_frame < synced {
        return Err(scanner.short(&active.path, active.end));
    }
    let next = after(scanner.view.purged());
    if scanner.view.first() > next {
        return Err(OpenError::FirstEntry {
            file: segment_path(folder, numbers.first().copied().unwrap_or(1)),
            first: scanner.view.first(),
            expected: next,
        });
    }
    let Scanner {
        view,
        vote,
        committed,
        ..
    } = scanner;
    Ok(Scanned {
        view,
        vote,
        committed,
        active,
    })
}

/// The index that follows a purge point.
fn after(purged: Option<&Purged>) -> u64 {
    purged.map_or(0, |purged| purged.index.saturating_add(1))
}

struct Scanner {
    view: View,
    vote: Option<Bytes>,
    committed: Option<Bytes>,
    /// Number and header CRC of the last frame read.
    last: Option<(u64, u32)>,
    synced: u64,
}

struct Frame {
    header: FrameHeader,
    crc: u32,
    payload: Bytes,
}

impl Scanner {
    fn segment(
        &mut self,
        number: u64,
        segment: SegmentFile,
        is_last: bool,
    ) -> Result<ActiveSegment, OpenError> {
        let SegmentFile { path, file } = segment;
        let size = file
            .size()
            .map_err(|source| DiskError::new("read", &path, source))?;
        let mut window = Window {
            file: file.as_ref(),
            path: &path,
            start: 0,
            bytes: Vec::new(),
        };
        let (mut end, mut head_end, mut last_frame) = (0, 0, 0..0);
        while end < size {
            let frame = match window.frame(end, number)? {
                Ok(frame) => frame,
                Err(fault) => {
                    self.check_torn(&mut window, number, end..size, fault, is_last)?;
                    cut(file.as_ref(), &path, end, size)?;
                    break;
                }
            };
            let bytes = frame.header.frame_bytes() as u64;
            self.frame(number, end, frame)
                .map_err(|expected| damaged(&path, end, expected))?;
            last_frame = end..end + bytes;
            end += bytes;
            if head_end == 0 {
                head_end = end;
            }
        }
        let Some((last_number, last_crc)) = self.last.filter(|_| head_end > 0) else {
            return Err(damaged(&path, 0, "the segment's head"));
        };
        if is_last {
            window.rewrite(last_frame.start, frame_len(&last_frame))?;
        }
        let file = Arc::clone(&file);
        Ok(ActiveSegment {
            number,
            path,
            file,
            end,
            head_end,
            last_frame: last_number,
            last_crc,
        })
    }

    /// Takes in a good frame; the error says what was expected in its place.
    fn frame(&mut self, segment: u64, offset: u64, frame: Frame) -> Result<(), String> {
        let Frame {
            header,
            crc,
            payload,
        } = frame;
        if let Some((last, last_crc)) = self.last
            && (Some(header.number) != last.checked_add(1) || header.previous_crc != last_crc)
        {
            return Err(format!("the frame that follows frame {last}"));
        }
        let is_first = self.last.is_none();
        self.last = Some((header.number, crc));
        match (header.kind, offset) {
            (FrameKind::Head, 0) => self.head(segment, payload, is_first),
            (FrameKind::Records, 1..) => {
                let offset = u32::try_from(offset);
                let offset = offset.map_err(|_too_far| String::from("the segment's end"))?;
                let records = decode_records(payload);
                let records = records.ok_or_else(|| String::from("a frame of whole records"))?;
                records
                    .into_iter()
                    .try_for_each(|record| self.record(segment, offset, record))
            }
            (FrameKind::Head, _) => Err(String::from("a frame of records")),
            (FrameKind::Records, 0) => Err(String::from("the segment's head")),
        }
    }

    fn head(&mut self, segment: u64, payload: Bytes, is_first: bool) -> Result<(), String> {
        let head = SegmentHead::decode(payload);
        let head = head.filter(|head| head.segment == segment);
        let head = head.ok_or_else(|| format!("the head of segment {segment}"))?;
        if is_first {
            if head.next_index < after(head.purged.as_ref()) {
                return Err(String::from("a next entry after the purge point"));
            }
            self.view.begin_at(head.next_index, head.purged);
            self.vote = head.vote;
        } else if head.next_index != self.view.next() {
            let expected = self.view.next();
            return Err(format!(
                "a head with next entry {expected}, not {}",
                head.next_index
            ));
        } else if head.vote != self.vote || head.purged.as_ref() != self.view.purged() {
            return Err(String::from("a head that restates vote and purge point"));
        }
        self.committed = head.committed;
        Ok(())
    }

    fn record(&mut self, segment: u64, frame_offset: u32, record: Record) -> Result<(), String> {
        let next = self.view.next();
        match record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Committed(committed) => self.committed = Some(committed),
            Record::Entries { first, entries } => {
                if first != next || first.checked_add(entries.len() as u64).is_none() {
                    return Err(format!("entry {next}, not entry {first}"));
                }
                for entry in entries {
                    self.view
                        .push(segment, frame_offset, entry.at, entry.payload);
                }
            }
            Record::Truncate { from } => {
                if from > next || from < after(self.view.purged()) {
                    return Err(format!("a truncation of what there is, not from {from}"));
                }
                self.view.truncate(from);
            }
            Record::Purge(purged) => {
                if purged.index < after(self.view.purged()) || purged.index == u64::MAX {
                    return Err(format!("a later purge point than {}", purged.index));
                }
                self.view.purge(purged);
            }
        }
        Ok(())
    }

    /// Whether the fault at `rest.start` is the trace of a write that a crash cut off, which was
    /// never acknowledged. Anything else is an error.
    fn check_torn(
        &self,
        window: &mut Window<'_>,
        segment: u64,
        rest: std::ops::Range<u64>,
        fault: FrameFault,
        is_last: bool,
    ) -> Result<(), OpenError> {
        let offset = rest.start;
        let what = match fault {
            FrameFault::Version(version) => {
                return Err(OpenError::Version {
                    file: window.path.to_path_buf(),
                    offset,
                    version,
                });
            }
            FrameFault::Damaged(expected) => return Err(damaged(window.path, offset, expected)),
            FrameFault::Torn(what) => what,
        };
        let last = self.last.map_or(0, |(last, _)| last);
        if !is_last || offset == 0 {
            return Err(damaged(
                window.path,
                offset,
                format!("a whole frame, but {what}"),
            ));
        }
        // Frames are synced one at a time: what comes before a written frame was acknowledged.
        let mut later = offset + SECTOR as u64;
        while later < rest.end {
            if let Ok((header, _)) = FrameHeader::decode(window.bytes(later, SECTOR)?, segment)
                && header.number > last
            {
                let frame = header.number;
                let expected = format!(
                    "a whole frame, since frame {frame} follows at byte {later}, but {what}"
                );
                return Err(damaged(window.path, offset, expected));
            }
            later += SECTOR as u64;
        }
        if last < self.synced {
            return Err(self.short(window.path, offset));
        }
        Ok(())
    }

    fn short(&self, file: &Path, offset: u64) -> OpenError {
        OpenError::Short {
            file: file.to_path_buf(),
            offset,
            last: self.last.map_or(0, |(last, _)| last),
            synced: self.synced,
        }
    }
}

fn damaged(file: &Path, offset: u64, expected: impl Into<String>) -> OpenError {
    OpenError::Damaged {
        file: file.to_path_buf(),
        offset,
        expected: expected.into(),
    }
}

/// Frames are bounded far below `usize::MAX`.
fn frame_len(frame: &std::ops::Range<u64>) -> usize {
    usize::try_from(frame.end - frame.start).unwrap_or(usize::MAX)
}

/// Removes a torn tail, durably: its sectors must not be found behind the next frame.
fn cut(file: &dyn File, path: &Path, end: u64, size: u64) -> Result<(), DiskError> {
    let bytes = size - end;
    tracing::warn!(file = %path.display(), offset = end, bytes, "cut off a write that a crash ended");
    file.set_len(end)
        .and_then(|()| file.sync_all())
        .map_err(|source| DiskError::new("cut", path, source))
}

/// A part of a segment file in memory.
struct Window<'a> {
    file: &'a dyn File,
    path: &'a Path,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// `len` bytes from `offset`, or fewer at the file's end.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], DiskError> {
        let within = |at: &usize| {
            at.checked_add(len)
                .is_some_and(|end| end <= self.bytes.len())
        };
        let at = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        let at = match at.filter(within) {
            Some(at) => at,
            None => {
                self.load(offset, len.max(WINDOW_BYTES))
                    .map_err(|source| DiskError::new("read", self.path, source))?;
                0
            }
        };
        Ok(&self.bytes[at..self.bytes.len().min(at + len)])
    }

    fn load(&mut self, offset: u64, len: usize) -> io::Result<()> {
        self.bytes.resize(len, 0);
        self.start = offset;
        let mut filled = 0;
        while filled < len {
            let rest = &mut self.bytes[filled..];
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }

    fn frame(&mut self, offset: u64, segment: u64) -> Result<Result<Frame, FrameFault>, DiskError> {
        let first = self.bytes(offset, SECTOR)?;
        // A header is believed, or blamed, only once its sector is known to have been written.
        if let Err(fault) = check_sector_ends(first) {
            return Ok(Err(fault));
        }
        let (header, crc) = match FrameHeader::decode(first, segment) {
            Ok(decoded) => decoded,
            Err(fault) => return Ok(Err(fault)),
        };
        let len = header.frame_bytes();
        let sectors = self.bytes(offset, len)?;
        if sectors.len() < len {
            let fault = check_sector_ends(sectors).err();
            let torn = FrameFault::Torn("the file ends inside the frame");
            return Ok(Err(fault.unwrap_or(torn)));
        }
        Ok(decode_payload(&header, sectors).map(|payload| Frame {
            header,
            crc,
            payload,
        }))
    }

    /// Writes the last frame once more and syncs it. If the process before this one died after a
    /// failed sync, the frame may be in the kernel's memory only, marked as written: it reads back
    /// well, a sync alone would do nothing, and it would be gone after a power failure.
    fn rewrite(&mut self, offset: u64, len: usize) -> Result<(), DiskError> {
        let (file, path) = (self.file, self.path);
        let sectors = self.bytes(offset, len)?;
        file.write_at(sectors, offset)
            .and_then(|()| file.sync_data())
            .map_err(|source| DiskError::new("write to", path, source))
    }
}
