//! Which rows have changed, for a checkpoint that writes no others.

use std::sync::Arc;

use epoch_core::RequestId;
use imbl::OrdSet;

use crate::command::SessionKey;
use crate::load::{ScopeRow, SessionRow};
use crate::state::State;

/// The keys of rows that have changed. Signing keys are not among them: they are few, and
/// [`Head`](crate::Head) has them all.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    sessions: OrdSet<SessionKey>,
    scopes: OrdSet<Arc<str>>,
    spent: OrdSet<(SessionKey, RequestId)>,
}

/// One changed row as it is now; `None` when it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowChange {
    /// A session.
    Session(SessionKey, Option<SessionRow>),
    /// A scope, by its name.
    Scope(Arc<str>, Option<ScopeRow>),
    /// A request id whose grant has ended, with its scope.
    Spent(SessionKey, RequestId, Option<Arc<str>>),
}

impl Changes {
    /// Whether no row has changed. Time and signing keys may have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows have changed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len() + self.scopes.len() + self.spent.len()
    }

    /// Adds those of another stretch of time, in any order: of a checkpoint that failed, so that
    /// the next one writes them too.
    pub fn merge(&mut self, other: Self) {
        self.sessions.extend(other.sessions);
        self.scopes.extend(other.scopes);
        self.spent.extend(other.spent);
    }

    pub(crate) fn session(&mut self, key: SessionKey) {
        self.sessions.insert(key);
    }

    pub(crate) fn scope(&mut self, name: &Arc<str>) {
        self.scopes.insert(Arc::clone(name));
    }

    pub(crate) fn spent(&mut self, key: SessionKey, request_id: RequestId) {
        self.spent.insert((key, request_id));
    }
}

impl State {
    /// From now on records which rows change, beginning with none. Off at first: a state that
    /// nobody takes the changes of must not grow; with it on, it does, by one key for each row that
    /// has come, changed or gone. A clone goes on from what is recorded here.
    ///
    /// Keys are recorded, rather than an old clone kept to compare with: the clone would keep a
    /// second copy of every leaf that changes, and make each first change of a leaf copy it.
    pub fn track_changes(&mut self) {
        self.rows.track_changes();
    }

    /// Which rows have changed since the last time, or since [`track_changes`](Self::track_changes);
    /// none without that.
    pub fn take_changes(&mut self) -> Changes {
        self.rows.take_changes()
    }

    /// The rows of `changes` as they are now: sessions, then scopes, then spent ids, each in order.
    pub fn changed_rows(&self, changes: &Changes) -> impl Iterator<Item = RowChange> {
        let sessions = changes
            .sessions
            .iter()
            .map(|key| RowChange::Session(*key, self.session_row(*key)));
        let scopes = changes
            .scopes
            .iter()
            .map(|name| RowChange::Scope(Arc::clone(name), self.scope_row(name)));
        let spent = changes.spent.iter().map(|(key, request_id)| {
            let scope = self.rows.spent().get(&(*key, *request_id));
            RowChange::Spent(*key, *request_id, scope.map(Arc::clone))
        });
        sessions.chain(scopes).chain(spent)
    }
}
