//! openraft's state machine over ours.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use epoch_machine::{Batch, Command, ForeignLeadership, Outcome, SessionKey, State, Ttl};
use epoch_store::codec;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder,
    StorageIOError,
};
use tokio::sync::mpsc;

use super::snapshots::{Snapshots, StoredSnapshot};
use super::types::{
    Applied, AppliedMeta, Entry, LogId, SnapshotMeta, StorageError, StoredMembership, TypeConfig,
    leadership,
};
use crate::metrics::Metrics;

/// What applying the log says of sessions, for the leader's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    Opened(SessionKey, Ttl),
    /// A live session was opened again, by a client that missed the answer: it counts its TTL
    /// from this Open.
    Reopened(SessionKey, Ttl),
    Ended(SessionKey),
}

/// The state, written by the apply loop only. Reads take a short lock and never copy the state.
#[derive(Debug, Clone)]
pub(crate) struct SharedState(Arc<RwLock<State>>);

impl SharedState {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(RwLock::new(state)))
    }

    /// The state as of now. Not to be held across an await.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        // A panic ends the process, so a poisoned lock is never seen by anyone.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The apply loop's own.
#[derive(Debug)]
pub(crate) struct Machine {
    state: SharedState,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    snapshots: Snapshots,
    /// Unbounded, since the apply loop never waits; drained all the time by the lease keeper.
    sessions: mpsc::UnboundedSender<SessionEvent>,
    metrics: Metrics,
}

impl Machine {
    /// Goes on from `state`, which is as of `meta`.
    pub(crate) fn new(
        state: SharedState,
        meta: Option<AppliedMeta>,
        snapshots: Snapshots,
        sessions: mpsc::UnboundedSender<SessionEvent>,
        metrics: Metrics,
    ) -> Self {
        let (last_applied, membership) = match meta {
            Some(meta) => (meta.last_log_id, meta.membership),
            None => (None, StoredMembership::default()),
        };
        Self {
            state,
            last_applied,
            membership,
            snapshots,
            sessions,
            metrics,
        }
    }

    fn apply_entry(&mut self, state: &mut State, entry: &Entry) -> Result<Applied, StorageError> {
        self.last_applied = Some(entry.log_id);
        match &entry.payload {
            EntryPayload::Blank => Ok(Applied::default()),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
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
                let outcomes = epoch_machine::apply(state, place, &batch);
                self.tell(&batch, &outcomes);
                Ok(Applied {
                    outcomes: Some(outcomes),
                })
            }
        }
    }

    fn tell(&self, batch: &Batch, outcomes: &Result<Vec<Outcome>, ForeignLeadership>) {
        let Ok(outcomes) = outcomes else { return };
        for (command, outcome) in batch.commands.iter().zip(outcomes) {
            let event = match (command, outcome) {
                (
                    _,
                    Outcome::Opened {
                        session, ttl, new, ..
                    },
                ) => {
                    let session = SessionKey::from(session);
                    if *new {
                        SessionEvent::Opened(session, *ttl)
                    } else {
                        SessionEvent::Reopened(session, *ttl)
                    }
                }
                (Command::Close { session }, Outcome::Closed { closed: true, .. }) => {
                    SessionEvent::Ended(SessionKey::from(session))
                }
                (Command::Expire { session }, Outcome::Expired { expired: true, .. }) => {
                    self.metrics.sessions_expired.increment(1);
                    SessionEvent::Ended(*session)
                }
                (_, Outcome::Granted { new: true, .. }) => {
                    self.metrics.grants.increment(1);
                    continue;
                }
                _ => continue,
            };
            // The lease keeper is gone only when the node stops.
            let _ = self.sessions.send(event);
        }
    }

    fn meta(&self) -> AppliedMeta {
        AppliedMeta {
            last_log_id: self.last_applied,
            membership: self.membership.clone(),
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
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let shared = self.state.clone();
        let mut state = shared.write();
        let applied = entries
            .into_iter()
            .map(|entry| self.apply_entry(&mut state, &entry));
        let applied = applied.collect::<Result<Vec<_>, _>>()?;
        let counts = state.counts();
        drop(state);
        self.metrics.grants_held.set(counts.grants as f64);
        self.metrics.sessions.set(counts.sessions as f64);
        self.metrics.scope_rows.set(counts.rows as f64);
        self.metrics
            .applied_index
            .set(self.last_applied.map_or(0, |id| id.index) as f64);
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        // The clone shares everything: applying goes on while it is written out.
        let state = self.state.read().clone();
        Builder {
            state,
            meta: self.meta(),
            snapshots: self.snapshots.clone(),
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
        self.last_applied = applied.last_log_id;
        self.membership = applied.membership;
        *self.state.write() = state;
        tracing::info!(
            index = self.last_applied.map(|id| id.index),
            "snapshot installed"
        );
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        Ok(self.snapshots.newest().map(|stored| Snapshot {
            meta: stored.meta(),
            snapshot: Box::new(stored),
        }))
    }
}

/// Writes one snapshot file from a clone of the state.
#[derive(Debug)]
pub(crate) struct Builder {
    state: State,
    meta: AppliedMeta,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let (state, meta) = (self.state.clone(), self.meta.clone());
        let snapshots = self.snapshots.clone();
        let written = tokio::task::spawn_blocking(move || snapshots.write(&state, meta)).await;
        let stored = written
            .map_err(|error| failed(ErrorSubject::Snapshot(None), ErrorVerb::Write, &error))?
            .map_err(|error| failed(ErrorSubject::Snapshot(None), ErrorVerb::Write, &error))?;
        Ok(Snapshot {
            meta: stored.meta(),
            snapshot: Box::new(stored),
        })
    }
}
