//! The operating system's files.

use std::fs::{DirBuilder, File as StdFile, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::fs::{File, FileSystem, FolderHold};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const LOCK_NAME: &str = "LOCK";

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// This file system, in the shape the store takes it.
    #[must_use]
    pub fn shared() -> Arc<dyn FileSystem> {
        Arc::new(Self)
    }
}

impl FileSystem for RealFs {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(
            OpenOptions::new().read(true).write(true).open(path)?,
        ))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(StdFile::open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE);
        Ok(Arc::new(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        // A relative path's parent is "", which is the current folder.
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        self.create_folder(parent)?;
        match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.sync_folder(parent)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        StdFile::open(folder)?.sync_all()
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE);
        let file = options.open(folder.join(LOCK_NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl FolderHold for StdFile {}

impl File for StdFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        Self::sync_all(self)
    }
}
