//! The folder of snapshots: names, the newest, and what goes.

use std::io;
use std::path::Path;

use super::SnapshotFile;
use super::error::{OpenSnapshotError, ReadSnapshotError};
use super::read::verify;
use crate::TEMP_SUFFIX;
use crate::fs::FileSystem;

/// How many snapshots are kept, so that one that has gone bad costs nothing: the log is purged
/// only below the older.
pub const KEPT: usize = 2;

const PREFIX: &str = "snapshot-";
const TEMP_PREFIX: &str = "snapshot-temp-";

pub(super) fn file_name(index: u64, term: u64) -> String {
    format!("{PREFIX}{index:020}-{term:020}")
}

pub(super) fn temp_name(number: u32) -> String {
    format!("{TEMP_PREFIX}{number}{TEMP_SUFFIX}")
}

/// Finds the newest snapshot whose hash fits, naming those it skips in the log. Files that were
/// never finished are removed: to be called at start, before anything is written.
///
/// `None` only when there is no snapshot at all, or no folder.
///
/// # Errors
/// There are snapshots and none is whole; or what the disk reports.
pub fn open_newest_valid(
    fs: &dyn FileSystem,
    folder: &Path,
) -> Result<Option<SnapshotFile>, OpenSnapshotError> {
    let in_folder = |source| OpenSnapshotError::Io {
        folder: folder.to_path_buf(),
        source,
    };
    remove_temp_files(fs, folder).map_err(in_folder)?;
    let names = newest_first(fs, folder).map_err(in_folder)?;
    let mut newest_damage = None;
    for name in &names {
        match verified(fs, folder, name) {
            Ok(file) => return Ok(Some(file)),
            Err(error) => {
                tracing::error!(
                    snapshot = %error.path.display(),
                    error = &error.source as &dyn std::error::Error,
                    "damaged snapshot skipped"
                );
                newest_damage.get_or_insert(error);
            }
        }
    }
    match newest_damage {
        None => Ok(None),
        Some(source) => Err(OpenSnapshotError::AllDamaged {
            folder: folder.to_path_buf(),
            count: names.len(),
            source,
        }),
    }
}

/// Keeps the newest `keep` whole snapshots, newest first as returned, and removes all others.
/// While there are not that many whole ones, nothing is removed: a damaged file must never push
/// out a good one.
///
/// # Errors
/// What the disk reports while listing or removing.
pub fn prune(fs: &dyn FileSystem, folder: &Path, keep: usize) -> io::Result<Vec<SnapshotFile>> {
    let names = newest_first(fs, folder)?;
    let mut kept = Vec::new();
    for name in &names {
        if kept.len() == keep {
            break;
        }
        match verified(fs, folder, name) {
            Ok(file) => kept.push(file),
            Err(error) => tracing::error!(
                snapshot = %error.path.display(),
                error = &error.source as &dyn std::error::Error,
                "damaged snapshot"
            ),
        }
    }
    if kept.len() < keep {
        return Ok(kept);
    }
    let mut removed = false;
    for path in names.iter().map(|name| folder.join(name)) {
        if kept.iter().all(|file| file.path != path) {
            fs.remove(&path)?;
            removed = true;
        }
    }
    if removed {
        fs.sync_folder(folder)?;
    }
    Ok(kept)
}

fn verified(
    fs: &dyn FileSystem,
    folder: &Path,
    name: &str,
) -> Result<SnapshotFile, ReadSnapshotError> {
    let path = folder.join(name);
    let meta = verify(fs, &path)?;
    Ok(SnapshotFile { path, meta })
}

/// Everything that is named as a snapshot, well or not: a name that was changed by hand must not
/// make a folder look empty.
fn newest_first(fs: &dyn FileSystem, folder: &Path) -> io::Result<Vec<String>> {
    let mut names = names(fs, folder)?;
    names.retain(|name| name.starts_with(PREFIX) && !name.ends_with(TEMP_SUFFIX));
    names.reverse();
    Ok(names)
}

fn remove_temp_files(fs: &dyn FileSystem, folder: &Path) -> io::Result<()> {
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
