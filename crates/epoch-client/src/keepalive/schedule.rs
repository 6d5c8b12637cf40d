//! When which session is looked at next.

use std::collections::{BTreeMap, BTreeSet};

use epoch_core::SessionId;

use crate::lease::Lease;

/// Where a session's keepalive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The next one is due then.
    Idle {
        due_ms: u64,
        /// The last one was refused for want of progress.
        stalled: bool,
    },
    /// It is due, and goes out as soon as a stream takes it.
    Held,
    /// It is under way.
    Asked(Asked),
}

/// A keepalive under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) stream: u64,
    pub(super) sent_ms: u64,
    pub(super) progress: Option<u64>,
}

impl Stage {
    pub(super) fn due(due_ms: u64) -> Self {
        Self::Idle {
            due_ms,
            stalled: false,
        }
    }

    /// When it is over by itself; an answer may take `attempt_ms_max`.
    pub(super) fn ends_ms(&self, lease: Lease, attempt_ms_max: u64) -> Option<u64> {
        match self {
            Self::Idle { due_ms, .. } => Some(*due_ms),
            Self::Held => None,
            Self::Asked(asked) => {
                let attempt_ms = lease.attempt_ms().min(attempt_ms_max);
                Some(asked.sent_ms.saturating_add(attempt_ms))
            }
        }
    }
}

/// Every session once by time, and those held once more by urgency.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    places: BTreeMap<SessionId, Place>,
    queue: BTreeSet<(u64, SessionId)>,
    held: BTreeSet<(u64, SessionId)>,
}

#[derive(Debug)]
struct Place {
    wake_ms: u64,
    /// Present for those held: the end of their lease.
    held_ms: Option<u64>,
}

impl Schedule {
    /// Places a session anew: looked at again at `wake_ms`, and held if `held_ms` is present, the
    /// lowest of which is the most urgent.
    pub(super) fn set(&mut self, id: SessionId, wake_ms: u64, held_ms: Option<u64>) {
        self.remove(id);
        self.queue.insert((wake_ms, id));
        if let Some(held_ms) = held_ms {
            self.held.insert((held_ms, id));
        }
        self.places.insert(id, Place { wake_ms, held_ms });
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&(place.wake_ms, id));
            if let Some(held_ms) = place.held_ms {
                self.held.remove(&(held_ms, id));
            }
        }
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        self.queue.first().map(|(wake_ms, _)| *wake_ms)
    }

    /// The sessions whose time has come. They must be placed anew, or removed.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<SessionId> {
        let mut due = Vec::new();
        while self.next_ms().is_some_and(|wake_ms| wake_ms <= now_ms)
            && let Some((_, id)) = self.queue.pop_first()
        {
            due.push(id);
        }
        due
    }

    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// At most `count` of those held, the most urgent first. They must be placed anew.
    pub(super) fn take_held(&mut self, count: usize) -> Vec<SessionId> {
        let mut taken = Vec::with_capacity(count.min(self.held.len()));
        while taken.len() < count
            && let Some((_, id)) = self.held.pop_first()
        {
            taken.push(id);
        }
        taken
    }
}
