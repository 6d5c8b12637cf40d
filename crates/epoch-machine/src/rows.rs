//! The rows of the state. They change only here, so that none changes without its part of the
//! hash, its place among the changes, and what follows from it in its session.

use std::sync::Arc;

use epoch_core::{ClusterId, Epoch, Incarnation, Principal, RequestId};
use imbl::OrdMap;

use crate::admin::{AdminKey, AdminRow};
use crate::changes::Changes;
use crate::command::{Leadership, SessionKey};
use crate::hash::{HashedRow, RowSum, StateHash};
use crate::limits::Usage;
use crate::record::Record;
use crate::state::SessionState;
use crate::terms::{LockDelay, Terms, Wait};

/// A scope's row: its last epoch, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) epoch: Epoch,
    pub(crate) standing: Standing,
}

/// How a scope stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Held by nobody; with a lock delay other than zero, kept from all until it is over.
    Free(LockDelay),
    Held(Held),
}

/// The current grant of a row. Flat, to stay within the 48 bytes of [`Row`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) session_index: u64,
    /// `None` for a grant that was transferred: no request of its session asked for it.
    pub(crate) request_id: Option<RequestId>,
    pub(crate) index: u64,
    pub(crate) origin: Arc<Origin>,
    pub(crate) session_offset: u32,
    pub(crate) offset: u32,
}

/// What many grants have in common: plain ones of one leadership share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) leadership: Leadership,
    pub(crate) terms: Terms,
    /// The grant it was before, when it was transferred.
    pub(crate) before: Option<(SessionKey, Epoch)>,
}

// Memory per held scope is a stated bound: a row that grows breaks it.
const _: () = assert!(size_of::<Row>() == 48);

impl Row {
    pub(crate) fn free(epoch: Epoch) -> Self {
        Self {
            epoch,
            standing: Standing::Free(LockDelay::default()),
        }
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        match &self.standing {
            Standing::Held(held) => Some(held),
            Standing::Free(_) => None,
        }
    }

    /// For how long it is kept from all, while it is.
    pub(crate) fn delay(&self) -> Option<LockDelay> {
        match self.standing {
            Standing::Free(delay) => Some(delay).filter(|delay| !delay.is_zero()),
            Standing::Held(_) => None,
        }
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.delay().is_some()
    }
}

impl Held {
    pub(crate) fn session(&self) -> SessionKey {
        SessionKey {
            index: self.session_index,
            offset: self.session_offset,
        }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.origin.terms
    }
}

/// A request id of a session.
pub(crate) type SpentId = (SessionKey, RequestId);

/// What became of a request id that binds nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) scope: Arc<str>,
    pub(crate) what: SpentUse,
}

/// What a spent request id was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpentUse {
    /// A grant, which has ended.
    Grant,
    /// A wait, whose time ran out or whose caller went away.
    WaitExpired,
    /// A wait that was cancelled, or that must not begin any more.
    WaitCancelled,
}

/// A place in a scope's queue: the position of the acquire that waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) scope: Arc<str>,
    pub(crate) index: u64,
    pub(crate) offset: u32,
}

/// An acquire that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) session: SessionKey,
    pub(crate) request_id: RequestId,
    pub(crate) wait: Wait,
    pub(crate) terms: Terms,
}

/// All rows, with their hash and what has changed.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    sessions: OrdMap<SessionKey, SessionState>,
    scopes: OrdMap<Arc<str>, Row>,
    spent: OrdMap<SpentId, Spent>,
    waits: OrdMap<Place, Waiting>,
    records: OrdMap<Arc<str>, Record>,
    admin: OrdMap<AdminKey, AdminRow>,
    sum: RowSum,
    /// Bytes of all records: follows from them.
    record_bytes: usize,
    /// How many of the rare rows are permissions.
    permissions: usize,
    /// What each principal has: follows from the sessions that have one.
    usage: OrdMap<Principal, Usage>,
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
            waits,
            records,
            admin,
            sum: _,
            record_bytes,
            permissions,
            usage,
            changes: _,
        } = self;
        *sessions == other.sessions
            && *scopes == other.scopes
            && *spent == other.spent
            && *waits == other.waits
            && *records == other.records
            && *admin == other.admin
            && *record_bytes == other.record_bytes
            && *permissions == other.permissions
            && *usage == other.usage
    }
}

impl Eq for Rows {}

impl Rows {
    pub(crate) fn new(cluster_id: ClusterId) -> Self {
        Self {
            sessions: OrdMap::new(),
            scopes: OrdMap::new(),
            spent: OrdMap::new(),
            waits: OrdMap::new(),
            records: OrdMap::new(),
            admin: OrdMap::new(),
            sum: RowSum::new(cluster_id),
            record_bytes: 0,
            permissions: 0,
            usage: OrdMap::new(),
            changes: None,
        }
    }

    pub(crate) fn sessions(&self) -> &OrdMap<SessionKey, SessionState> {
        &self.sessions
    }

    pub(crate) fn scopes(&self) -> &OrdMap<Arc<str>, Row> {
        &self.scopes
    }

    /// Request ids that bind nothing any more.
    pub(crate) fn spent(&self) -> &OrdMap<SpentId, Spent> {
        &self.spent
    }

    /// All queues, one after another, each in its order.
    pub(crate) fn waits(&self) -> &OrdMap<Place, Waiting> {
        &self.waits
    }

    pub(crate) fn records(&self) -> &OrdMap<Arc<str>, Record> {
        &self.records
    }

    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Rows of which there are few.
    pub(crate) fn admin(&self) -> &OrdMap<AdminKey, AdminRow> {
        &self.admin
    }

    pub(crate) fn permissions(&self) -> usize {
        self.permissions
    }

    /// No principal is there that has nothing.
    pub(crate) fn usage(&self) -> &OrdMap<Principal, Usage> {
        &self.usage
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
        let principal = session.principal.as_ref();
        used(&mut self.usage, principal, |usage| {
            usage.plus(session.usage())
        });
        let old = self.sessions.insert(key, session)?;
        self.unsessioned(key, &old);
        Some(old)
    }

    pub(crate) fn remove_session(&mut self, key: SessionKey) -> Option<SessionState> {
        let old = self.sessions.remove(&key)?;
        if let Some(changes) = &mut self.changes {
            changes.session(key);
        }
        self.unsessioned(key, &old);
        Some(old)
    }

    fn unsessioned(&mut self, key: SessionKey, old: &SessionState) {
        self.sum.subtract(HashedRow::Session(key, old));
        used(&mut self.usage, old.principal.as_ref(), |usage| {
            usage.minus(old.usage())
        });
    }

    /// Counts a grant in its session, too.
    pub(crate) fn put_scope(&mut self, name: Arc<str>, row: Row) -> Option<Row> {
        if let Some(changes) = &mut self.changes {
            changes.scope(&name);
        }
        self.sum.add(HashedRow::Scope(&name, &row));
        if let Some(held) = row.held() {
            self.of_session(held.session(), |session| session.hold(&name, row.epoch));
        }
        let old = self.scopes.insert(Arc::clone(&name), row)?;
        self.unheld(&name, &old);
        Some(old)
    }

    pub(crate) fn remove_scope(&mut self, name: &str) -> Option<Row> {
        let (name, old) = self.scopes.remove_with_key(name)?;
        if let Some(changes) = &mut self.changes {
            changes.scope(&name);
        }
        self.unheld(&name, &old);
        Some(old)
    }

    fn unheld(&mut self, name: &Arc<str>, old: &Row) {
        self.sum.subtract(HashedRow::Scope(name, old));
        if let Some(held) = old.held() {
            self.of_session(held.session(), |session| session.let_go(name, old.epoch));
        }
    }

    /// Changes what follows from other rows: no part of the session's own.
    fn of_session(&mut self, key: SessionKey, change: impl FnOnce(&mut SessionState)) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let before = session.usage();
        change(session);
        used(&mut self.usage, session.principal.as_ref(), |usage| {
            usage.minus(before).plus(session.usage())
        });
    }

    /// Counts it in its session, too.
    pub(crate) fn put_spent(&mut self, id: SpentId, spent: Spent) -> Option<Spent> {
        let (key, request_id) = id;
        if let Some(changes) = &mut self.changes {
            changes.spent(key, request_id);
        }
        self.sum.add(HashedRow::Spent(key, request_id, &spent));
        let Some(old) = self.spent.insert(id, spent) else {
            self.of_session(key, |session| {
                session.spent = session.spent.saturating_add(1);
            });
            return None;
        };
        self.sum.subtract(HashedRow::Spent(key, request_id, &old));
        Some(old)
    }

    /// Uncounts it in its session, if that is still there.
    pub(crate) fn remove_spent(&mut self, id: SpentId) -> Option<Spent> {
        let (key, request_id) = id;
        let old = self.spent.remove(&id)?;
        if let Some(changes) = &mut self.changes {
            changes.spent(key, request_id);
        }
        self.sum.subtract(HashedRow::Spent(key, request_id, &old));
        self.of_session(key, |session| {
            session.spent = session.spent.saturating_sub(1);
        });
        Some(old)
    }

    /// Counts it in its session, too.
    pub(crate) fn put_wait(&mut self, place: Place, waiting: Waiting) -> Option<Waiting> {
        if let Some(changes) = &mut self.changes {
            changes.wait(&place);
        }
        self.sum.add(HashedRow::Wait(&place, &waiting));
        let key = waiting.session;
        self.of_session(key, |session| {
            session.waits = session.waits.saturating_add(1)
        });
        let old = self.waits.insert(place.clone(), waiting)?;
        self.unwaited(&place, &old);
        Some(old)
    }

    /// Uncounts it in its session, if that is still there.
    pub(crate) fn remove_wait(&mut self, place: &Place) -> Option<Waiting> {
        let old = self.waits.remove(place)?;
        if let Some(changes) = &mut self.changes {
            changes.wait(place);
        }
        self.unwaited(place, &old);
        Some(old)
    }

    fn unwaited(&mut self, place: &Place, old: &Waiting) {
        self.sum.subtract(HashedRow::Wait(place, old));
        self.of_session(old.session, |session| {
            session.waits = session.waits.saturating_sub(1);
        });
    }

    pub(crate) fn put_record(&mut self, scope: Arc<str>, record: Record) -> Option<Record> {
        if let Some(changes) = &mut self.changes {
            changes.record(&scope);
        }
        self.sum.add(HashedRow::Record(&scope, &record));
        self.record_bytes = self.record_bytes.saturating_add(record.bytes(&scope));
        let old = self.records.insert(Arc::clone(&scope), record)?;
        self.unrecorded(&scope, &old);
        Some(old)
    }

    pub(crate) fn remove_record(&mut self, scope: &str) -> Option<Record> {
        let (scope, old) = self.records.remove_with_key(scope)?;
        if let Some(changes) = &mut self.changes {
            changes.record(&scope);
        }
        self.unrecorded(&scope, &old);
        Some(old)
    }

    fn unrecorded(&mut self, scope: &str, old: &Record) {
        self.sum.subtract(HashedRow::Record(scope, old));
        self.record_bytes = self.record_bytes.saturating_sub(old.bytes(scope));
    }

    pub(crate) fn put_admin(&mut self, row: AdminRow) -> Option<AdminRow> {
        let key = row.key();
        if let Some(changes) = &mut self.changes {
            changes.admin(&key);
        }
        self.sum.add(HashedRow::Admin(&row));
        self.permissions = self.permissions.saturating_add(permissions_in(&row));
        let old = self.admin.insert(key, row)?;
        self.unadmitted(&old);
        Some(old)
    }

    pub(crate) fn remove_admin(&mut self, key: &AdminKey) -> Option<AdminRow> {
        let old = self.admin.remove(key)?;
        if let Some(changes) = &mut self.changes {
            changes.admin(key);
        }
        self.unadmitted(&old);
        Some(old)
    }

    fn unadmitted(&mut self, old: &AdminRow) {
        self.sum.subtract(HashedRow::Admin(old));
        self.permissions = self.permissions.saturating_sub(permissions_in(old));
    }
}

/// Changes what the principal of a session has, if it has one.
fn used(
    usage: &mut OrdMap<Principal, Usage>,
    principal: Option<&Principal>,
    change: impl FnOnce(Usage) -> Usage,
) {
    let Some(principal) = principal else {
        return;
    };
    let changed = change(usage.get(principal).copied().unwrap_or_default());
    if changed.is_none() {
        usage.remove(principal);
    } else {
        usage.insert(principal.clone(), changed);
    }
}

fn permissions_in(row: &AdminRow) -> usize {
    usize::from(matches!(row, AdminRow::Permission(_)))
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

    pub(crate) fn forget_usage_since(&mut self, earlier: &Self) {
        self.usage.clone_from(&earlier.usage);
    }
}
