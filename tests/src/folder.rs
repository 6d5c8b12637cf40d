//! Data folders as files: copied, listed, weighed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Every file of a folder and of its folders, in order; none of one that is not there.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if !folder.exists() {
        return Ok(found);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Copies a folder with all that is in it.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().context("a name")?);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// The bytes of all files of a folder that is in use: one that goes meanwhile counts nothing.
///
/// # Errors
/// As [`files`].
pub fn bytes(folder: &Path) -> Result<u64> {
    let sizes = files(folder)?.into_iter().map(|file| {
        let metadata = fs::metadata(file);
        metadata.map_or(0, |metadata| metadata.len())
    });
    Ok(sizes.sum())
}
