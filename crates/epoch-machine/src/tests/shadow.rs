//! What a checkpoint would hold: rows that are told of changes only.

use std::collections::BTreeMap;
use std::sync::Arc;

use epoch_core::RequestId;

use crate::admin::{AdminKey, AdminRow};
use crate::changes::{Changes, RowChange};
use crate::command::SessionKey;
use crate::load::{RecordRow, ScopeRow, SessionRow, SpentRow, WaitRow};
use crate::state::State;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shadow {
    sessions: BTreeMap<SessionKey, SessionRow>,
    scopes: BTreeMap<Arc<str>, ScopeRow>,
    spent: BTreeMap<(SessionKey, RequestId), SpentRow>,
    waits: BTreeMap<(Arc<str>, (u64, u32)), WaitRow>,
    records: BTreeMap<Arc<str>, RecordRow>,
    rare: BTreeMap<AdminKey, AdminRow>,
}

impl Shadow {
    pub(super) fn of(state: &State) -> Self {
        Self {
            sessions: state.session_rows().map(|row| (row.key, row)).collect(),
            scopes: state
                .scope_rows()
                .map(|row| (row.scope.shared(), row))
                .collect(),
            spent: state
                .spent_rows()
                .map(|row| ((row.session, row.request_id), row))
                .collect(),
            waits: state
                .wait_rows()
                .map(|row| ((row.scope.shared(), (row.index, row.offset)), row))
                .collect(),
            records: state
                .record_rows()
                .map(|row| (row.scope.shared(), row))
                .collect(),
            rare: state.admin_rows().map(|row| (row.key(), row)).collect(),
        }
    }

    /// Takes the changes over.
    pub(super) fn follow(&mut self, state: &State, changes: &Changes) {
        let rows: Vec<RowChange> = state.changed_rows(changes).collect();
        assert_eq!(rows.len(), changes.len());
        assert_eq!(rows.is_empty(), changes.is_empty());
        let places: Vec<_> = rows.iter().map(place).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        for row in rows {
            match row {
                RowChange::Session(key, row) => put(&mut self.sessions, key, row),
                RowChange::Scope(name, row) => put(&mut self.scopes, name, row),
                RowChange::Spent(key, id, row) => put(&mut self.spent, (key, id), row),
                RowChange::Wait(name, place, row) => put(&mut self.waits, (name, place), row),
                RowChange::Record(name, row) => put(&mut self.records, name, row),
                RowChange::Admin(key, row) => put(&mut self.rare, key, row),
            }
        }
    }
}

fn put<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: Option<V>) {
    match row {
        Some(row) => rows.insert(key, row),
        None => rows.remove(&key),
    };
}

type Sorted<'a> = (
    u8,
    Option<SessionKey>,
    &'a str,
    Option<RequestId>,
    (u64, u32),
    Option<&'a AdminKey>,
);

/// Sessions first, then scopes, spent ids, waits, records and rare rows.
fn place(row: &RowChange) -> Sorted<'_> {
    match row {
        RowChange::Session(key, _) => (0, Some(*key), "", None, (0, 0), None),
        RowChange::Scope(name, _) => (1, None, name, None, (0, 0), None),
        RowChange::Spent(key, id, _) => (2, Some(*key), "", Some(*id), (0, 0), None),
        RowChange::Wait(name, place, _) => (3, None, name, None, *place, None),
        RowChange::Admin(key, _) => (5, None, "", None, (0, 0), Some(key)),
        RowChange::Record(name, _) => (4, None, name, None, (0, 0), None),
    }
}
