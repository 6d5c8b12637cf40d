//! A snapshot file while it is being written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SnapshotFile, SnapshotMeta, folder};
use crate::fs::{File, FileSystem};

/// Bytes after which the file is synced, so that none of its syncs keeps the disk from the log for
/// long.
const SYNC_BYTES: u64 = 1 << 20;
const TEMP_FILES_MAX: u32 = 1_000;

/// A file without its final name; removed when dropped before it has one.
#[derive(Debug)]
pub(super) struct TempFile {
    fs: Arc<dyn FileSystem>,
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
    unsynced: u64,
    kept: bool,
}

impl TempFile {
    /// Takes a name that nobody has: a snapshot can be written while another is received.
    pub(super) fn create(fs: Arc<dyn FileSystem>, folder: &Path) -> io::Result<Self> {
        fs.create_folder(folder)?;
        for number in 0..TEMP_FILES_MAX {
            let path = folder.join(folder::temp_name(number));
            match fs.create(&path) {
                Ok(file) => {
                    return Ok(Self {
                        fs,
                        file,
                        path,
                        length: 0,
                        unsynced: 0,
                        kept: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Adds bytes at the end; tells whether the file was synced, as it is after each
    /// [`SYNC_BYTES`].
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.file.write_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        let due = self.unsynced >= SYNC_BYTES;
        if due {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(due)
    }

    /// Makes it durable under its final name.
    pub(super) fn keep(mut self, folder: &Path, meta: &SnapshotMeta) -> io::Result<SnapshotFile> {
        let path = folder.join(folder::file_name(meta.index, meta.term));
        self.file.sync_all()?;
        self.fs.rename(&self.path, &path)?;
        self.kept = true;
        self.fs.sync_folder(folder)?;
        Ok(SnapshotFile {
            path,
            meta: meta.clone(),
        })
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.fs.remove(&self.path)
        {
            // The next start removes it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a temporary file");
        }
    }
}
