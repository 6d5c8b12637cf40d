//! The replicated state of this node, and how far the log is applied to it.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use epoch_machine::{Changes, State};

use super::types::AppliedMeta;

/// The state, written by the apply loop only. Reads take a short lock and never copy the state.
#[derive(Debug, Clone)]
pub(crate) struct SharedState(Arc<RwLock<Replicated>>);

/// What one lock guards, so that a copy of it is of one index.
#[derive(Debug)]
pub(super) struct Replicated {
    pub(super) state: State,
    pub(super) applied: AppliedMeta,
    /// Since which index the state's changes are recorded; `None` for no index that it was at.
    recorded_since: Option<u64>,
}

/// A state as of one index, for the checkpoint or a snapshot.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) state: State,
    pub(super) applied: AppliedMeta,
    /// What has changed ...
    pub(super) changes: Changes,
    /// ... since this index.
    pub(super) since: Option<u64>,
}

impl SharedState {
    pub(super) fn new(mut state: State, applied: AppliedMeta) -> Self {
        state.track_changes();
        let recorded_since = applied.last_log_id.map(|id| id.index);
        Self(Arc::new(RwLock::new(Replicated {
            state,
            applied,
            recorded_since,
        })))
    }

    /// The state as of now. Not to be held across an await.
    pub(crate) fn read(&self) -> StateRead<'_> {
        // A panic ends the process, so a poisoned lock is never seen by anyone.
        StateRead(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Replicated> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the log is applied.
    pub(super) fn applied(&self) -> AppliedMeta {
        self.read().0.applied.clone()
    }

    /// Goes on from a snapshot.
    pub(super) fn install(&self, mut state: State, applied: AppliedMeta) {
        state.track_changes();
        let mut replicated = self.write();
        replicated.recorded_since = applied.last_log_id.map(|id| id.index);
        replicated.applied = applied;
        let old = std::mem::replace(&mut replicated.state, state);
        drop(replicated);
        // Dropping a large state takes a while: nobody has to wait for it.
        drop(old);
    }

    /// The state as of now, sharing everything with it, and what has changed since this was last
    /// asked, or since the snapshot that was installed after that.
    pub(super) fn freeze(&self) -> Frozen {
        let mut replicated = self.write();
        let now = replicated.applied.last_log_id.map(|id| id.index);
        Frozen {
            changes: replicated.state.take_changes(),
            since: std::mem::replace(&mut replicated.recorded_since, now),
            state: replicated.state.clone(),
            applied: replicated.applied.clone(),
        }
    }
}

/// See [`SharedState::read`].
pub(crate) struct StateRead<'a>(RwLockReadGuard<'a, Replicated>);

impl StateRead<'_> {
    /// The log index that it is the state of.
    pub(crate) fn index(&self) -> u64 {
        self.0.applied.last_log_id.map_or(0, |id| id.index)
    }
}

impl Deref for StateRead<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.state
    }
}
