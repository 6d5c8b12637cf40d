//! The rows of the state. They change only here, so that none changes without its part of the
//! hash and its place among the changes.

use std::sync::Arc;

use epoch_core::{ClusterId, Epoch, Incarnation, NodeId, RequestId};
use imbl::{OrdMap, OrdSet};

use crate::changes::Changes;
use crate::command::{Leadership, PublicKey, SessionKey};
use crate::hash::{HashedRow, RowSum, StateHash};
use crate::state::SessionState;

/// A scope's row: its last epoch, and its current grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) epoch: Epoch,
    pub(crate) held: Option<Held>,
}

/// The current grant of a row. Flat, to stay within the 48 bytes of [`Row`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) session_index: u64,
    pub(crate) request_id: RequestId,
    pub(crate) index: u64,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) session_offset: u32,
    pub(crate) offset: u32,
}

// Memory per held scope is a stated bound: a row that grows breaks it.
const _: () = assert!(size_of::<Row>() == 48);

impl Held {
    pub(crate) fn session(&self) -> SessionKey {
        SessionKey {
            index: self.session_index,
            offset: self.session_offset,
        }
    }
}

/// A request id of a session.
pub(crate) type SpentId = (SessionKey, RequestId);

/// All rows, with their hash and what has changed.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    sessions: OrdMap<SessionKey, SessionState>,
    scopes: OrdMap<Arc<str>, Row>,
    /// Request ids whose grant has ended.
    spent: OrdMap<SpentId, Arc<str>>,
    keys: OrdSet<(NodeId, Arc<PublicKey>)>,
    sum: RowSum,
    /// `None` while nobody asks for them.
    changes: Option<Changes>,
}

/// The hash follows from the rows, and what has changed is no part of the state.
impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        // Taken apart, so that a new field cannot be left out by mistake.
        let Self {
            sessions,
            scopes,
            spent,
            keys,
            sum: _,
            changes: _,
        } = self;
        *sessions == other.sessions
            && *scopes == other.scopes
            && *spent == other.spent
            && *keys == other.keys
    }
}

impl Eq for Rows {}

impl Rows {
    pub(crate) fn new(cluster_id: ClusterId) -> Self {
        Self {
            sessions: OrdMap::new(),
            scopes: OrdMap::new(),
            spent: OrdMap::new(),
            keys: OrdSet::new(),
            sum: RowSum::new(cluster_id),
            changes: None,
        }
    }

    pub(crate) fn sessions(&self) -> &OrdMap<SessionKey, SessionState> {
        &self.sessions
    }

    pub(crate) fn scopes(&self) -> &OrdMap<Arc<str>, Row> {
        &self.scopes
    }

    /// Request ids whose grant has ended.
    pub(crate) fn spent(&self) -> &OrdMap<SpentId, Arc<str>> {
        &self.spent
    }

    pub(crate) fn keys(&self) -> &OrdSet<(NodeId, Arc<PublicKey>)> {
        &self.keys
    }

    pub(crate) fn hash(&self, incarnation: Incarnation, group: u32, now_ms: u64) -> StateHash {
        self.sum.finish(incarnation, group, now_ms)
    }

    pub(crate) fn track_changes(&mut self) {
        self.changes = Some(Changes::default());
    }

    pub(crate) fn take_changes(&mut self) -> Changes {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The row that was there before, as with every change here.
    pub(crate) fn put_session(
        &mut self,
        key: SessionKey,
        session: SessionState,
    ) -> Option<SessionState> {
        if let Some(changes) = &mut self.changes {
            changes.session(key);
        }
        self.sum.add(HashedRow::Session(key, &session));
        let old = self.sessions.insert(key, session)?;
        self.sum.subtract(HashedRow::Session(key, &old));
        Some(old)
    }

    pub(crate) fn remove_session(&mut self, key: SessionKey) -> Option<SessionState> {
        let old = self.sessions.remove(&key)?;
        if let Some(changes) = &mut self.changes {
            changes.session(key);
        }
        self.sum.subtract(HashedRow::Session(key, &old));
        Some(old)
    }

    pub(crate) fn put_scope(&mut self, name: Arc<str>, row: Row) -> Option<Row> {
        if let Some(changes) = &mut self.changes {
            changes.scope(&name);
        }
        self.sum.add(HashedRow::Scope(&name, &row));
        let old = self.scopes.insert(Arc::clone(&name), row)?;
        self.sum.subtract(HashedRow::Scope(&name, &old));
        Some(old)
    }

    pub(crate) fn remove_scope(&mut self, name: &str) -> Option<Row> {
        let (name, old) = self.scopes.remove_with_key(name)?;
        if let Some(changes) = &mut self.changes {
            changes.scope(&name);
        }
        self.sum.subtract(HashedRow::Scope(&name, &old));
        Some(old)
    }

    /// Counts it in its session, too.
    pub(crate) fn put_spent(&mut self, id: SpentId, scope: Arc<str>) -> Option<Arc<str>> {
        let (key, request_id) = id;
        if let Some(changes) = &mut self.changes {
            changes.spent(key, request_id);
        }
        self.sum.add(HashedRow::Spent(key, request_id, &scope));
        let Some(old) = self.spent.insert(id, scope) else {
            // Follows from the spent ids: no part of the session's row.
            if let Some(session) = self.sessions.get_mut(&key) {
                session.spent = session.spent.saturating_add(1);
            }
            return None;
        };
        self.sum.subtract(HashedRow::Spent(key, request_id, &old));
        Some(old)
    }

    /// Uncounts it in its session, if that is still there.
    pub(crate) fn remove_spent(&mut self, id: SpentId) -> Option<Arc<str>> {
        let (key, request_id) = id;
        let old = self.spent.remove(&id)?;
        if let Some(changes) = &mut self.changes {
            changes.spent(key, request_id);
        }
        self.sum.subtract(HashedRow::Spent(key, request_id, &old));
        if let Some(session) = self.sessions.get_mut(&key) {
            session.spent = session.spent.saturating_sub(1);
        }
        Some(old)
    }

    /// False when it was there already.
    pub(crate) fn put_key(&mut self, node: NodeId, public_key: Arc<PublicKey>) -> bool {
        if self.keys.contains(&(node, Arc::clone(&public_key))) {
            return false;
        }
        self.sum.add(HashedRow::Key(node, &public_key));
        self.keys.insert((node, public_key));
        true
    }
}

/// Bugs that the tests plant.
#[cfg(test)]
impl Rows {
    pub(crate) fn forget_hash_since(&mut self, earlier: &Self) {
        self.sum = earlier.sum;
    }

    pub(crate) fn forget_changes_since(&mut self, earlier: &Self) {
        self.changes.clone_from(&earlier.changes);
    }
}
