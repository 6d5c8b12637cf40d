//! openraft's log storage over our own log.
//!
//! The log blocks on the disk, so one thread owns it and does what it is told, in order; reads go
//! past it. Every answer leaves only after the flush it depends on.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use epoch_core::NodeId;
use epoch_store::{Log, LogOptions, LogReader, OpenError, RealFs};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::types::{Entry, LogId, StorageError, TypeConfig, Vote, without_own_leadership};
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
    /// Opens the log in `folder` and starts its thread.
    pub(crate) fn open(folder: &Path, me: NodeId, metrics: Metrics) -> Result<Self, OpenError> {
        let mut log = Log::open(Arc::new(RealFs), folder, LogOptions::default())?;
        let reader = log.reader();
        let was_new = log.vote().is_none() && log.last_index().is_none() && log.purged().is_none();
        let marks = log.mark_syncer();
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            // Ends when the last sender is gone; the log lets its folder go then.
            for job in queue {
                job(&mut log);
            }
        });
        thread::spawn(move || sync_marks(&marks));
        Ok(Self {
            me,
            jobs,
            reader,
            was_new,
            metrics,
        })
    }

    /// Whether there was nothing in it when it was opened.
    pub(crate) fn was_new(&self) -> bool {
        self.was_new
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
            .map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_restarted_leader_finds_its_vote_uncommitted_and_others_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        for (me, committed) in [(1, false), (2, true)] {
            let path = folder.path().join(me.to_string());
            let mut store = LogStore::open(&path, me, Metrics::new(me)).unwrap();
            store.save_vote(&Vote::new_committed(7, 1)).await.unwrap();
            let vote = store.read_vote().await.unwrap().unwrap();
            assert_eq!(vote.is_committed(), committed, "node {me}");
            assert_eq!(vote.leader_id().term, 7);
        }
    }
}
