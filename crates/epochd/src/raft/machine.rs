//! openraft's state machine over ours.

use epoch_machine::{Event, GrantEvent, GrantEventKind};
use epoch_store::codec;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder,
    StorageIOError,
};
use tokio::sync::oneshot;

use super::happenings::Happenings;
use super::hashes::Hashes;
use super::shared::{Frozen, Replicated, SharedState};
use super::snapshots::{SnapshotError, Snapshots, StoredSnapshot};
use super::types::{
    Applied, Entry, LogId, SnapshotMeta, StorageError, StoredMembership, TypeConfig, leadership,
};
use super::upkeep::Upkeep;
use crate::metrics::Metrics;

/// The apply loop's own.
#[derive(Debug)]
pub(crate) struct Machine {
    state: SharedState,
    snapshots: Snapshots,
    hashes: Hashes,
    upkeep: Upkeep,
    happenings: Happenings,
    metrics: Metrics,
}

impl Machine {
    pub(crate) fn new(
        state: SharedState,
        snapshots: Snapshots,
        upkeep: Upkeep,
        hashes: Hashes,
        happenings: Happenings,
        metrics: Metrics,
    ) -> Self {
        let machine = Self {
            state,
            snapshots,
            hashes,
            upkeep,
            happenings,
            metrics,
        };
        machine.show(&machine.state.write());
        machine
    }

    /// Tells the metrics what there is now.
    fn show(&self, replicated: &Replicated) {
        let counts = replicated.state.counts();
        self.metrics.grants_held.set(counts.grants as f64);
        self.metrics.sessions.set(counts.sessions as f64);
        self.metrics.scope_rows.set(counts.rows as f64);
        let last = replicated.applied.last_log_id;
        self.metrics
            .applied_index
            .set(last.map_or(0, |id| id.index) as f64);
    }

    fn apply_entry(&self, into: &mut Replicated, entry: &Entry) -> Result<Applied, StorageError> {
        let applied = self.apply_payload(into, entry)?;
        let index = entry.log_id.index;
        self.hashes.applied(index, || into.state.hash());
        Ok(applied)
    }

    fn apply_payload(&self, into: &mut Replicated, entry: &Entry) -> Result<Applied, StorageError> {
        into.applied.last_log_id = Some(entry.log_id);
        match &entry.payload {
            EntryPayload::Blank => Ok(Applied::default()),
            EntryPayload::Membership(membership) => {
                into.applied.membership =
                    StoredMembership::new(Some(entry.log_id), membership.clone());
                Ok(Applied::default())
            }
            EntryPayload::Normal(proposal) => {
                // An entry that does not decode must stop the node: skipping it would make this
                // state differ from the others'.
                let batch = codec::decode_batch(&proposal.0).map_err(|error| {
                    failed(ErrorSubject::Apply(entry.log_id), ErrorVerb::Read, &error)
                })?;
                let place = epoch_machine::Entry {
                    leadership: leadership(&entry.log_id.leader_id),
                    index: entry.log_id.index,
                };
                let applied = epoch_machine::apply(&mut into.state, place, &batch);
                let outcomes = applied.map(|applied| {
                    self.count(&applied.events);
                    self.happenings.tell(place.index, applied.events);
                    applied.outcomes
                });
                Ok(Applied {
                    outcomes: Some(outcomes),
                })
            }
        }
    }

    fn count(&self, events: &[Event]) {
        for event in events {
            match event {
                Event::SessionEnded { expired: true, .. } => {
                    self.metrics.sessions_expired.increment(1);
                }
                Event::Grant(GrantEvent {
                    kind: GrantEventKind::Granted | GrantEventKind::Transferred,
                    ..
                }) => self.metrics.grants.increment(1),
                _ => {}
            }
        }
    }
}

fn failed(
    subject: ErrorSubject<epoch_core::NodeId>,
    verb: ErrorVerb,
    error: &(impl std::error::Error + 'static),
) -> StorageError {
    StorageIOError::new(subject, verb, AnyError::new(error)).into()
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let applied = self.state.applied();
        Ok((applied.last_log_id, applied.membership))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let shared = self.state.clone();
        let mut replicated = shared.write();
        let applied = entries
            .into_iter()
            .map(|entry| self.apply_entry(&mut replicated, &entry));
        let applied = applied.collect::<Result<Vec<_>, _>>()?;
        self.show(&replicated);
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        // What is frozen shares everything: applying goes on while it is written out.
        let upkeep = self.upkeep.clone();
        let snapshots = self.snapshots.clone();
        let writing = self
            .upkeep
            .run(&self.state, move |frozen, checkpoint, pace| {
                // What has changed before the snapshot must not be part of the chain that begins
                // at it, nor be missing from the one that goes on if the snapshot fails.
                upkeep.save(&frozen, &snapshots, checkpoint, pace);
                let Frozen { state, applied, .. } = frozen;
                snapshots.write(&state, applied, pace)
            });
        Builder {
            writing: Some(writing),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<StoredSnapshot>, StorageError> {
        // Snapshots arrive as whole files on the peer listener, never in openraft's chunks.
        let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(failed(
            ErrorSubject::Snapshot(None),
            ErrorVerb::Write,
            &error,
        ))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<StoredSnapshot>,
    ) -> Result<(), StorageError> {
        let subject = || ErrorSubject::Snapshot(Some(meta.signature()));
        let loaded = tokio::task::spawn_blocking(move || snapshot.load()).await;
        let (state, applied) = loaded
            .map_err(|error| failed(subject(), ErrorVerb::Read, &error))?
            .map_err(|error| failed(subject(), ErrorVerb::Read, &error))?;
        let index = applied.last_log_id.map(|id| id.index);
        self.hashes.clear();
        self.state.install(state, applied);
        self.happenings.skip_to(index.unwrap_or(0));
        self.show(&self.state.write());
        tracing::info!(index, "snapshot installed");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        Ok(self.snapshots.newest().map(|stored| Snapshot {
            meta: stored.meta(),
            snapshot: Box::new(stored),
        }))
    }
}

/// A snapshot file that is being written on the upkeep thread.
#[derive(Debug)]
pub(crate) struct Builder {
    writing: Option<oneshot::Receiver<Result<StoredSnapshot, SnapshotError>>>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let subject = || ErrorSubject::Snapshot(None);
        let writing = self.writing.take().ok_or_else(|| {
            let twice = std::io::Error::other("a snapshot is built once");
            failed(subject(), ErrorVerb::Write, &twice)
        })?;
        let stored = writing
            .await
            .map_err(|error| failed(subject(), ErrorVerb::Write, &error))?
            .map_err(|error| failed(subject(), ErrorVerb::Write, &error))?;
        Ok(Snapshot {
            meta: stored.meta(),
            snapshot: Box::new(stored),
        })
    }
}
