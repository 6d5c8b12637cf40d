//! Snapshot files as openraft sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use epoch_machine::State;
use epoch_store::RealFs;
use epoch_store::checkpoint::Base;
use epoch_store::snapshot::{self, Chunks, ReadSnapshotError, SnapshotFile, WriteSnapshotError};

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
        let applied = applied_of(&file.meta)?;
        Ok(Self {
            file,
            applied,
            state,
        })
    }

    /// What openraft knows of it.
    pub(crate) fn meta(&self) -> SnapshotMeta {
        openraft_meta(&self.applied, &self.file.meta)
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

/// What of openraft's is kept with a snapshot or a checkpoint.
pub(super) fn applied_of(meta: &snapshot::SnapshotMeta) -> Result<AppliedMeta, postcard::Error> {
    postcard::from_bytes(&meta.opaque)
}

/// The other way round.
pub(super) fn meta_of(applied: &AppliedMeta) -> Result<snapshot::SnapshotMeta, postcard::Error> {
    let last = applied.last_log_id;
    Ok(snapshot::SnapshotMeta {
        index: last.map_or(0, |id| id.index),
        term: last.map_or(0, |id| id.leader_id.term),
        opaque: postcard::to_stdvec(applied)?.into(),
    })
}

fn openraft_meta(applied: &AppliedMeta, meta: &snapshot::SnapshotMeta) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: applied.last_log_id,
        last_membership: applied.membership.clone(),
        snapshot_id: format!("{:020}-{}", meta.index, meta.term),
    }
}

/// The node's snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    stored: snapshot::Snapshots,
    /// Whether a peer needs one that is not there.
    wanted: Arc<AtomicBool>,
}

impl Snapshots {
    pub(crate) fn new(snapshots: snapshot::Snapshots) -> Self {
        Self {
            stored: snapshots,
            wanted: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn open(folder: &std::path::Path) -> Result<Self, snapshot::FolderError> {
        let opened = snapshot::Snapshots::open(RealFs::shared(), folder)?;
        Ok(Self::new(opened))
    }

    /// The newest snapshot, without its state.
    pub(crate) fn newest(&self) -> Option<StoredSnapshot> {
        // Its meta was written by this program and the file's hash fits; if it does not decode
        // all the same, there is none, and the log's purge point refuses the start.
        StoredSnapshot::new(self.stored.newest()?, None).ok()
    }

    /// What a chain of the checkpoint's can begin at.
    pub(super) fn base(&self) -> Option<Base> {
        self.stored.newest().map(|file| Base::from(&file.meta))
    }

    /// Writes a snapshot. Blocks, and calls `pace` between stretches of work.
    pub(crate) fn write(
        &self,
        state: &State,
        applied: AppliedMeta,
        pace: &mut dyn FnMut(),
    ) -> Result<StoredSnapshot, SnapshotError> {
        let begun = crate::clock::boot();
        let written = self.stored.write(state, &meta_of(&applied)?, pace)?;
        tracing::info!(
            index = written.file.meta.index,
            bytes = written.plain_bytes,
            elapsed_ms = u64::try_from(crate::clock::boot().saturating_sub(begun).as_millis()).ok(),
            "snapshot written"
        );
        Ok(StoredSnapshot {
            file: written.file,
            applied,
            state: None,
        })
    }

    /// A peer needs one that is newer than the newest, or whole where that is not.
    pub(crate) fn want_another(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Whether another was wanted since this was asked last.
    pub(super) fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Reads the newest again, from its file. Blocks.
    pub(super) fn verify_newest(&self) -> Result<(), ReadSnapshotError> {
        self.stored.verify_newest()
    }

    /// Begins to take one in.
    pub(crate) fn receive(&self) -> Result<Incoming, SnapshotError> {
        Ok(Incoming(self.stored.receive()?))
    }

    /// The index up to which the log may be purged.
    pub(crate) fn purgeable(&self) -> Option<u64> {
        self.stored.purgeable()
    }
}

/// A snapshot that is arriving. Dropped before its end, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Incoming(snapshot::Incoming);

impl Incoming {
    /// Adds bytes. Blocks.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        Ok(self.0.append(bytes)?)
    }

    /// Checks every byte, and that it is the one announced, and makes it durable. Blocks.
    pub(crate) fn finish(self, announced: &SnapshotMeta) -> Result<StoredSnapshot, SnapshotError> {
        let is_announced = |meta: &snapshot::SnapshotMeta, _: &State| {
            applied_of(meta).is_ok_and(|applied| openraft_meta(&applied, meta) == *announced)
        };
        let (file, state) = self.0.finish(is_announced)?;
        Ok(StoredSnapshot::new(file, Some(state))?)
    }
}
