//! The snapshots of one node: which are kept, which is the newest, and what the log may lose.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoch_core::error_chain;
use epoch_machine::State;

use super::error::{FolderError, ReadSnapshotError, WriteSnapshotError};
use super::read::verify;
use super::write::{Written, write};
use super::{Incoming, SnapshotFile, SnapshotMeta, folder};
use crate::fs::FileSystem;

/// How many snapshots are kept, so that one that has gone bad costs nothing: the log is purged
/// only below the older.
pub const KEPT: usize = 2;

/// A node's folder of snapshots. Clones are the same one. Calls that write, receive or open block.
#[derive(Clone, Debug)]
pub struct Snapshots {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fs: Arc<dyn FileSystem>,
    folder: PathBuf,
    damaged: Vec<ReadSnapshotError>,
    kept: Mutex<Kept>,
    /// Held while the folder is looked through: a build and a peer's snapshot can end together.
    tidying: Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Those that were whole when last read, newest first.
    whole: Vec<SnapshotFile>,
    purgeable: Option<u64>,
}

impl Kept {
    fn update(&mut self, whole: Vec<SnapshotFile>) {
        if let Some(older) = whole.get(KEPT - 1) {
            self.purgeable = self.purgeable.max(Some(older.meta.index));
        }
        self.whole = whole;
    }
}

impl Snapshots {
    /// Opens the folder; a missing one has no snapshots. Every file is read once for its hash.
    /// Damaged ones are named in the log and in [`Snapshots::damaged`], and left where they are.
    /// Files that were never finished are removed: nothing may be written there meanwhile.
    ///
    /// # Errors
    /// What the disk reports while listing or removing.
    pub fn open(fs: Arc<dyn FileSystem>, folder: &Path) -> Result<Self, FolderError> {
        let in_folder = in_folder(folder);
        folder::remove_temp_files(fs.as_ref(), folder).map_err(&in_folder)?;
        let names = folder::newest_first(fs.as_ref(), folder).map_err(&in_folder)?;
        if !names.is_empty() {
            // The process before this one may have died between a rename and this sync, and the
            // log must not be purged below a snapshot that a power failure takes away.
            fs.sync_folder(folder).map_err(&in_folder)?;
        }
        let (whole, damaged) = read_all(fs.as_ref(), folder, &names, usize::MAX);
        let mut kept = Kept::default();
        kept.update(whole);
        let shared = Shared {
            fs,
            folder: folder.to_path_buf(),
            damaged,
            kept: Mutex::new(kept),
            tidying: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// What was wrong with the files that were damaged at opening, newest first. That all are is
    /// no error by itself: where the log was never purged, it still holds everything.
    #[must_use]
    pub fn damaged(&self) -> &[ReadSnapshotError] {
        &self.shared.damaged
    }

    /// The newest whole snapshot.
    #[must_use]
    pub fn newest(&self) -> Option<SnapshotFile> {
        self.kept().whole.first().cloned()
    }

    /// Those that were whole when they were last read, newest first.
    #[must_use]
    pub fn whole(&self) -> Vec<SnapshotFile> {
        self.kept().whole.clone()
    }

    /// The index up to which the log may be purged: that of the second newest whole snapshot, so
    /// that a newest one that goes bad can be done without. Never falls.
    #[must_use]
    pub fn purgeable(&self) -> Option<u64> {
        self.kept().purgeable
    }

    /// Writes a snapshot as [`write()`] does, and removes older ones. When a newer one was received meanwhile, that one stays the newest, and
    /// this one may be gone again.
    ///
    /// # Errors
    /// As [`write()`]; or the older ones cannot be removed.
    pub fn write(
        &self,
        state: &State,
        meta: &SnapshotMeta,
        pace: &mut dyn FnMut(),
    ) -> Result<Written, WriteSnapshotError> {
        let Shared { fs, folder, .. } = self.shared.as_ref();
        let written = write(fs, folder, state, meta, pace)?;
        self.tidy()?;
        Ok(written)
    }

    /// Begins to take in a peer's snapshot.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn receive(&self) -> Result<Incoming, WriteSnapshotError> {
        Incoming::begin(self.clone())
    }

    /// Reads the newest again, from its file. One that has gone bad stays the newest until another
    /// is written: who has been told of it must not be told of an older one.
    ///
    /// # Errors
    /// It has gone bad.
    pub fn verify_newest(&self) -> Result<(), ReadSnapshotError> {
        match self.newest() {
            Some(newest) => verify(self.shared.fs.as_ref(), &newest.path).map(drop),
            None => Ok(()),
        }
    }

    /// Keeps the newest [`KEPT`] whole snapshots and removes all others. While there are not that
    /// many whole ones, nothing is removed: a damaged file must never push out a good one. Each
    /// is read whole: what was written long ago may have gone bad since.
    pub(super) fn tidy(&self) -> Result<(), FolderError> {
        let Shared { fs, folder, .. } = self.shared.as_ref();
        let fs = fs.as_ref();
        let in_folder = in_folder(folder);
        let _one_at_a_time = self.shared.tidying.lock();
        let names = folder::newest_first(fs, folder).map_err(&in_folder)?;
        let (whole, _) = read_all(fs, folder, &names, KEPT);
        let enough = whole.len() == KEPT;
        let kept: Vec<_> = whole.iter().map(|file| file.path.clone()).collect();
        self.kept().update(whole);
        if !enough {
            return Ok(());
        }
        let mut others: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        others.retain(|path| !kept.contains(path));
        if others.is_empty() {
            return Ok(());
        }
        others
            .iter()
            .try_for_each(|path| fs.remove(path))
            .and_then(|()| fs.sync_folder(folder))
            .map_err(in_folder)
    }

    pub(super) fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.shared.fs
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.shared.folder
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.shared
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads files until `enough` are found whole.
fn read_all(
    fs: &dyn FileSystem,
    folder: &Path,
    names: &[String],
    enough: usize,
) -> (Vec<SnapshotFile>, Vec<ReadSnapshotError>) {
    let mut whole = Vec::new();
    let mut damaged = Vec::new();
    for path in names.iter().map(|name| folder.join(name)) {
        if whole.len() == enough {
            break;
        }
        match verify(fs, &path) {
            Ok(meta) => whole.push(SnapshotFile { path, meta }),
            Err(error) => {
                tracing::error!(
                    snapshot = %error.path.display(),
                    error = error_chain(&error.source),
                    "damaged snapshot"
                );
                damaged.push(error);
            }
        }
    }
    (whole, damaged)
}

fn in_folder(folder: &Path) -> impl Fn(std::io::Error) -> FolderError {
    let folder = folder.to_path_buf();
    move |source| FolderError {
        folder: folder.clone(),
        source,
    }
}
