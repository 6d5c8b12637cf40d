//! What opening changes on the disk before the log is used.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::format::SECTOR;
use super::record::SegmentHead;
use super::scan::{Scanned, SegmentEnd};
use super::segment::{ActiveSegment, DiskError};
use super::view::View;
use crate::fs::{File, FileSystem, read_exact_at};

const CHUNK_BYTES: u64 = 1 << 20;

/// Removes files that a crash left incomplete.
pub(super) fn remove_incomplete(
    fs: &dyn FileSystem,
    incomplete: &[PathBuf],
) -> Result<(), DiskError> {
    for path in incomplete {
        fs.remove(path)
            .map_err(|source| DiskError::new("remove", path, source))?;
        tracing::info!(file = %path.display(), "removed a file left incomplete by a crash");
    }
    Ok(())
}

/// An empty log: its first segment, holding a head only.
pub(super) fn begin(
    fs: &dyn FileSystem,
    folder: &Path,
    cache_bytes_max: u64,
) -> Result<Scanned, DiskError> {
    let head = SegmentHead {
        segment: 1,
        next_index: 0,
        vote: None,
        purged: None,
        committed: None,
    };
    let active = ActiveSegment::create(fs, folder, &head, 0, 0)?;
    let mut view = View::new(cache_bytes_max);
    view.add_segment(active.number, active.to_file());
    let end = SegmentEnd {
        last_frame: 0..active.end,
        torn: active.end..active.end,
        size: active.end,
    };
    Ok(Scanned {
        view,
        vote: None,
        committed: None,
        active,
        end,
        segments: Vec::new(),
    })
}

#[cfg(test)]
thread_local! {
    /// A planted bug: a torn write stays behind the end, and under the next frame.
    pub(super) static LEAVES_TORN_TAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes the last segment end in its last good frame, durably.
///
/// What was read is written once more. If the process before this one died after a failed sync, it
/// may be in the kernel's memory only, marked as written: it reads back well, a sync alone would do
/// nothing, and after a power failure the last frame would be gone, or a torn write that was made
/// zero would be back, under or behind the next frame.
pub(super) fn mend(active: &ActiveSegment, end: &SegmentEnd) -> Result<(), DiskError> {
    let (file, path) = (active.file.as_ref(), active.path.as_path());
    if !end.torn.is_empty() {
        let (offset, bytes) = (end.torn.start, end.torn.end - end.torn.start);
        tracing::warn!(file = %path.display(), offset, bytes, "took back a write that a crash ended");
    }
    rewrite(file, &end.last_frame)
        .and_then(|()| zero(file, end.last_frame.end..end.size))
        .and_then(|()| file.sync_data())
        .map_err(|source| DiskError::new("write to", path, source))
}

fn rewrite(file: &dyn File, frame: &Range<u64>) -> io::Result<()> {
    let mut sectors = vec![0; in_memory(frame.end - frame.start)];
    read_exact_at(file, &mut sectors, frame.start)?;
    file.write_at(&sectors, frame.start)
}

/// What a crash or a failing disk leaves of this is a torn write again: fewer sectors, and never one
/// that ends as a frame's first sector does but has not got its header, hence that end byte goes
/// first.
fn zero(file: &dyn File, rest: Range<u64>) -> io::Result<()> {
    #[cfg(test)]
    if LEAVES_TORN_TAILS.get() {
        return Ok(());
    }
    let Some(last) = rest.end.checked_sub(1).filter(|_| !rest.is_empty()) else {
        return Ok(());
    };
    file.write_at(&[0], last.min(rest.start + SECTOR as u64 - 1))?;
    let zeros = vec![0; in_memory(CHUNK_BYTES.min(rest.end - rest.start))];
    let mut at = rest.start;
    while at < rest.end {
        let len = CHUNK_BYTES.min(rest.end - at);
        file.write_at(&zeros[..in_memory(len)], at)?;
        at += len;
    }
    Ok(())
}

/// Frames are bounded far below `usize::MAX`.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
