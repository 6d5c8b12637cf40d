//! Receiving a snapshot from a peer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epoch_machine::State;

use super::error::WriteSnapshotError;
use super::read::load_open;
use super::write::TempFile;
use super::{FILE_BYTES_MAX, SnapshotFile};
use crate::fs::FileSystem;

/// Takes a snapshot's bytes in order. Dropped before [`Receiver::finish`], it leaves nothing.
#[derive(Debug)]
pub struct Receiver {
    temp: TempFile,
    folder: PathBuf,
}

impl Receiver {
    /// Begins a file in `folder`, which is created if missing.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn begin(fs: Arc<dyn FileSystem>, folder: &Path) -> Result<Self, WriteSnapshotError> {
        let temp = TempFile::create(fs, folder).map_err(in_folder(folder))?;
        Ok(Self {
            temp,
            folder: folder.to_path_buf(),
        })
    }

    /// Adds the bytes that come next.
    ///
    /// # Errors
    /// More than [`FILE_BYTES_MAX`], or what the disk reports. The receiver is of no use then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteSnapshotError> {
        let length = self.temp.length().checked_add(bytes.len() as u64);
        if length.is_none_or(|length| length > FILE_BYTES_MAX) {
            return Err(WriteSnapshotError::TooLarge);
        }
        self.temp.write_all(bytes).map_err(in_folder(&self.folder))
    }

    /// Checks all that came, and puts it on the disk under its final name. Nothing that a start
    /// would later stumble on gets there: the rows are put together before, and their state is
    /// returned.
    ///
    /// # Errors
    /// It is not a whole snapshot, or what the disk reports; nothing is left then.
    pub fn finish(self) -> Result<(SnapshotFile, State), WriteSnapshotError> {
        let (state, meta) =
            load_open(Arc::clone(self.temp.file())).map_err(WriteSnapshotError::Received)?;
        let file = self
            .temp
            .keep(&self.folder, &meta)
            .map_err(in_folder(&self.folder))?;
        Ok((file, state))
    }
}

fn in_folder(folder: &Path) -> impl FnOnce(io::Error) -> WriteSnapshotError {
    let folder = folder.to_path_buf();
    |source| WriteSnapshotError::Io { folder, source }
}
