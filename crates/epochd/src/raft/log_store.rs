//! openraft's log storage over our own log.
//!
//! The log blocks on the disk, so one thread owns it and does what it is told, in order; reads go
//! past it. Every answer leaves only after the flush it depends on.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use epoch_core::NodeId;
use epoch_store::{Log, LogReader};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::types::{
    Entry, LogId, Position, StorageError, TypeConfig, Vote, without_own_leadership,
};
use crate::metrics::Metrics;

/// Bytes read for one message to a follower.
const READ_BYTES_MAX: u64 = 4 << 20;

type Job = Box<dyn FnOnce(&mut Log) + Send>;

/// The log of this node.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    me: NodeId,
    jobs: mpsc::Sender<Job>,
    reader: LogReader,
    was_new: bool,
    metrics: Metrics,
}

impl LogStore {
    /// Starts the thread that owns `log`, and those that work beside it.
    pub(crate) fn new(mut log: Log, me: NodeId, metrics: Metrics) -> Self {
        let reader = log.reader();
        let was_new = log.vote().is_none() && log.last_index().is_none() && log.purged().is_none();
        let marks = log.mark_syncer();
        let filler = log.zero_filler();
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            // Ends when the last sender is gone; the log lets its folder go then.
            for job in queue {
                job(&mut log);
            }
        });
        thread::spawn(move || sync_marks(&marks));
        thread::spawn(move || fill_ahead(&filler));
        Self {
            me,
            jobs,
            reader,
            was_new,
            metrics,
        }
    }

    /// Whether there was nothing in it when it was opened.
    pub(crate) fn was_new(&self) -> bool {
        self.was_new
    }

    /// The vote and the end of the log, or else its purge point.
    pub(crate) async fn position(&self) -> Result<Position, StorageError> {
        let mut log = self.clone();
        Ok(Position {
            vote: log.read_vote().await?.map(|vote| *vote.leader_id()),
            last: log.get_log_state().await?.last_log_id,
        })
    }

    /// Bytes of entries after `index`.
    pub(crate) fn bytes_since(&self, index: u64) -> u64 {
        self.reader.bytes_since(index)
    }

    /// How far the log is purged.
    pub(crate) fn purged_index(&self) -> Option<u64> {
        self.reader.purged().map(|purged| purged.index)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> Result<T, epoch_store::WriteError> + Send + 'static,
    ) -> Result<T, AnyError> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move |log| {
            // The receiver is gone only when the core has ended: nobody is left to tell.
            drop(done.send(work(log)));
        });
        self.jobs.send(job).map_err(|_ended| ended())?;
        result
            .await
            .map_err(|_ended| ended())?
            .map_err(|error| AnyError::new(&error))
    }
}

fn ended() -> AnyError {
    AnyError::error("the log's thread has ended")
}

/// Makes the log's mark durable about every second, off the path of every flush.
fn sync_marks(marks: &epoch_store::MarkSyncer) {
    const MARK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
    loop {
        thread::sleep(MARK_INTERVAL);
        if let Err(error) = marks.sync() {
            crate::fatal::stop(&format!("the log's mark cannot be synced: {error}"));
        }
    }
}

/// Keeps zeros ahead of the log's end, so that a flush does not make the file grow.
fn fill_ahead(filler: &epoch_store::ZeroFiller) {
    const FILL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
    loop {
        match filler.fill() {
            Ok(true) => {}
            Ok(false) => thread::sleep(FILL_INTERVAL),
            Err(error) => crate::fatal::stop(&format!("the log cannot be filled ahead: {error}")),
        }
    }
}

fn failed(subject: ErrorSubject<NodeId>, verb: ErrorVerb, error: AnyError) -> StorageError {
    StorageIOError::new(subject, verb, error).into()
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes, AnyError> {
    postcard::to_stdvec(value)
        .map(Bytes::from)
        .map_err(|error| AnyError::new(&error))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AnyError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(AnyError::error("bytes follow the value")),
        Err(error) => Err(AnyError::new(&error)),
    }
}

fn read_entries(
    reader: &LogReader,
    range: std::ops::Range<u64>,
    bytes_max: u64,
) -> Result<Vec<Entry>, StorageError> {
    let failed = |error| failed(ErrorSubject::Logs, ErrorVerb::Read, error);
    let found = reader
        .read(range, bytes_max)
        .map_err(|error| failed(AnyError::new(&error)))?;
    found
        .iter()
        .map(|(_, bytes)| decode(bytes).map_err(failed))
        .collect()
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        read_entries(&self.reader, start..end, u64::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        read_entries(&self.reader, start..end, READ_BYTES_MAX)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let failed = |error| failed(ErrorSubject::Logs, ErrorVerb::Read, error);
        let purged = self.reader.purged();
        let last_purged_log_id: Option<LogId> = purged
            .map(|purged| decode(&purged.log_id))
            .transpose()
            .map_err(failed)?;
        let last = match self.reader.last_index() {
            None => None,
            Some(last) => read_entries(&self.reader, last..last.saturating_add(1), u64::MAX)?
                .pop()
                .map(|entry| entry.log_id),
        };
        Ok(LogState {
            last_purged_log_id,
            last_log_id: last.or(last_purged_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let failed = |error| failed(ErrorSubject::Vote, ErrorVerb::Write, error);
        let bytes = encode(vote).map_err(failed)?;
        self.run(move |log| log.save_vote(bytes))
            .await
            .map_err(failed)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let failed = |error| failed(ErrorSubject::Vote, ErrorVerb::Read, error);
        let bytes = self.run(|log| Ok(log.vote())).await.map_err(failed)?;
        let vote: Option<Vote> = bytes
            .map(|bytes| decode(&bytes))
            .transpose()
            .map_err(failed)?;
        // A restarted leader would lead at once otherwise.
        Ok(vote.map(|vote| without_own_leadership(vote, self.me)))
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let failed = |error| failed(ErrorSubject::Logs, ErrorVerb::Write, error);
        let Some(committed) = committed else {
            return Ok(());
        };
        let bytes = encode(&committed).map_err(failed)?;
        self.run(move |log| log.save_committed(bytes))
            .await
            .map_err(failed)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let failed = |error| failed(ErrorSubject::Logs, ErrorVerb::Read, error);
        let bytes = self.run(|log| Ok(log.committed())).await.map_err(failed)?;
        bytes
            .map(|bytes| decode(&bytes))
            .transpose()
            .map_err(failed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let failed = |error| failed(ErrorSubject::Logs, ErrorVerb::Write, error);
        let encoded = entries
            .into_iter()
            .map(|entry| Ok((entry.log_id.index, encode(&entry)?)))
            .collect::<Result<Vec<_>, AnyError>>()
            .map_err(failed)?;
        let metrics = self.metrics.clone();
        let flushed = self
            .run(move |log| {
                let begun = crate::clock::boot();
                log.append(&encoded)?;
                metrics
                    .flush_seconds
                    .record(crate::clock::boot().saturating_sub(begun));
                Ok(())
            })
            .await;
        match flushed {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(io::Error::other(error.to_string())));
                Err(failed(error))
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let failed = |error| failed(ErrorSubject::Log(log_id), ErrorVerb::Delete, error);
        self.run(move |log| log.truncate_from(log_id.index))
            .await
            .map_err(failed)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let failed = |error| failed(ErrorSubject::Log(log_id), ErrorVerb::Delete, error);
        let bytes = encode(&log_id).map_err(failed)?;
        self.run(move |log| log.purge_to(log_id.index, bytes))
            .await
            .map_err(failed)?;
        tracing::info!(index = log_id.index, "log purged");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Condvar, Mutex};

    use epoch_store::{File, FileSystem, FolderHold, LogOptions, RealFs};
    use openraft::storage::RaftLogStorageExt as _;
    use openraft::{CommittedLeaderId, EntryPayload};

    use super::*;

    fn open(fs: Arc<dyn FileSystem>, folder: &Path, me: NodeId) -> LogStore {
        let log = Log::open(fs, folder, LogOptions::default()).unwrap();
        LogStore::new(log, me, Metrics::new(me))
    }

    #[tokio::test]
    async fn a_restarted_leader_finds_its_vote_uncommitted_and_others_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        for (me, committed) in [(1, false), (2, true)] {
            let path = folder.path().join(me.to_string());
            let mut store = open(RealFs::shared(), &path, me);
            store.save_vote(&Vote::new_committed(7, 1)).await.unwrap();
            let vote = store.read_vote().await.unwrap().unwrap();
            assert_eq!(vote.is_committed(), committed, "node {me}");
            assert_eq!(vote.leader_id().term, 7);
            // Peers hear the vote as it was given.
            let position = store.position().await.unwrap();
            assert_eq!(
                (position.vote, position.last),
                (Some(*vote.leader_id()), None)
            );
        }
    }

    /// Real files whose syncs wait at a gate, unless they are let past it.
    #[derive(Debug)]
    struct GatedFs(Arc<Gate>);

    #[derive(Debug, Default)]
    struct Gate {
        closed: Mutex<bool>,
        moved: Condvar,
        waiting: AtomicBool,
        /// Planted bug: a sync returns at once.
        broken: bool,
    }

    impl Gate {
        fn set(&self, closed: bool) {
            *self.closed.lock().unwrap() = closed;
            self.moved.notify_all();
        }

        fn pass(&self) {
            let mut closed = self.closed.lock().unwrap();
            while *closed {
                self.waiting.store(true, Ordering::SeqCst);
                if self.broken {
                    return;
                }
                closed = self.moved.wait(closed).unwrap();
            }
            self.waiting.store(false, Ordering::SeqCst);
        }
    }

    #[derive(Debug)]
    struct GatedFile(Arc<dyn File>, Arc<Gate>);

    impl FileSystem for GatedFs {
        fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
            let file = RealFs.open(path)?;
            Ok(Arc::new(GatedFile(file, Arc::clone(&self.0))))
        }
        fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
            let file = RealFs.create(path)?;
            Ok(Arc::new(GatedFile(file, Arc::clone(&self.0))))
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealFs.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealFs.remove(path)
        }
        fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
            RealFs.list(folder)
        }
        fn create_folder(&self, folder: &Path) -> io::Result<()> {
            RealFs.create_folder(folder)
        }
        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            RealFs.sync_folder(folder)
        }
        fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>> {
            RealFs.lock_folder(folder)
        }
    }

    impl File for GatedFile {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            File::read_at(self.0.as_ref(), buffer, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_at(bytes, offset)
        }
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
        fn sync_data(&self) -> io::Result<()> {
            self.1.pass();
            self.0.sync_data()
        }
        fn sync_all(&self) -> io::Result<()> {
            self.1.pass();
            self.0.sync_all()
        }
    }

    fn entry(index: u64) -> Entry {
        Entry {
            log_id: LogId::new(CommittedLeaderId::new(7, 1), index),
            payload: EntryPayload::Blank,
        }
    }

    /// Whether every change of the log waits for its flush: with the gate closed none is
    /// acknowledged, and with the gate open again all are.
    async fn acknowledges_after_its_flush(broken: bool) -> bool {
        type Change = fn(LogStore) -> futures::future::BoxFuture<'static, bool>;
        let changes: [Change; 4] = [
            |mut store| Box::pin(async move { store.blocking_append([entry(1)]).await.is_ok() }),
            |mut store| Box::pin(async move { store.save_vote(&Vote::new(8, 2)).await.is_ok() }),
            |mut store| Box::pin(async move { store.truncate(entry(1).log_id).await.is_ok() }),
            |mut store| Box::pin(async move { store.purge(entry(0).log_id).await.is_ok() }),
        ];
        let folder = tempfile::tempdir().unwrap();
        let gate = Arc::new(Gate {
            broken,
            ..Gate::default()
        });
        let mut store = open(Arc::new(GatedFs(Arc::clone(&gate))), folder.path(), 1);
        store.blocking_append([entry(0)]).await.unwrap();
        for change in changes {
            gate.set(true);
            let acknowledged = tokio::spawn(change(store.clone()));
            // Until the flush has begun: only then can it have been acknowledged too early.
            while !gate.waiting.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            // The planted bug shows for certain; its absence, as far as one looks.
            let looks = if broken { usize::MAX } else { 1_000 };
            let mut early = false;
            for _ in 0..looks {
                early = acknowledged.is_finished();
                if early {
                    break;
                }
                tokio::task::yield_now().await;
            }
            gate.set(false);
            assert!(acknowledged.await.unwrap());
            if early {
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn nothing_is_acknowledged_before_the_flush_it_depends_on() {
        assert!(acknowledges_after_its_flush(false).await);
    }

    #[tokio::test]
    async fn an_acknowledgement_before_its_flush_is_found() {
        assert!(!acknowledges_after_its_flush(true).await);
    }
}
