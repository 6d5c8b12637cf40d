//! A simulated disk whose files are synced by the test.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::SimFs;
use crate::fs::{File, FileSystem, FolderHold};

type Sync = Arc<dyn Fn(&Arc<dyn File>) -> io::Result<()> + Send + std::marker::Sync>;

/// Calls a function in place of each `sync_data`.
pub(super) struct SyncedBy {
    fs: SimFs,
    sync: Sync,
}

struct SyncedFile {
    file: Arc<dyn File>,
    sync: Sync,
}

impl SyncedBy {
    pub(super) fn over(
        fs: SimFs,
        sync: impl Fn(&Arc<dyn File>) -> io::Result<()> + Send + std::marker::Sync + 'static,
    ) -> Arc<dyn FileSystem> {
        let sync = Arc::new(sync);
        Arc::new(Self { fs, sync })
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        let sync = Arc::clone(&self.sync);
        Arc::new(SyncedFile { file, sync })
    }
}

impl fmt::Debug for SyncedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncedBy")
    }
}

impl fmt::Debug for SyncedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncedFile")
    }
}

impl FileSystem for SyncedBy {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.fs.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.fs.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.fs.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.fs.create_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.fs.sync_folder(folder)
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>> {
        self.fs.lock_folder(folder)
    }
}

impl File for SyncedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.sync)(&self.file)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
