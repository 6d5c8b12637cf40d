//! One process at a time in a data folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::fs::{FileSystem, FolderHold};

/// Holds a folder for this process until dropped. The operating system lets it go when the process
/// ends, however it ends, so a stale lock needs no cleaning up.
#[derive(Debug)]
pub struct FolderLock {
    _hold: Box<dyn FolderHold>,
}

/// Why a folder could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another part of this one, holds it.
    #[error("{} is in use by another process: stop it, or choose another folder", .0.display())]
    Held(PathBuf),
    /// The folder could not be made or opened.
    #[error("cannot lock {}: check that the folder exists and is writable", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
}

impl FolderLock {
    /// Takes `folder`, which is created if missing.
    ///
    /// # Errors
    /// [`LockError::Held`] at once, without waiting, if it is taken.
    pub fn acquire(fs: &dyn FileSystem, folder: &Path) -> Result<Self, LockError> {
        fs.create_folder(folder)
            .and_then(|()| fs.lock_folder(folder))
            .map(|hold| Self { _hold: hold })
            .map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => LockError::Held(folder.to_path_buf()),
                _ => LockError::Io {
                    path: folder.to_path_buf(),
                    source,
                },
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFs;

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = FolderLock::acquire(&RealFs, &path).unwrap();
        let refused = FolderLock::acquire(&RealFs, &path).unwrap_err();
        assert!(
            matches!(&refused, LockError::Held(held) if *held == path),
            "{refused}"
        );
        drop(first);
        FolderLock::acquire(&RealFs, &path).unwrap();
    }
}
