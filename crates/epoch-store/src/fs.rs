//! The seam between what is stored and the disk.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The file operations the store needs, and no others.
///
/// Nothing is durable until the call that says so returns: [`File::sync_data`] or
/// [`File::sync_all`] for contents, [`FileSystem::sync_folder`] for names. Files are readable and
/// writable by their owner only, since the log holds what sessions must keep secret.
pub trait FileSystem: Debug + Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none; otherwise what the disk reports.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading only, which a disk mounted read-only allows.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    /// Creates an empty file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken; otherwise what the disk reports.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name in the same folder, in one step; a file already there is replaced.
    ///
    /// # Errors
    /// What the disk reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Handles already open stay readable.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none; otherwise what the disk reports.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a folder, in byte order. Names that are not UTF-8 are left out:
    /// the store never makes one.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such folder; otherwise what the disk reports.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder and any missing parents, durably. One that is there already is fine.
    ///
    /// # Errors
    /// What the disk reports.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in a folder durable.
    ///
    /// # Errors
    /// What the disk reports.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Takes an existing folder for this process alone, until the returned value is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody else holds it; otherwise what the disk reports.
    fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>>;
}

/// An open file. All calls may be made from several threads at once.
pub trait File: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes from `offset`; fewer, and at last 0, at the file's end.
    ///
    /// # Errors
    /// What the disk reports.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file as needed.
    ///
    /// # Errors
    /// What the disk reports; any part of `bytes` may then have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the disk reports.
    fn size(&self) -> io::Result<u64>;

    /// Makes the contents, and the length needed to read them back, durable.
    ///
    /// # Errors
    /// What the disk reports. What was written may then be lost although it can still be read.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes contents and all attributes durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
}

/// What [`FileSystem::lock_folder`] returns: dropping it lets the folder go.
pub trait FolderHold: Debug + Send + Sync {}

/// Fills `buffer` from `offset`.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the file ends first; otherwise what the disk reports.
pub(crate) fn read_exact_at(file: &dyn File, mut buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut offset = offset;
    while !buffer.is_empty() {
        let count = file.read_at(buffer, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += count as u64;
        buffer = buffer.get_mut(count..).unwrap_or_default();
    }
    Ok(())
}
