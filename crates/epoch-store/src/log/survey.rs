//! What a log folder holds: what opening starts from, and what [`super::inspect`] reports. Changes
//! nothing on the disk.

use std::path::{Path, PathBuf};

use super::OpenError;
use super::mark::{MARK_NAME, read_mark};
use super::scan::{Scanned, scan};
use super::segment::{DiskError, segment_number};
use crate::durable_file::TEMP_SUFFIX;
use crate::fs::FileSystem;

#[derive(Debug)]
pub(super) struct Survey {
    /// Files that a crash left incomplete. They have not got their name yet, so nothing in them was
    /// acknowledged.
    pub(super) incomplete: Vec<PathBuf>,
    /// The number in the side file, if there is one; there is if there are segments.
    pub(super) synced: Option<u64>,
    /// `None` if there are no segments.
    pub(super) scanned: Option<Scanned>,
}

impl Survey {
    /// # Errors
    /// Whatever opening refuses.
    pub(super) fn of(
        fs: &dyn FileSystem,
        folder: &Path,
        cache_bytes_max: u64,
    ) -> Result<Self, OpenError> {
        let names = fs
            .list(folder)
            .map_err(|source| DiskError::new("list", folder, source))?;
        let incomplete = names.iter().filter(|name| name.ends_with(TEMP_SUFFIX));
        let incomplete = incomplete.map(|name| folder.join(name)).collect();
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| segment_number(name))
            .collect();
        numbers.sort_unstable();
        let synced = read_mark(fs, folder)?;
        let missing = |name| OpenError::Missing {
            file: folder.join(name),
        };
        let scanned = match (synced, numbers.is_empty()) {
            (Some(1..), true) => return Err(missing("log-*")),
            (None, false) => return Err(missing(MARK_NAME)),
            (Some(0) | None, true) => None,
            (Some(synced), false) => Some(scan(fs, folder, &numbers, synced, cache_bytes_max)?),
        };
        Ok(Self {
            incomplete,
            synced,
            scanned,
        })
    }
}
