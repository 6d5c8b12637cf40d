//! What opening changes on the disk before the log is used.

use std::path::{Path, PathBuf};

use super::format::SECTOR;
use super::scan::SegmentEnd;
use super::segment::{ActiveSegment, DiskError};
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

#[cfg(test)]
thread_local! {
    /// A planted bug: a torn write stays behind the end, and under the next frame.
    pub(super) static LEAVES_TORN_TAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes the last segment end in its last good frame, durably.
pub(super) fn mend(active: &ActiveSegment, end: &SegmentEnd) -> Result<(), DiskError> {
    let (file, path) = (active.file.as_ref(), active.path.as_path());
    #[cfg(test)]
    if LEAVES_TORN_TAILS.get() {
        return Ok(());
    }
    if !end.torn.is_empty() {
        zero(file, path, end)?;
    }
    rewrite(file, end).map_err(|source| DiskError::new("write to", path, source))
}

/// Takes back a torn write, durably: its sectors must not be found behind the next frame. What a
/// crash or a failing disk leaves of this is a torn write again: fewer sectors, and never one that
/// ends as a frame's first sector does but has not got its header, hence that end byte goes first.
fn zero(file: &dyn File, path: &Path, end: &SegmentEnd) -> Result<(), DiskError> {
    let (start, bytes) = (end.torn.start, end.torn.end - end.torn.start);
    tracing::warn!(file = %path.display(), offset = start, bytes, "took back a write that a crash ended");
    let zeros = vec![0; in_memory(CHUNK_BYTES.min(bytes))];
    let first_sector_end = (start + SECTOR as u64).min(end.torn.end) - 1;
    let write = || {
        file.write_at(&[0], first_sector_end)?;
        let mut at = start;
        while at < end.torn.end {
            let len = CHUNK_BYTES.min(end.torn.end - at);
            file.write_at(&zeros[..in_memory(len)], at)?;
            at += len;
        }
        file.sync_data()
    };
    write().map_err(|source| DiskError::new("write to", path, source))
}

/// Writes the last frame once more and syncs it. If the process before this one died after a
/// failed sync, the frame may be in the kernel's memory only, marked as written: it reads back
/// well, a sync alone would do nothing, and it would be gone after a power failure.
fn rewrite(file: &dyn File, end: &SegmentEnd) -> std::io::Result<()> {
    let frame = &end.last_frame;
    let mut sectors = vec![0; in_memory(frame.end - frame.start)];
    read_exact_at(file, &mut sectors, frame.start)?;
    file.write_at(&sectors, frame.start)?;
    file.sync_data()
}

/// Frames are bounded far below `usize::MAX`.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
