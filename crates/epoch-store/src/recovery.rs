//! Starting: the newest state there is, and whether the log goes on from it.
//!
//! # Promises
//!
//! - The state is the newest of the whole snapshots and of the checkpoint with the snapshot it
//!   goes on from, checked in full, or the fresh one when there is none.
//! - A state below the log's purge point is never started from: entries between the two are gone,
//!   so the log does not make up for it. Such a start is [`Recovery::Short`], and says by how much.
//! - Nothing is removed but a checkpoint that is of no use.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use epoch_core::error_chain;
use epoch_machine::State;

use crate::checkpoint::{Base, Checkpoint, CheckpointError, same_owner};
use crate::fs::FileSystem;
use crate::log::{Log, LogOptions, OpenError};
use crate::snapshot::{self, FolderError, SnapshotFile, SnapshotMeta, Snapshots};

const LOG: &str = "log";
const SNAPSHOTS: &str = "snapshots";

/// Where a node keeps what it knows.
#[derive(Clone, Debug)]
pub struct Places {
    /// The disk of log and snapshots.
    pub fs: Arc<dyn FileSystem>,
    /// Their folder: they are in `log` and `snapshots` in it.
    pub folder: PathBuf,
    /// The checkpoint's folder, which is always the operating system's: sled knows no other disk.
    pub checkpoint: PathBuf,
}

impl Places {
    /// All in one folder on the operating system's disk, the checkpoint in `checkpoint`.
    #[must_use]
    pub fn real(folder: &Path) -> Self {
        Self {
            fs: crate::RealFs::shared(),
            folder: folder.to_path_buf(),
            checkpoint: folder.join("checkpoint"),
        }
    }
}

/// What a start found.
#[derive(Debug)]
pub enum Recovery {
    /// A state from which the log goes on.
    Whole(Box<Recovered>),
    /// No such state.
    Short(Short),
}

/// A state from which the log goes on, and everything opened.
#[derive(Debug)]
pub struct Recovered {
    /// The log. Its entries after the state are to be applied once they are known to be
    /// committed. It may end before the state: a snapshot was received, and the process ended
    /// before the log was purged.
    pub log: Log,
    /// The snapshots.
    pub snapshots: Snapshots,
    /// The checkpoint. It goes on with its chain if the state is its own.
    pub checkpoint: Checkpoint,
    /// The state.
    pub state: State,
    /// Which state it is; `None` for the fresh one, before the first entry.
    pub meta: Option<SnapshotMeta>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// There was none.
    Fresh,
    /// The checkpoint, with the snapshot it goes on from.
    Checkpoint,
    /// A snapshot.
    Snapshot,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh => "none: the log from its beginning",
            Self::Checkpoint => "checkpoint",
            Self::Snapshot => "snapshot",
        })
    }
}

/// The newest state is below the log's purge point: there was one that is now damaged or gone. A
/// snapshot of a peer's at [`Short::purged`] or above is needed; once [`Snapshots::receive`] has
/// taken it in, [`recover`] finds it. The log is not held open meanwhile.
#[derive(Debug)]
pub struct Short {
    /// The snapshots. [`Snapshots::damaged`] says what is wrong with them.
    pub snapshots: Snapshots,
    /// Index of the newest state; `None` when there is none at all.
    pub index: Option<u64>,
    /// Up to where entries are gone.
    pub purged: u64,
}

impl Short {
    /// How many entries are missing between the newest state and the log.
    #[must_use]
    pub fn missing(&self) -> u64 {
        match self.index {
            Some(index) => self.purged.saturating_sub(index),
            None => self.purged.saturating_add(1),
        }
    }
}

/// Why a start failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The log.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The folder of snapshots.
    #[error(transparent)]
    Snapshots(#[from] FolderError),
    /// The checkpoint cannot be emptied either.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A snapshot of another cluster.
    #[error(
        "{} is of another cluster, incarnation or group than this node: was the data folder \
         mixed up with another one?", .0.display()
    )]
    Foreign(PathBuf),
}

/// Opens all that is stored, and finds the newest state. `fresh` is the state before the first
/// entry; a state of another cluster, incarnation or group than its is not started from.
///
/// # Errors
/// [`RecoverError`]. Damage to checkpoint or snapshots is none: they are done without, as far as
/// the others and the log go.
pub fn recover(
    places: &Places,
    log_options: LogOptions,
    fresh: State,
) -> Result<Recovery, RecoverError> {
    let Places {
        fs,
        folder,
        checkpoint,
    } = places;
    let log = Log::open(Arc::clone(fs), &folder.join(LOG), log_options)?;
    let snapshots = Snapshots::open(Arc::clone(fs), &folder.join(SNAPSHOTS))?;
    let (mut checkpoint, _) = Checkpoint::open(checkpoint, &fresh)?;
    let found = newest_state(fs.as_ref(), &snapshots, &mut checkpoint, &fresh)?;
    let (state, meta, source) = match found {
        Some((state, meta, source)) => (state, Some(meta), source),
        None => (fresh, None, Source::Fresh),
    };
    let index = meta.as_ref().map(|meta| meta.index);
    let purged = log.purged().map(|purged| purged.index);
    let last = log.last_index();
    tracing::info!(from = %source, index, purged, last, "newest state on the disk");
    match purged {
        // No state at all is below index 0.
        Some(purged) if index < Some(purged) => Ok(Recovery::Short(Short {
            snapshots,
            index,
            purged,
        })),
        Some(_) | None => Ok(Recovery::Whole(Box::new(Recovered {
            log,
            snapshots,
            checkpoint,
            state,
            meta,
            source,
        }))),
    }
}

/// The newest state that can be loaded. Where the checkpoint is newer than every snapshot, its base
/// is the only one that is read.
fn newest_state(
    fs: &dyn FileSystem,
    snapshots: &Snapshots,
    checkpoint: &mut Checkpoint,
    fresh: &State,
) -> Result<Option<(State, SnapshotMeta, Source)>, RecoverError> {
    let whole = snapshots.whole();
    for file in &whole {
        let newer = checkpoint
            .chain()
            .filter(|chain| chain.index > file.meta.index);
        if newer.is_some()
            && let Some((state, meta)) = load_checkpoint(fs, &whole, checkpoint)?
        {
            return Ok(Some((state, meta, Source::Checkpoint)));
        }
        match snapshot::load(fs, file) {
            Ok((state, _)) if !same_owner(&state.head(), &fresh.head()) => {
                return Err(RecoverError::Foreign(file.path.clone()));
            }
            Ok((state, meta)) => return Ok(Some((state, meta, Source::Snapshot))),
            // Its hash fits: it was written wrong, or the disk has just failed.
            Err(error) => tracing::error!(
                snapshot = %file.path.display(),
                error = error_chain(&error.source),
                "a snapshot cannot be loaded"
            ),
        }
    }
    let loaded = load_checkpoint(fs, &whole, checkpoint)?;
    Ok(loaded.map(|(state, meta)| (state, meta, Source::Checkpoint)))
}

/// The checkpoint's state. One that does not load is removed.
fn load_checkpoint(
    fs: &dyn FileSystem,
    whole: &[SnapshotFile],
    checkpoint: &mut Checkpoint,
) -> Result<Option<(State, SnapshotMeta)>, CheckpointError> {
    let base = checkpoint.chain().and_then(|chain| chain.base);
    let base = whole
        .iter()
        .find(|file| Some(Base::from(&file.meta)) == base);
    // Why it is of no use is in the log.
    Ok(checkpoint.load(fs, base)?.unwrap_or_default())
}
