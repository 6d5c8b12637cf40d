//! Reads every segment in order and rebuilds the index, or says what is wrong and where. Changes
//! nothing on the disk.

mod tail;
mod window;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use self::tail::{LastFrame, Rest};
use self::window::{Frame, Window};
use super::format::{FrameFault, FrameKind};
use super::inspect::SegmentReport;
use super::record::{Record, SegmentHead, decode_records};
use super::segment::{ActiveSegment, DiskError, segment_path};
use super::view::{SegmentFile, View};
use super::{OpenError, Purged};
use crate::fs::FileSystem;

/// What the segments say.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) view: View,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Bytes>,
    pub(super) active: ActiveSegment,
    pub(super) end: SegmentEnd,
    pub(super) segments: Vec<SegmentReport>,
}

/// How a segment's file ends.
#[derive(Clone, Debug)]
pub(super) struct SegmentEnd {
    /// Where the last good frame lies.
    pub(super) last_frame: Range<u64>,
    /// What a crash left of a write after it; empty if nothing. Only in the last segment.
    pub(super) torn: Range<u64>,
    /// The file's size.
    pub(super) size: u64,
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
        before: None,
        segments: Vec::new(),
    };
    let mut scanned = None;
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
            .open_to_read(&path)
            .map_err(|source| DiskError::new("open", &path, source))?;
        let segment = SegmentFile { path, file };
        scanner.view.add_segment(number, segment.clone());
        scanned = Some(scanner.segment(number, segment, at + 1 == numbers.len())?);
    }
    let missing = || OpenError::Missing {
        file: segment_path(folder, 1),
    };
    let (active, end) = scanned.ok_or_else(missing)?;
    if active.last_frame < synced {
        return Err(OpenError::Short {
            file: active.path,
            offset: active.end,
            last: active.last_frame,
            synced,
        });
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
        segments,
        ..
    } = scanner;
    Ok(Scanned {
        view,
        vote,
        committed,
        active,
        end,
        segments,
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
    last: Option<LastFrame>,
    /// The segment before the one being read, and where its frames end.
    before: Option<(PathBuf, u64)>,
    segments: Vec<SegmentReport>,
}

impl Scanner {
    fn segment(
        &mut self,
        number: u64,
        segment: SegmentFile,
        is_last: bool,
    ) -> Result<(ActiveSegment, SegmentEnd), OpenError> {
        let SegmentFile { path, file } = segment;
        let size = file
            .size()
            .map_err(|source| DiskError::new("read", &path, source))?;
        self.segments.push(SegmentReport::new(number, &path, size));
        let mut window = Window::new(file.as_ref(), &path);
        let (mut end, mut head_end, mut last_frame) = (0, 0, 0..0);
        let mut torn = 0..0;
        while end < size {
            let frame = match window.frame(end, number)? {
                Ok(frame) => frame,
                Err(fault) => {
                    let Some(last) = self.last.filter(|_| end > 0) else {
                        return Err(refused(&path, 0, fault));
                    };
                    let rest = Rest {
                        path: &path,
                        segment: number,
                        range: end..size,
                        fault,
                        last,
                    };
                    torn = rest.torn(&mut window)?;
                    if !torn.is_empty() && !is_last {
                        return Err(refused(&path, end, fault));
                    }
                    break;
                }
            };
            let bytes = frame.header.frame_bytes() as u64;
            self.chain(&path, end, &frame)?;
            self.frame(number, end, frame)
                .map_err(|expected| damaged(&path, end, expected))?;
            last_frame = end..end + bytes;
            end += bytes;
            if head_end == 0 {
                head_end = end;
            }
        }
        let Some(last) = self.last.filter(|_| head_end > 0) else {
            return Err(damaged(&path, 0, "the segment's head"));
        };
        self.before = Some((path.clone(), end));
        let active = ActiveSegment {
            number,
            path: path.clone(),
            file: Arc::clone(&file),
            end,
            head_end,
            last_frame: last.number,
            last_crc: last.crc,
        };
        let end = SegmentEnd {
            last_frame,
            torn,
            size,
        };
        Ok((active, end))
    }

    /// Checks that a frame follows the last one.
    fn chain(&mut self, path: &Path, offset: u64, frame: &Frame) -> Result<(), OpenError> {
        let number = frame.header.number;
        if let Some(last) = self.last
            && let Err(expected) = last.check_next(number, frame.header.previous_crc)
        {
            // A head says what the segment before it must end with.
            return Err(match &self.before {
                Some((before, end)) if offset == 0 && number > last.next() => {
                    let next = last.next();
                    let expected =
                        format!("frame {next}, since the next segment begins with frame {number}");
                    damaged(before, *end, expected)
                }
                Some(_) | None => damaged(path, offset, expected),
            });
        }
        self.last = Some(LastFrame {
            number,
            crc: frame.crc,
        });
        if let Some(report) = self.segments.last_mut() {
            report.add_frame(number);
        }
        Ok(())
    }

    /// Takes in a good frame; the error says what was expected in its place.
    fn frame(&mut self, segment: u64, offset: u64, frame: Frame) -> Result<(), String> {
        let Frame {
            header, payload, ..
        } = frame;
        match (header.kind, offset) {
            (FrameKind::Head, 0) => self.head(segment, payload),
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

    fn head(&mut self, segment: u64, payload: Bytes) -> Result<(), String> {
        let head = SegmentHead::decode(payload);
        let head = head.filter(|head| head.segment == segment);
        let head = head.ok_or_else(|| format!("the head of segment {segment}"))?;
        if self.before.is_none() {
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
                if let Some(report) = self.segments.last_mut() {
                    report.add_entries(first, entries.len() as u64);
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
}

/// The error for a fault that no crash explains.
fn refused(file: &Path, offset: u64, fault: FrameFault) -> OpenError {
    match fault {
        FrameFault::Torn(what) => damaged(file, offset, format!("a whole frame, but {what}")),
        FrameFault::Damaged(expected) => damaged(file, offset, expected),
        FrameFault::Version(version) => OpenError::Version {
            file: file.to_path_buf(),
            offset,
            version,
        },
    }
}

fn damaged(file: &Path, offset: u64, expected: impl Into<String>) -> OpenError {
    OpenError::Damaged {
        file: file.to_path_buf(),
        offset,
        expected: expected.into(),
    }
}
