//! What a checkpoint would hold: rows that are told of changes only.

use std::collections::BTreeMap;
use std::sync::Arc;

use epoch_core::RequestId;

use crate::changes::{Changes, RowChange};
use crate::command::SessionKey;
use crate::load::{ScopeRow, SessionRow};
use crate::state::State;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shadow {
    sessions: BTreeMap<SessionKey, SessionRow>,
    scopes: BTreeMap<Arc<str>, ScopeRow>,
    spent: BTreeMap<(SessionKey, RequestId), Arc<str>>,
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
                .map(|(key, id, scope)| ((key, id), scope.shared()))
                .collect(),
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
                RowChange::Spent(key, id, scope) => put(&mut self.spent, (key, id), scope),
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

/// Sessions first, then scopes, then spent ids.
fn place(row: &RowChange) -> (u8, Option<SessionKey>, &str, Option<RequestId>) {
    match row {
        RowChange::Session(key, _) => (0, Some(*key), "", None),
        RowChange::Scope(name, _) => (1, None, name, None),
        RowChange::Spent(key, id, _) => (2, Some(*key), "", Some(*id)),
    }
}
