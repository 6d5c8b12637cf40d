//! The checkpoint's table in sled. Everything here is called in a contained thread.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use epoch_machine::{Changes, State};
use sled::{Batch, IVec};

use super::changed::Changed;
use super::chunk::Packer;
use super::contained::Steps;
use super::error::TableError;
use super::head::{Head, HeadBytes};
use super::{folder, key};

/// What sled keeps in memory of the table, in bytes. Its default is 1 GiB.
const CACHE_BYTES: u64 = 4 << 20;
/// Chunks written or removed in one batch, which is there whole or not at all.
pub(super) const BATCH_CHUNKS: usize = 128;
/// Chunks read between two steps.
const READ_CHUNKS: usize = 128;

/// Each round frees up to 512 values; a batch replaces some ten for each chunk.
const GARBAGE_ROUNDS: usize = BATCH_CHUNKS / 16;
/// How often to look whether a table was let go, and how many times: for five seconds.
const LOCK_LOOK: Duration = Duration::from_millis(5);
const LOCK_LOOKS: u32 = 1_000;
/// How sled's message begins when a folder is open elsewhere.
const LOCK_MESSAGE: &str = "could not acquire lock";

/// An open table. Clones are the same one.
#[derive(Clone)]
pub(super) struct Table {
    db: sled::Db,
    folder: PathBuf,
}

impl Table {
    /// Opens the table in `folder`, or makes an empty one. Waits a while for one that was open in
    /// this process before: sled's threads let go of it some time after it was dropped.
    pub(super) fn open(folder: &Path) -> Result<Self, TableError> {
        let mut looks = 0..LOCK_LOOKS;
        let db = loop {
            let config = sled::Config::new()
                .path(folder)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(None);
            match config.open() {
                Err(error) if is_lock(&error) => match looks.next() {
                    Some(_) => thread::sleep(LOCK_LOOK),
                    None => return Err(TableError::InUse),
                },
                opened => break opened?,
            }
        };
        Ok(Self {
            db,
            folder: folder.to_path_buf(),
        })
    }

    /// Runs `work` so that a panic in it does not drop sled's handles: they would write, and a
    /// second panic would end the process.
    pub(super) fn guarded<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let handles = self.clone();
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|panic| {
            std::mem::forget(handles);
            resume_unwind(panic)
        })
    }

    pub(super) fn head(&self) -> Result<Head, TableError> {
        let head = self.db.get(key::HEAD)?;
        Head::decode(&head.ok_or(TableError::NoHead)?)
    }

    /// Whether there are chunks besides these: what a save left that was cut off.
    pub(super) fn has_others(&self, chunks: &Range<u64>) -> Result<bool, TableError> {
        Ok(self.others(chunks).next().transpose()?.is_some())
    }

    /// Reads chunks.
    pub(super) fn changed(&self, chunks: Range<u64>, steps: &Steps) -> Result<Changed, TableError> {
        let mut changed = Changed::default();
        let mut found = self.db.range(key::chunk(chunks.start)..);
        let mut read = 0;
        // Damage could lead in circles, but not by numbers that rise one by one.
        for number in chunks {
            let missing = TableError::MissingChunk(number);
            let (key, chunk) = found.next().transpose()?.ok_or(missing)?;
            if key::chunk_number(&key) != Some(number) {
                return Err(TableError::MissingChunk(number));
            }
            let added = changed.add(&chunk);
            added.map_err(|source| TableError::Chunk { number, source })?;
            read += 1;
            if read % READ_CHUNKS == 0 {
                steps.step()?;
            }
        }
        Ok(changed)
    }

    /// Writes the rows of `changes` behind `chunks`, and in the last batch the head of all of
    /// them. Durable when this returns; of several batches cut off, the head before still holds.
    pub(super) fn write(
        &self,
        state: &State,
        changes: &Changes,
        head: &HeadBytes,
        chunks: Range<u64>,
        steps: &Steps,
    ) -> Result<Written, TableError> {
        let mut writer = Writer {
            table: self,
            steps,
            batch: Batch::default(),
            batched: 0,
            written: Written { chunks, bytes: 0 },
        };
        let mut packer = Packer::default();
        for change in state.changed_rows(changes) {
            if let Some(chunk) = packer.add(&change)? {
                writer.put(chunk)?;
            }
        }
        if let Some(chunk) = packer.finish() {
            writer.put(chunk)?;
        }
        writer.finish(head)
    }

    /// Removes all chunks but these, durably.
    pub(super) fn remove_others(
        &self,
        chunks: &Range<u64>,
        steps: &Steps,
    ) -> Result<(), TableError> {
        loop {
            let mut batch = Batch::default();
            let mut removed = 0;
            for other in self.others(chunks).take(BATCH_CHUNKS) {
                batch.remove(other?.0);
                removed += 1;
            }
            self.db.apply_batch(batch)?;
            free_garbage();
            if removed < BATCH_CHUNKS {
                return self.sync();
            }
            steps.step()?;
        }
    }

    /// A chunk that no head counts.
    #[cfg(test)]
    pub(super) fn put_chunk(&self, number: u64, chunk: &[u8]) {
        self.db.insert(key::chunk(number), chunk).unwrap();
    }

    fn others(&self, chunks: &Range<u64>) -> impl Iterator<Item = sled::Result<(IVec, IVec)>> {
        let before = self.db.range(key::chunk(0)..key::chunk(chunks.start));
        let behind = self.db.range(key::chunk(chunks.end)..);
        before.chain(behind)
    }

    /// Makes everything written durable. sled's own flush only hands it to the device, without
    /// waiting until it is safe there, and never syncs blobs: there must be none.
    fn sync(&self) -> Result<(), TableError> {
        self.db.flush()?;
        let db = folder::db_file(&self.folder);
        File::open(&db)
            .and_then(|file| file.sync_data())
            .map_err(|source| TableError::Io { path: db, source })?;
        if folder::has_blobs(&self.folder)? {
            return Err(TableError::Blobs);
        }
        Ok(())
    }
}

/// Frees what a batch has replaced in memory. sled does so a little with every operation, and
/// counts a batch as one: without this, memory grows by gigabytes in a hundred saves.
fn free_garbage() {
    for _ in 0..GARBAGE_ROUNDS {
        sled::pin().flush();
    }
}

/// sled has no error of its own for a folder that is open elsewhere.
fn is_lock(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().starts_with(LOCK_MESSAGE))
}

/// What was written.
#[derive(Debug)]
pub(super) struct Written {
    /// The numbers of all chunks.
    pub(super) chunks: Range<u64>,
    /// Bytes of the new ones.
    pub(super) bytes: u64,
}

struct Writer<'a> {
    table: &'a Table,
    steps: &'a Steps,
    batch: Batch,
    batched: usize,
    written: Written,
}

impl Writer<'_> {
    /// A batch that is full goes out when the next chunk comes: the last one waits for the head.
    fn put(&mut self, chunk: Vec<u8>) -> Result<(), TableError> {
        if self.batched == BATCH_CHUNKS {
            self.apply()?;
            self.steps.step()?;
        }
        self.batched += 1;
        self.written.bytes += chunk.len() as u64;
        let number = self.written.chunks.end;
        self.written.chunks.end = number.checked_add(1).ok_or(TableError::ChunkNumbers)?;
        self.batch.insert(&key::chunk(number), chunk);
        Ok(())
    }

    fn apply(&mut self) -> Result<(), TableError> {
        self.batched = 0;
        self.table.db.apply_batch(std::mem::take(&mut self.batch))?;
        free_garbage();
        Ok(())
    }

    fn finish(mut self, head: &HeadBytes) -> Result<Written, TableError> {
        let head = head.with_chunks(&self.written.chunks);
        self.batch.insert(&key::HEAD, head);
        self.apply()?;
        self.table.sync()?;
        Ok(self.written)
    }
}
