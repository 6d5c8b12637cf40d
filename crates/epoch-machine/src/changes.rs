//! Which rows have changed, for a checkpoint that writes no others.

use std::sync::Arc;

use epoch_core::RequestId;
use imbl::OrdSet;

use crate::admin::{AdminKey, AdminRow};
use crate::command::SessionKey;
use crate::load::{RecordRow, ScopeRow, SessionRow, SpentRow, WaitRow};
use crate::rows::Place;
use crate::state::State;

/// The keys of rows that have changed.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    sessions: OrdSet<SessionKey>,
    scopes: OrdSet<Arc<str>>,
    spent: OrdSet<(SessionKey, RequestId)>,
    waits: OrdSet<Place>,
    records: OrdSet<Arc<str>>,
    admin: OrdSet<AdminKey>,
}

/// One changed row as it is now; `None` when it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowChange {
    /// A session.
    Session(SessionKey, Option<SessionRow>),
    /// A scope, by its name.
    Scope(Arc<str>, Option<ScopeRow>),
    /// A request id that binds nothing any more.
    Spent(SessionKey, RequestId, Option<SpentRow>),
    /// A wait: its scope and the position of its acquire.
    Wait(Arc<str>, (u64, u32), Option<WaitRow>),
    /// A scope's record.
    Record(Arc<str>, Option<RecordRow>),
    /// A rare row.
    Admin(AdminKey, Option<AdminRow>),
}

impl Changes {
    /// Whether no row has changed. Time may have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows have changed.
    #[must_use]
    pub fn len(&self) -> usize {
        let Self {
            sessions,
            scopes,
            spent,
            waits,
            records,
            admin,
        } = self;
        sessions.len() + scopes.len() + spent.len() + waits.len() + records.len() + admin.len()
    }

    /// Adds those of another stretch of time, in any order: of a checkpoint that failed, so that
    /// the next one writes them too.
    pub fn merge(&mut self, other: Self) {
        self.sessions.extend(other.sessions);
        self.scopes.extend(other.scopes);
        self.spent.extend(other.spent);
        self.waits.extend(other.waits);
        self.records.extend(other.records);
        self.admin.extend(other.admin);
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

    pub(crate) fn wait(&mut self, place: &Place) {
        self.waits.insert(place.clone());
    }

    pub(crate) fn record(&mut self, scope: &Arc<str>) {
        self.records.insert(Arc::clone(scope));
    }

    pub(crate) fn admin(&mut self, key: &AdminKey) {
        self.admin.insert(key.clone());
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

    /// The rows of `changes` as they are now: sessions, scopes, spent ids, waits, records, then rare
    /// rows, each in order.
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
            RowChange::Spent(*key, *request_id, self.spent_row(*key, *request_id))
        });
        let waits = changes.waits.iter().map(|place| {
            let row = self.wait_row(place);
            RowChange::Wait(Arc::clone(&place.scope), (place.index, place.offset), row)
        });
        let records = changes
            .records
            .iter()
            .map(|scope| RowChange::Record(Arc::clone(scope), self.record_row(scope)));
        let admin = changes
            .admin
            .iter()
            .map(|key| RowChange::Admin(key.clone(), self.admin_row(key)));
        sessions
            .chain(scopes)
            .chain(spent)
            .chain(waits)
            .chain(records)
            .chain(admin)
    }
}
