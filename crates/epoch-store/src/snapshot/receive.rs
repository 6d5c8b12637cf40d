//! Receiving a snapshot from a peer.

use std::io;
use std::sync::Arc;

use epoch_machine::State;

use super::error::WriteSnapshotError;
use super::read::load_open;
use super::temp_file::TempFile;
use super::{FILE_BYTES_MAX, SnapshotFile, SnapshotMeta, Snapshots};

/// A snapshot that is arriving: takes its bytes in order. Dropped before [`Incoming::finish`], it
/// leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    temp: TempFile,
    snapshots: Snapshots,
}

impl Incoming {
    pub(super) fn begin(snapshots: Snapshots) -> Result<Self, WriteSnapshotError> {
        let fs = Arc::clone(snapshots.fs());
        let temp = TempFile::create(fs, snapshots.folder()).map_err(in_folder(&snapshots))?;
        Ok(Self { temp, snapshots })
    }

    /// Adds the bytes that come next; each MiB is synced, so that no long sync comes at the end.
    ///
    /// # Errors
    /// More than [`FILE_BYTES_MAX`], or what the disk reports. It is of no use then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteSnapshotError> {
        let length = self.temp.length().checked_add(bytes.len() as u64);
        if length.is_none_or(|length| length > FILE_BYTES_MAX) {
            return Err(WriteSnapshotError::TooLarge);
        }
        self.temp
            .append(bytes)
            .map(drop)
            .map_err(in_folder(&self.snapshots))
    }

    /// Checks all that came, asks whether it is what was announced, puts it on the disk under its
    /// final name, and removes older snapshots. Nothing that a start would later stumble on gets
    /// there: the rows are put together before, and their state is returned.
    ///
    /// # Errors
    /// It is not a whole snapshot or not `announced`, or what the disk reports while writing:
    /// nothing is left then. Or the older ones cannot be removed.
    pub fn finish(
        self,
        announced: impl FnOnce(&SnapshotMeta, &State) -> bool,
    ) -> Result<(SnapshotFile, State), WriteSnapshotError> {
        let (state, meta) =
            load_open(Arc::clone(self.temp.file())).map_err(WriteSnapshotError::Received)?;
        if !announced(&meta, &state) {
            return Err(WriteSnapshotError::Another);
        }
        let file = self
            .temp
            .keep(self.snapshots.folder(), &meta)
            .map_err(in_folder(&self.snapshots))?;
        self.snapshots.tidy()?;
        Ok((file, state))
    }
}

fn in_folder(snapshots: &Snapshots) -> impl FnOnce(io::Error) -> WriteSnapshotError {
    let folder = snapshots.folder().to_path_buf();
    |source| WriteSnapshotError::Io { folder, source }
}
