//! The files of a sled folder, as far as they matter here. They are the operating system's: sled
//! knows no other.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::error::{CheckpointError, TableError};

const FOLDER_MODE: u32 = 0o700;
const DB: &str = "db";
const CONF: &str = "conf";
const BLOBS: &str = "blobs";
/// Ends the name of a file that sled had not finished. Finding one, it takes it for its newest
/// and refuses to open.
const UNFINISHED_SUFFIX: &str = ".generating";
/// Ends the marker's name.
const MARKER_SUFFIX: &str = ".opening";

pub(super) fn db_file(folder: &Path) -> PathBuf {
    folder.join(DB)
}

/// The length of sled's data file in bytes; 0 when there is none.
pub(super) fn db_bytes(folder: &Path) -> u64 {
    fs::metadata(db_file(folder)).map_or(0, |file| file.len())
}

/// Whether sled has put values beside its data file.
pub(super) fn has_blobs(folder: &Path) -> Result<bool, TableError> {
    let path = folder.join(BLOBS);
    match fs::read_dir(&path).map(|mut entries| entries.next().is_some()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map_err(|source| TableError::Io { path, source }),
    }
}

/// Makes what sled creates once durable: its settings, and all names.
pub(super) fn sync_names(folder: &Path) -> Result<(), TableError> {
    let conf = folder.join(CONF);
    for path in [conf.as_path(), folder] {
        sync(path).map_err(|source| TableError::Io {
            path: path.to_path_buf(),
            source,
        })?;
    }
    Ok(())
}

/// Makes the folder, durably, if there is none; tells whether there is anything in it. What has
/// its name and is none is removed.
pub(super) fn create(folder: &Path) -> Result<bool, CheckpointError> {
    if folder.symlink_metadata().is_ok() && !folder.is_dir() {
        tracing::warn!(checkpoint = %folder.display(), "the checkpoint is no folder: it is removed");
        fs::remove_file(folder).map_err(|source| error("remove", folder, source))?;
    }
    let created = DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder);
    created.map_err(|source| error("create", folder, source))?;
    sync(parent(folder)).map_err(|source| error("sync", parent(folder), source))?;
    let mut entries = fs::read_dir(folder).map_err(|source| error("read", folder, source))?;
    Ok(entries.next().is_some())
}

/// Removes everything in the folder, durably.
pub(super) fn clear(folder: &Path) -> Result<(), CheckpointError> {
    let entries = fs::read_dir(folder).map_err(|source| error("read", folder, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| error("read", folder, source))?;
        let path = entry.path();
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        removed.map_err(|source| error("remove", &path, source))?;
    }
    sync(folder).map_err(|source| error("sync", folder, source))
}

/// Removes what sled had not finished.
pub(super) fn remove_unfinished(folder: &Path) -> Result<(), CheckpointError> {
    let entries = fs::read_dir(folder).map_err(|source| error("read", folder, source))?;
    for entry in entries {
        let path = entry
            .map_err(|source| error("read", folder, source))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(UNFINISHED_SUFFIX) {
            tracing::info!(file = %path.display(), "removing an unfinished file of the checkpoint");
            fs::remove_file(&path).map_err(|source| error("remove", &path, source))?;
        }
    }
    Ok(())
}

/// A file beside the folder, there while something is done with the folder that might end the
/// process: whoever finds it at a start must not do the same again.
#[derive(Debug)]
pub(super) struct Marker(PathBuf);

impl Marker {
    pub(super) fn beside(folder: &Path) -> Self {
        let mut name = folder.file_name().unwrap_or_default().to_os_string();
        name.push(MARKER_SUFFIX);
        Self(folder.with_file_name(name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.exists()
    }

    /// Sets it, durably.
    pub(super) fn set(&self) -> Result<(), CheckpointError> {
        File::create(&self.0)
            .and_then(|file| file.sync_all())
            .and_then(|()| sync(parent(&self.0)))
            .map_err(|source| error("write", &self.0, source))
    }

    /// Removes it, durably.
    pub(super) fn remove(&self) -> Result<(), CheckpointError> {
        fs::remove_file(&self.0)
            .and_then(|()| sync(parent(&self.0)))
            .map_err(|source| error("remove", &self.0, source))
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn error(step: &'static str, path: &Path, source: io::Error) -> CheckpointError {
    CheckpointError::Folder {
        step,
        path: path.to_path_buf(),
        source,
    }
}
