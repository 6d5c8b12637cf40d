//! A file system in memory, for tests: it loses at a crash what a disk may lose.
//!
//! # What is durable
//!
//! - A file's contents are durable once [`File::sync_data`] or [`File::sync_all`] returned. At a
//!   power failure each sector of 512 bytes of each unsynced write is kept or lost on its own, so
//!   writes are torn and reordered; so is each growth of the file. A sector that is kept is
//!   kept as the whole file looked after that write. Lost sectors are what they were before, or
//!   zero if the file has grown.
//! - A name (create, rename, remove) is durable once [`FileSystem::sync_folder`] returned. At a
//!   power failure a random number of the oldest unsynced changes in a folder survives, as in a
//!   journal. A rename is one change: it survives whole or not at all. It says nothing about the
//!   contents: a renamed file that was not synced may be empty.
//! - Folders are durable as soon as they are made.
//! - A failed sync leaves each of the file's unsynced sectors either durable or never to become so,
//!   as Linux does: they can still be read, and a later sync succeeds without them. Only writing
//!   them once more helps.
//!
//! # What can be made to happen
//!
//! Operations that change something (create, rename, remove, write, sync, folder sync, making a
//! folder) are counted from 1. The n-th can be made to fail ([`SimFs::fail_at`]) or
//! to be the process's last ([`SimFs::crash_at`]). [`SimFs::restart`] is the power failure. Every
//! random choice comes from the seeds given, so a run repeats exactly.

mod disk;
mod faults;
mod file;
mod random;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::faults::{Fault, Repeat};
pub use self::random::SplitMix;

use self::disk::Disk;
use self::faults::Verdict;
use self::file::Contents;
use crate::fs::{File, FileSystem, FolderHold};

/// The file system. Clones are the same one. Handles from before a restart fail in every call.
#[derive(Clone, Debug)]
pub struct SimFs {
    disk: Arc<Mutex<Disk>>,
}

impl SimFs {
    /// An empty one. The seed decides how much of a failed write is written.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(Disk::new(seed))
    }

    fn with(disk: Disk) -> Self {
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// This file system, in the shape the store takes it.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// How many operations that change something were begun.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk().faults.operations
    }

    /// Fails the `count`-th changing operation from now, 1 being the next. A failed write has
    /// written any part of its bytes. A later call takes the place of this one.
    pub fn fail_at(&self, count: u64, fault: Fault, repeat: Repeat) {
        self.disk().faults.fail_at(count, fault, repeat);
    }

    /// Ends the process at the `count`-th changing operation from now, 1 being the next: that
    /// operation is done, in part if it is a write, or not done, and it and every later call
    /// fails, reads included. A later call takes the place of this one.
    pub fn crash_at(&self, count: u64) {
        self.disk().faults.crash_at(count);
    }

    /// Whether the process has ended, by [`Self::crash_at`] or a restart.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.disk().faults.is_dead
    }

    /// A disk that lies: from now on each `every`-th sync, of a file or a folder, does nothing and
    /// reports success. 0 for an honest one. Stays so through restarts.
    pub fn skip_syncs(&self, every: u64) {
        self.disk().faults.skip_syncs(every);
    }

    /// Power failure and restart: the file system as the next process finds it. `seed` decides what
    /// of the unsynced is lost: from one disk, several seeds give several outcomes. The process
    /// before, if it was not dead, is from now on. Plans to fail or crash are forgotten.
    #[must_use]
    pub fn restart(&self, seed: u64) -> Self {
        Self::with(self.disk().after_power_failure(seed))
    }

    /// As [`Self::restart`], but the power stayed on: the operating system still has all that was
    /// written, unsynced as before, and hands it on: `self` has no files any more.
    #[must_use]
    pub fn restart_process(&self) -> Self {
        Self::with(self.disk().after_process_end())
    }

    /// All files, in order of their paths.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.disk().paths()
    }

    /// The whole of a file as a process reads it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.disk().find(path)?.lock().live().to_vec())
    }

    /// Damages a file: puts `bytes` at `offset`, on the disk and in memory, growing it as needed.
    /// As the next three, this is not an operation of the process: it is not counted and does not
    /// fail by plan. Unsynced changes of the file are synced first.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let contents = self.disk().find(path)?;
        let mut contents = contents.lock();
        contents.write(offset, bytes)?;
        contents.sync();
        Ok(())
    }

    /// Damages a file: cuts it, or grows it with zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]
    pub fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.disk().find(path)?.lock().resize(length)
    }

    /// Damages a folder: puts a file with these contents into it, in place of one of that name.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such folder.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut contents = Contents::default();
        contents.write(0, bytes)?;
        contents.sync();
        self.disk().put(path, contents)
    }

    /// Damages a folder: takes a file away.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]
    pub fn lose(&self, path: &Path) -> io::Result<()> {
        self.disk().lose(path)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileSystem for SimFs {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let disk = self.disk();
        disk.faults.check_alive()?;
        Ok(Arc::new(SimFile {
            disk: Arc::clone(&self.disk),
            contents: disk.find(path)?,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let contents = self.disk().change(|disk| disk.create(path))?;
        Ok(Arc::new(SimFile {
            disk: Arc::clone(&self.disk),
            contents,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().change(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().change(|disk| disk.remove(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk();
        disk.faults.check_alive()?;
        Ok(disk.folder(folder)?.names())
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.faults.check_alive()?;
        if disk.folder(folder).is_ok() {
            return Ok(());
        }
        disk.change(|disk| {
            disk.create_folder(folder);
            Ok(())
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk().change(|disk| {
            if disk.faults.lie() {
                return Ok(());
            }
            disk.folder_mut(folder)?.sync();
            Ok(())
        })
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>> {
        let mut disk = self.disk();
        disk.faults.check_alive()?;
        if std::mem::replace(&mut disk.folder_mut(folder)?.is_held, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimHold {
            disk: Arc::clone(&self.disk),
            folder: folder.to_path_buf(),
        }))
    }
}

#[derive(Debug)]
struct SimHold {
    disk: Arc<Mutex<Disk>>,
    folder: PathBuf,
}

impl FolderHold for SimHold {}

impl Drop for SimHold {
    fn drop(&mut self) {
        // After a restart the folder is another disk's, and this one has none.
        if let Ok(folder) = lock(&self.disk).folder_mut(&self.folder) {
            folder.is_held = false;
        }
    }
}

struct SimFile {
    disk: Arc<Mutex<Disk>>,
    contents: disk::Shared,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimFile")
    }
}

impl SimFile {
    fn sync(&self) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        let mut contents = self.contents.lock();
        match disk.faults.next()? {
            Verdict::Go if disk.faults.lie() => Ok(()),
            Verdict::Go => {
                contents.sync();
                Ok(())
            }
            Verdict::Fail(error) => {
                contents.settle(&mut disk.random);
                Err(error)
            }
            Verdict::Die(error) => {
                if disk.random.coin() {
                    contents.sync();
                }
                Err(error)
            }
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        lock(&self.disk).faults.check_alive()?;
        Ok(self.contents.lock().read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = lock(&self.disk);
        let mut contents = self.contents.lock();
        match disk.faults.next()? {
            Verdict::Go => contents.write(offset, bytes),
            Verdict::Fail(error) | Verdict::Die(error) => {
                let part = disk.random.up_to(bytes.len());
                contents.write(offset, bytes.get(..part).unwrap_or_default())?;
                Err(error)
            }
        }
    }

    fn size(&self) -> io::Result<u64> {
        lock(&self.disk).faults.check_alive()?;
        Ok(self.contents.lock().live().len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
}
