//! Snapshot files as openraft sees them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use epoch_machine::State;
use epoch_store::RealFs;
use epoch_store::snapshot::{
    self, Chunks, KEPT, OpenSnapshotError, ReadSnapshotError, Receiver, SnapshotFile,
    WriteSnapshotError,
};

use super::types::{AppliedMeta, SnapshotMeta};

/// Why a snapshot was not read, written or taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error(transparent)]
    Read(#[from] ReadSnapshotError),
    #[error(transparent)]
    Write(#[from] WriteSnapshotError),
    #[error("the snapshot's log id and membership do not decode")]
    Meta(#[from] postcard::Error),
    #[error("the snapshot is not the one announced")]
    Another,
    #[error("older snapshots cannot be removed")]
    Prune(#[source] std::io::Error),
}

/// A snapshot on the disk, and the state it holds where that is at hand.
#[derive(Debug, Clone)]
pub(crate) struct StoredSnapshot {
    file: SnapshotFile,
    applied: AppliedMeta,
    state: Option<State>,
}

impl StoredSnapshot {
    fn new(file: SnapshotFile, state: Option<State>) -> Result<Self, postcard::Error> {
        let applied = postcard::from_bytes(&file.meta.opaque)?;
        Ok(Self {
            file,
            applied,
            state,
        })
    }

    /// What openraft knows of it.
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.applied.last_log_id,
            last_membership: self.applied.membership.clone(),
            snapshot_id: format!("{:020}-{}", self.file.meta.index, self.file.meta.term),
        }
    }

    /// The state it holds. Blocks.
    pub(crate) fn load(self) -> Result<(State, AppliedMeta), SnapshotError> {
        let state = match self.state {
            Some(state) => state,
            None => snapshot::load(&RealFs, &self.file)?.0,
        };
        Ok((state, self.applied))
    }

    /// Its bytes, to be sent. Blocks.
    pub(crate) fn chunks(&self) -> std::io::Result<Chunks> {
        snapshot::chunks(&RealFs, &self.file)
    }
}

/// The folder of snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    newest: Option<StoredSnapshot>,
    purgeable: Option<u64>,
}

impl Snapshots {
    /// Opens the folder; the newest whole snapshot, if there is any.
    pub(crate) fn open(folder: &Path) -> Result<Self, OpenSnapshotError> {
        let newest = snapshot::open_newest_valid(&RealFs, folder)?;
        // Its meta was written by this program and the file's hash fits; if it does not decode
        // all the same, `newest` stays empty and the log's purge point refuses the start.
        let newest = newest.and_then(|file| StoredSnapshot::new(file, None).ok());
        // What may be purged is found again when the next snapshot is kept.
        let kept = Kept {
            newest,
            purgeable: None,
        };
        Ok(Self {
            folder: folder.to_path_buf(),
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest snapshot, without its state.
    pub(crate) fn newest(&self) -> Option<StoredSnapshot> {
        self.kept().newest.clone()
    }

    /// Writes a snapshot. Blocks.
    pub(crate) fn write(
        &self,
        state: &State,
        applied: AppliedMeta,
    ) -> Result<StoredSnapshot, SnapshotError> {
        let last = applied.last_log_id;
        let meta = snapshot::SnapshotMeta {
            index: last.map_or(0, |id| id.index),
            term: last.map_or(0, |id| id.leader_id.term),
            opaque: Bytes::from(postcard::to_stdvec(&applied)?),
        };
        let fs: Arc<dyn epoch_store::FileSystem> = Arc::new(RealFs);
        let file = snapshot::write(&fs, &self.folder, state, &meta)?;
        self.keep(StoredSnapshot {
            file,
            applied,
            state: None,
        })
    }

    /// Begins to take one in.
    pub(crate) fn receive(&self) -> Result<Incoming, SnapshotError> {
        let receiver = Receiver::begin(Arc::new(RealFs), &self.folder)?;
        Ok(Incoming {
            receiver,
            snapshots: self.clone(),
        })
    }

    /// The index up to which the log may be purged: the older of the two snapshots kept, so that
    /// a damaged newer one can be done without.
    pub(crate) fn purgeable(&self) -> Option<u64> {
        self.kept().purgeable
    }

    /// A slow build never replaces a newer one that was taken in meanwhile. Blocks: what is kept
    /// is read and checked whole.
    fn keep(&self, stored: StoredSnapshot) -> Result<StoredSnapshot, SnapshotError> {
        let whole = snapshot::prune(&RealFs, &self.folder, KEPT).map_err(SnapshotError::Prune)?;
        let mut kept = self.kept();
        let later = kept
            .newest
            .as_ref()
            .is_none_or(|known| known.applied.last_log_id <= stored.applied.last_log_id);
        if later {
            kept.newest = Some(StoredSnapshot {
                state: None,
                ..stored.clone()
            });
        }
        if let (true, Some(older)) = (whole.len() >= KEPT, whole.last()) {
            kept.purgeable = kept.purgeable.max(Some(older.meta.index));
        }
        drop(kept);
        Ok(stored)
    }
}

/// A snapshot that is arriving. Dropped before its end, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Incoming {
    receiver: Receiver,
    snapshots: Snapshots,
}

impl Incoming {
    /// Adds bytes. Blocks.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        Ok(self.receiver.append(bytes)?)
    }

    /// Checks every byte and makes it durable. Blocks.
    pub(crate) fn finish(self, announced: &SnapshotMeta) -> Result<StoredSnapshot, SnapshotError> {
        let (file, state) = self.receiver.finish()?;
        let stored = StoredSnapshot::new(file, Some(state))?;
        if stored.meta() != *announced {
            return Err(SnapshotError::Another);
        }
        self.snapshots.keep(stored)
    }
}
