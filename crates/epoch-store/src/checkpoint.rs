//! The checkpoint: which rows have changed since a snapshot. A start loads that snapshot with the
//! changed rows laid over it, and applies only what the log has after them. It makes starts fast,
//! and is never the only copy: snapshots and the log are.
//!
//! # Promises
//!
//! - What is loaded is a state that was saved: it has the hash that its head names.
//! - A table that is damaged, half written, of another cluster or of a snapshot that is gone is
//!   named in the log and removed; the node starts from a snapshot.
//! - Trouble inside the table's code (panics, hangs) ends neither the start nor the process, as
//!   long as the process's panic hook asks [`contains_panic`]. Where it ends the process all the
//!   same, the next start finds the marker `<folder>.opening`, and removes the table unread.
//! - Once a save has returned, it survives a power failure. During a save a power failure may
//!   cost the whole checkpoint: the table reuses space that it has handed to the disk, but not
//!   waited for.
//! - Saves on top of a table whose file was damaged before may be lost again: sled can take damage
//!   for the end of its file, go on from there, and come upon what was behind it at a later start.
//!   What is loaded then is an older state that was saved, or none. This lasts until the next
//!   chain at most, since the first chain that a process begins gets a new table.
//!
//! # Chains
//!
//! A chain begins at a snapshot, its base, or at the fresh state before the first entry, and each
//! save adds to it what has changed since the one before. The next snapshot begins another chain.
//! So a table holds what the log has changed between two snapshots at most, and the last of it
//! wins for each row.
//!
//! A table with every row under a key of its own would need no base. With sled and 1M rows of held
//! scopes that was measured, on one machine: 660 MiB to 3 GiB resident, 640 to 750 MB of file for
//! 150 MB of rows, 10 s to write and 4 s to load it, where a snapshot loads in 0.7 s. Large values
//! under keys that only rise, removed again now and then, cost 15 to 35 MiB resident for good,
//! about twice their length on the disk, and 0.5 s for 100 MB.
//!
//! # Table
//!
//! One tree of sled, in a folder that only sled writes in.
//!
//! | key | value |
//! | --- | --- |
//! | 0 | the head |
//! | 1, number (8, big-endian) | a chunk: the changed rows of one save, or some of them |
//!
//! A chunk has about 2 KiB, or one item of at most 6 KiB: a leaf of sled has up to 16 values, and
//! from 128 KiB on sled would keep it in a file of its own, which it never syncs; a leaf or two of
//! each of its 256 cache shards stay in memory whatever the cache may hold. It is a sequence of
//! items, each with its length (2, little-endian) before it:
//!
//! | first byte | what |
//! | --- | --- |
//! | 0 | a row, as a row of a snapshot |
//! | 1 | the key of a session that is gone: log index (8), offset (4) |
//! | 2 | the name of a scope that is gone |
//! | 3 | the key of a spent request id that is gone: log index (8), offset (4), request id (8) |
//! | 4 | the key of a wait that is gone: name of the scope, 0 (1), log index (8), offset (4) |
//! | 5 | the name of the scope whose record is gone |
//! | 6 | the key of a rare row that is gone: its kind (1), then of a signing key (1) node (8) and key (32), of a permission (2) principal, 0 (1) and prefix, of a token (3) its hash (32), of limits (4) the principal, of an audit record (5) its number (8) |
//!
//! Numbers in keys are big-endian, so that keys are ordered as rows are in a snapshot. The head, numbers little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | magic `EPOCHCKP` |
//! | 4 | format version, 1 |
//! | 1 | 1 when the base is a snapshot, 0 when it is the fresh state |
//! | 8 | the index of the base, or 0 |
//! | 8 | its term, or 0 |
//! | 8 | index of the last entry applied |
//! | 8 | its term |
//! | 4 | length of the opaque part |
//! | | the opaque part |
//! | | the head of a snapshot: it counts the rows and has the state's hash |
//! | 8 | number of the first chunk |
//! | 8 | how many chunks there are |
//!
//! The head is written with the last chunks of a save, in one batch. Chunks that it does not count
//! are what is left of a save that was cut off, and removed by the next one. Numbers rise over all
//! chains of a table: no chunk is ever taken for one of another chain.

mod changed;
mod chunk;
mod contained;
mod error;
mod folder;
mod head;
mod key;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use epoch_core::error_chain;
use epoch_machine::{Changes, State};

pub use self::contained::contains_panic;
pub use self::error::{CheckpointError, ChunkError, OffReason, TableError, Unusable};

use self::contained::{Trouble, contained};
use self::folder::Marker;
use self::head::{Head, HeadBytes};
use self::table::Table;
use crate::fs::FileSystem;
use crate::snapshot::read::Rows;
use crate::snapshot::{DamageKind, SnapshotFile, SnapshotMeta};

/// Items are put together in chunks of up to this many bytes.
const CHUNK_BYTES: usize = 2 << 10;
/// Largest chunk, of a single item, in bytes.
const CHUNK_BYTES_MAX: usize = 6 << 10;
/// Largest head, in bytes: there is one, so its leaf stays small enough.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// A new chain gets a new table, too, when the file is larger than this, in bytes, and ...
const REBUILD_BYTES_MIN: u64 = 256 << 20;
/// ... this many times as large as what is in it.
const REBUILD_FACTOR: u64 = 8;
/// How long the table may take for a step, and ...
const STEP_TIME: Duration = Duration::from_secs(30);
/// ... how many bytes of its file add a second: a slow disk's pace, at which opening reads it.
const STEP_BYTES_PER_S: u64 = 4 << 20;

/// The snapshot that a chain begins at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Index of the last entry applied.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

impl From<&SnapshotMeta> for Base {
    fn from(meta: &SnapshotMeta) -> Self {
        Self {
            index: meta.index,
            term: meta.term,
        }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}, term {}", self.index, self.term)
    }
}

/// What a checkpoint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Where it begins; `None` for the fresh state, before the first entry.
    pub base: Option<Base>,
    /// Index of the last entry applied to the state that was saved last.
    pub index: u64,
}

/// What a save did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It went on with the chain.
    Appended {
        /// Bytes of the chunks written.
        bytes: u64,
    },
    /// It began a chain.
    Begun {
        /// Bytes of the chunks written.
        bytes: u64,
    },
    /// The changes follow on nothing that is kept. There is no checkpoint now, until changes
    /// follow on a snapshot.
    Nothing,
}

/// A chain with its place in the table.
#[derive(Clone, Debug)]
struct Held {
    chain: Chain,
    chunks: Range<u64>,
}

/// A node's checkpoint. Calls block.
pub struct Checkpoint {
    folder: PathBuf,
    table: Option<Table>,
    held: Option<Held>,
    /// The number of the next chunk.
    next: u64,
    /// Whether there may be chunks that the head does not count.
    trace: bool,
    /// Whether the table is one that another process made.
    inherited: bool,
    /// From which size of the file on there may be another table.
    rebuild_bytes_min: u64,
    /// Whether sled has hung or panicked: it is not called again.
    off: bool,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("folder", &self.folder)
            .field("held", &self.held)
            .field("off", &self.off)
            .finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Opens the checkpoint in `folder`, which is made if missing, and reads which chain it holds,
    /// if there is one of the cluster, incarnation and group of `fresh`. One that is of no use is
    /// named in the log and removed.
    ///
    /// # Errors
    /// The folder cannot be made or emptied, or is open elsewhere.
    pub fn open(
        folder: &Path,
        fresh: &State,
    ) -> Result<(Self, Result<Option<Chain>, Unusable>), CheckpointError> {
        let mut checkpoint = Self {
            folder: folder.to_path_buf(),
            table: None,
            held: None,
            next: 0,
            trace: false,
            inherited: false,
            rebuild_bytes_min: REBUILD_BYTES_MIN,
            off: false,
        };
        let used = folder::create(folder)?;
        let marker = Marker::beside(folder);
        if marker.is_there() {
            let why = checkpoint.give_up(Unusable::Marked)?;
            marker.remove()?;
            return Ok((checkpoint, Err(why)));
        }
        if !used {
            return Ok((checkpoint, Ok(None)));
        }
        folder::remove_unfinished(folder)?;
        marker.set()?;
        let found = match open_table(folder, fresh) {
            Ok((table, head, trace)) => {
                checkpoint.table = Some(table);
                checkpoint.trace = trace;
                checkpoint.inherited = true;
                checkpoint.hold(&head);
                Ok(checkpoint.chain())
            }
            Err(Trouble::Failed(TableError::InUse)) => {
                marker.remove()?;
                return Err(CheckpointError::InUse(folder.to_path_buf()));
            }
            Err(trouble) => Err(checkpoint.give_up(trouble.into())?),
        };
        marker.remove()?;
        Ok((checkpoint, found))
    }

    fn hold(&mut self, head: &Head) {
        self.next = head.chunks.end;
        self.held = Some(Held {
            chain: Chain {
                base: head.base,
                index: head.meta.index,
            },
            chunks: head.chunks.clone(),
        });
    }

    /// Removes a checkpoint that is of no use.
    fn give_up(&mut self, why: Unusable) -> Result<Unusable, CheckpointError> {
        let checkpoint = self.folder.display();
        tracing::warn!(
            %checkpoint,
            error = error_chain(&why),
            "the checkpoint is of no use: a start does without"
        );
        // A panic was only its own; what hangs or has died may be needed by any table.
        if let Unusable::Gone(OffReason::Stalled(_) | OffReason::ThreadDied | OffReason::Earlier) =
            why
        {
            self.off = true;
        }
        self.remove()?;
        Ok(why)
    }

    /// Removes everything, durably.
    fn remove(&mut self) -> Result<(), CheckpointError> {
        self.held = None;
        if let Some(table) = self.table.take() {
            // Letting go of it is work of sled's, too; however that ends, it is gone.
            let let_go = move |_: &_| {
                drop(table);
                Ok(())
            };
            drop(contained(self.step_time_max(), &mut || (), let_go));
        }
        folder::clear(&self.folder)
    }

    /// The chain that the table holds.
    #[must_use]
    pub fn chain(&self) -> Option<Chain> {
        self.held.as_ref().map(|held| held.chain)
    }

    /// Loads the state that was saved last, checked in full: the rows of `base`, which must be the
    /// chain's, with the changed ones laid over them. `None` when there is no chain. One that does
    /// not make a state is named in the log and removed.
    ///
    /// Beside the state, memory is needed for the changed rows.
    ///
    /// # Errors
    /// The folder cannot be emptied.
    pub fn load(
        &mut self,
        fs: &dyn FileSystem,
        base: Option<&SnapshotFile>,
    ) -> Result<Result<Option<(State, SnapshotMeta)>, Unusable>, CheckpointError> {
        let Some(Held { chain, chunks }) = self.held.clone() else {
            return Ok(Ok(None));
        };
        match self.load_chain(fs, base, chain, chunks) {
            Ok(loaded) => Ok(Ok(Some(loaded))),
            Err(trouble) => self.give_up(trouble.into()).map(Err),
        }
    }

    fn load_chain(
        &mut self,
        fs: &dyn FileSystem,
        base: Option<&SnapshotFile>,
        chain: Chain,
        chunks: Range<u64>,
    ) -> Result<(State, SnapshotMeta), Trouble> {
        let base = match (chain.base, base) {
            (None, _) => None,
            (Some(named), Some(file)) if named == Base::from(&file.meta) => Some(file),
            (Some(named), _) => return Err(Trouble::Failed(TableError::NoBase(named))),
        };
        let table = self.table.take().ok_or(TableError::NoHead);
        let table = table.map_err(Trouble::Failed)?;
        let marker = Marker::beside(&self.folder);
        marker.set().map_err(in_folder)?;
        let read = contained(self.step_time_max(), &mut || (), move |steps| {
            let head = table.guarded(Table::head)?;
            let changed = table.guarded(|table| table.changed(chunks, steps))?;
            Ok((table, head, changed))
        });
        marker.remove().map_err(in_folder)?;
        let (table, head, changed) = read?;
        self.table = Some(table);
        let meta = head.meta.clone();
        let rows = base.map(|file| open_rows(fs, file)).transpose();
        let state = rows
            .map_err(|kind| TableError::DamagedBase(Box::new(kind)))
            .and_then(|rows| changed.over(rows, head))
            .map_err(Trouble::Failed)?;
        Ok((state, meta))
    }

    /// Saves `state`. `changes` are those since the state at index `since`, `None` being the fresh
    /// one, and `base` is the newest snapshot that is kept. Durable when this returns.
    ///
    /// Where `changes` follow on `base`, they begin a chain; otherwise, where they follow on what
    /// was saved last, they go on with its chain; otherwise they are of no use, and there is no
    /// checkpoint until the next snapshot.
    ///
    /// `pace` is called between batches of 768 KiB: a caller that sleeps there leaves processor
    /// and disk to the log.
    ///
    /// # Errors
    /// [`CheckpointError`]: the chain has ended then. With [`CheckpointError::HeadTooLarge`] it has
    /// not, but goes on only from where it was.
    pub fn save(
        &mut self,
        state: &State,
        meta: &SnapshotMeta,
        since: Option<u64>,
        changes: &Changes,
        base: Option<Base>,
        pace: &mut dyn FnMut(),
    ) -> Result<Saved, CheckpointError> {
        if self.off {
            return Err(CheckpointError::Off(OffReason::Earlier));
        }
        let goes_on = self.chain().filter(|chain| Some(chain.index) == since);
        let on_base = since == base.map(|base| base.index);
        let chain_base = match goes_on {
            Some(chain) if chain.base == base || !on_base => chain.base,
            Some(_) | None if on_base => base,
            Some(_) | None => {
                if self.held.is_some() {
                    self.remove()?;
                }
                return Ok(Saved::Nothing);
            }
        };
        let begins = goes_on.is_none_or(|chain| chain.base != chain_base);
        let head = HeadBytes::new(chain_base, meta, state).ok_or(CheckpointError::HeadTooLarge)?;
        let chain = Chain {
            base: chain_base,
            index: meta.index,
        };
        self.write(state, changes, &head, chain, begins, pace)
    }

    fn write(
        &mut self,
        state: &State,
        changes: &Changes,
        head: &HeadBytes,
        chain: Chain,
        begins: bool,
        pace: &mut dyn FnMut(),
    ) -> Result<Saved, CheckpointError> {
        let next = self.next;
        let old_chunks = self.held.take().map_or(next..next, |held| held.chunks);
        let replaced = begins && (self.inherited || self.is_bloated(&old_chunks));
        let old = self.table.take();
        let trace = std::mem::replace(&mut self.trace, false);
        let (state, changes, head) = (state.clone(), changes.clone(), head.clone());
        let folder = self.folder.clone();
        let written = contained(self.step_time_max(), pace, move |steps| {
            let old = old.filter(|_| !replaced);
            let is_new = old.is_none();
            let table = match old {
                Some(table) => table,
                None => {
                    folder::clear(&folder).map_err(Box::new)?;
                    Table::open(&folder)?
                }
            };
            let written = table.guarded(|table| {
                if trace && !is_new {
                    table.remove_others(&old_chunks, steps)?;
                }
                let after = if begins { next..next } else { old_chunks };
                let written = table.write(&state, &changes, &head, after, steps)?;
                if begins && !is_new {
                    table.remove_others(&written.chunks, steps)?;
                }
                Ok::<_, TableError>(written)
            })?;
            if is_new {
                folder::sync_names(&folder)?;
            }
            Ok((table, written))
        });
        let (table, written) = written.map_err(|trouble| self.stop(trouble))?;
        self.table = Some(table);
        self.inherited &= !begins;
        self.next = written.chunks.end;
        self.held = Some(Held {
            chain,
            chunks: written.chunks,
        });
        let bytes = written.bytes;
        Ok(if begins {
            Saved::Begun { bytes }
        } else {
            Saved::Appended { bytes }
        })
    }

    /// After a panic or a hang it ends checkpoints for this process, and has the next one begin
    /// with an empty one: it must not go the same way.
    fn stop(&mut self, trouble: Trouble) -> CheckpointError {
        let reason = match trouble {
            Trouble::Failed(error) => return error.into(),
            Trouble::Gone(reason) => reason,
        };
        self.off = true;
        match Marker::beside(&self.folder).set() {
            Ok(()) => CheckpointError::Off(reason),
            Err(error) => error,
        }
    }

    fn is_bloated(&self, chunks: &Range<u64>) -> bool {
        let bytes = folder::db_bytes(&self.folder);
        let held = (chunks.end - chunks.start).saturating_mul(CHUNK_BYTES as u64);
        bytes > self.rebuild_bytes_min && bytes / REBUILD_FACTOR > held
    }

    fn step_time_max(&self) -> Duration {
        step_time_max(&self.folder)
    }
}

impl From<Trouble> for Unusable {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(error) => Self::Table(error),
            Trouble::Gone(reason) => Self::Gone(reason),
        }
    }
}

/// The file beside the checkpoint's folder that is there while the checkpoint is opened or read.
/// Where a start finds it, the last process may have died of that.
#[must_use]
pub fn marker_file(folder: &Path) -> PathBuf {
    Marker::beside(folder).path().to_path_buf()
}

fn in_folder(error: CheckpointError) -> Trouble {
    Trouble::Failed(TableError::Folder(Box::new(error)))
}

fn step_time_max(folder: &Path) -> Duration {
    STEP_TIME.saturating_add(Duration::from_secs(
        folder::db_bytes(folder) / STEP_BYTES_PER_S,
    ))
}

/// The table, its head, and whether there are chunks besides those that the head counts.
fn open_table(folder: &Path, fresh: &State) -> Result<(Table, Head, bool), Trouble> {
    if folder::has_blobs(folder).map_err(Trouble::Failed)? {
        return Err(Trouble::Failed(TableError::Blobs));
    }
    let owner = fresh.head();
    let path = folder.to_path_buf();
    contained(step_time_max(folder), &mut || (), move |_| {
        let table = Table::open(&path)?;
        let head = table.guarded(Table::head)?;
        if !same_owner(&head.state.head, &owner) {
            return Err(TableError::Foreign);
        }
        let trace = table.guarded(|table| table.has_others(&head.chunks))?;
        Ok((table, head, trace))
    })
}

fn open_rows(fs: &dyn FileSystem, file: &SnapshotFile) -> Result<Rows, DamageKind> {
    Rows::open(fs.open_to_read(&file.path)?)
}

/// Whether two states are of the same cluster, incarnation and group.
pub(crate) fn same_owner(one: &epoch_machine::Head, other: &epoch_machine::Head) -> bool {
    one.cluster_id == other.cluster_id
        && one.incarnation == other.incarnation
        && one.group == other.group
}
