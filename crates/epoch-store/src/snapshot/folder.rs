//! The names in the folder of snapshots.

use std::io;
use std::path::{Path, PathBuf};

use crate::TEMP_SUFFIX;
use crate::fs::FileSystem;

const PREFIX: &str = "snapshot-";
const TEMP_PREFIX: &str = "snapshot-temp-";

pub(super) fn file_name(index: u64, term: u64) -> String {
    format!("{PREFIX}{index:020}-{term:020}")
}

pub(super) fn temp_name(number: u32) -> String {
    format!("{TEMP_PREFIX}{number}{TEMP_SUFFIX}")
}

/// Everything that is named as a snapshot, well or not: a name that was changed by hand must not
/// make a folder look empty.
pub(super) fn newest_first(fs: &dyn FileSystem, folder: &Path) -> io::Result<Vec<String>> {
    let mut names = names(fs, folder)?;
    names.retain(|name| name.starts_with(PREFIX) && !name.ends_with(TEMP_SUFFIX));
    names.reverse();
    Ok(names)
}

/// The files in `folder` that are named as snapshots, newest first; none if there is no folder.
/// Nothing is read or changed.
///
/// # Errors
/// What the disk reports.
pub fn files(fs: &dyn FileSystem, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names = newest_first(fs, folder)?;
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

/// Removes files that were never finished.
pub(super) fn remove_temp_files(fs: &dyn FileSystem, folder: &Path) -> io::Result<()> {
    for name in names(fs, folder)? {
        if name.starts_with(TEMP_PREFIX) && name.ends_with(TEMP_SUFFIX) {
            fs.remove(&folder.join(name))?;
        }
    }
    Ok(())
}

fn names(fs: &dyn FileSystem, folder: &Path) -> io::Result<Vec<String>> {
    match fs.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    }
}
