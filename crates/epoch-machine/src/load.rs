//! The state as rows, for snapshots and checkpoints.

mod loader;

use epoch_core::{ClusterId, Epoch, Holder, Incarnation, OpenId, Principal, RequestId, Scope};

use crate::admin::{AdminKey, AdminRow};
use crate::command::{HolderKey, Leadership, SessionKey, Ttl};
use crate::record::Record;
use crate::rows::{Place, Row, Spent, SpentUse, Standing, Waiting};
use crate::state::{SessionState, State};
use crate::terms::{LockDelay, Terms, Wait};

pub use loader::{LoadError, Loader};

/// What is not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// This life of its state.
    pub incarnation: Incarnation,
    /// The Raft group.
    pub group: u32,
    /// Replicated time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// A session as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The position of its Open.
    pub key: SessionKey,
    /// Chosen by the client.
    pub open_id: OpenId,
    /// Whom it acts for.
    pub holder: Holder,
    /// Its time to live.
    pub ttl: Ttl,
    /// How long keepalives renew it without progress.
    pub stall_limit: Option<Ttl>,
    /// Who opened it, where that is known.
    pub principal: Option<Principal>,
    /// The thumbprint of the key that its holder proves to have.
    pub holder_key: Option<HolderKey>,
    /// The highest request id forgotten; 0 when none is.
    pub forgotten: u64,
}

/// A scope as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeRow {
    /// Which.
    pub scope: Scope,
    /// Its last epoch.
    pub epoch: Epoch,
    /// How it stands.
    pub standing: StandingRow,
}

/// How a scope stands, as part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StandingRow {
    /// Held by nobody, and kept from all for a lock delay if it is not zero.
    Free(LockDelay),
    /// Held.
    Held(HeldRow),
}

/// A current grant as part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    /// Whose.
    pub session: SessionKey,
    /// Under which request id; `None` when it was transferred.
    pub request_id: Option<RequestId>,
    /// Under which leadership it was granted.
    pub leadership: Leadership,
    /// At which log index.
    pub index: u64,
    /// At which offset of the batch.
    pub offset: u32,
    /// What else was asked for.
    pub terms: Terms,
    /// The grant it was before, when it was transferred.
    pub before: Option<(SessionKey, Epoch)>,
}

/// A request id that binds nothing any more, as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpentRow {
    /// Whose.
    pub session: SessionKey,
    /// Which.
    pub request_id: RequestId,
    /// For which scope.
    pub scope: Scope,
    /// What it was.
    pub what: SpentUse,
}

/// A wait as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRow {
    /// For what.
    pub scope: Scope,
    /// The log index of its acquire.
    pub index: u64,
    /// Its offset in the batch.
    pub offset: u32,
    /// Whose.
    pub session: SessionKey,
    /// Under which request id.
    pub request_id: RequestId,
    /// For how long at most.
    pub wait: Wait,
    /// What else was asked for.
    pub terms: Terms,
}

/// A record as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordRow {
    /// Whose record.
    pub scope: Scope,
    /// The record.
    pub record: Record,
}

impl State {
    /// What is not a row.
    #[must_use]
    pub fn head(&self) -> Head {
        Head {
            cluster_id: self.cluster_id,
            incarnation: self.incarnation,
            group: self.group,
            now_ms: self.now_ms,
        }
    }

    /// Sessions as rows, in order.
    pub fn session_rows(&self) -> impl Iterator<Item = SessionRow> {
        let sessions = self.rows.sessions().iter();
        sessions.map(|(key, session)| SessionRow::new(*key, session))
    }

    /// Scopes as rows, in byte order.
    pub fn scope_rows(&self) -> impl Iterator<Item = ScopeRow> {
        let scopes = self.rows.scopes().iter();
        scopes.filter_map(|(name, row)| ScopeRow::new(name, row))
    }

    /// Request ids that bind nothing any more, in order.
    pub fn spent_rows(&self) -> impl Iterator<Item = SpentRow> {
        let spent = self.rows.spent().iter();
        spent.filter_map(|((session, request_id), spent)| {
            SpentRow::new(*session, *request_id, spent)
        })
    }

    /// Waits, queue after queue, each in its order.
    pub fn wait_rows(&self) -> impl Iterator<Item = WaitRow> {
        let waits = self.rows.waits().iter();
        waits.filter_map(|(place, waiting)| WaitRow::new(place, waiting))
    }

    /// Records, by scope in byte order.
    pub fn record_rows(&self) -> impl Iterator<Item = RecordRow> {
        let records = self.rows.records().iter();
        records.filter_map(|(name, record)| RecordRow::new(name, record))
    }

    /// Rare rows, in the order of their keys.
    pub fn admin_rows(&self) -> impl Iterator<Item = AdminRow> {
        self.rows.admin().values().cloned()
    }

    pub(crate) fn session_row(&self, key: SessionKey) -> Option<SessionRow> {
        let session = self.rows.sessions().get(&key)?;
        Some(SessionRow::new(key, session))
    }

    pub(crate) fn scope_row(&self, name: &str) -> Option<ScopeRow> {
        ScopeRow::new(name, self.rows.scopes().get(name)?)
    }

    pub(crate) fn spent_row(&self, session: SessionKey, request_id: RequestId) -> Option<SpentRow> {
        let spent = self.rows.spent().get(&(session, request_id))?;
        SpentRow::new(session, request_id, spent)
    }

    pub(crate) fn wait_row(&self, place: &Place) -> Option<WaitRow> {
        WaitRow::new(place, self.rows.waits().get(place)?)
    }

    pub(crate) fn record_row(&self, name: &str) -> Option<RecordRow> {
        RecordRow::new(name, self.rows.records().get(name)?)
    }

    pub(crate) fn admin_row(&self, key: &AdminKey) -> Option<AdminRow> {
        self.rows.admin().get(key).cloned()
    }
}

impl SessionRow {
    fn new(key: SessionKey, session: &SessionState) -> Self {
        Self {
            key,
            open_id: session.open_id,
            holder: session.holder.clone(),
            ttl: session.ttl,
            stall_limit: session.stall_limit,
            principal: session.principal.clone(),
            holder_key: session.holder_key,
            forgotten: session.forgotten,
        }
    }
}

// None of these is ever `None`: every name in the maps was a scope when it came in.
impl ScopeRow {
    fn new(name: &str, row: &Row) -> Option<Self> {
        let standing = match &row.standing {
            Standing::Free(delay) => StandingRow::Free(*delay),
            Standing::Held(held) => StandingRow::Held(HeldRow {
                session: held.session(),
                request_id: held.request_id,
                leadership: held.origin.leadership,
                index: held.index,
                offset: held.offset,
                terms: held.terms().clone(),
                before: held.origin.before,
            }),
        };
        Some(Self {
            scope: Scope::parse(name).ok()?,
            epoch: row.epoch,
            standing,
        })
    }
}

impl SpentRow {
    fn new(session: SessionKey, request_id: RequestId, spent: &Spent) -> Option<Self> {
        Some(Self {
            session,
            request_id,
            scope: Scope::parse(&spent.scope).ok()?,
            what: spent.what,
        })
    }
}

impl WaitRow {
    fn new(place: &Place, waiting: &Waiting) -> Option<Self> {
        Some(Self {
            scope: Scope::parse(&place.scope).ok()?,
            index: place.index,
            offset: place.offset,
            session: waiting.session,
            request_id: waiting.request_id,
            wait: waiting.wait,
            terms: waiting.terms.clone(),
        })
    }
}

impl RecordRow {
    fn new(name: &str, record: &Record) -> Option<Self> {
        Some(Self {
            scope: Scope::parse(name).ok()?,
            record: record.clone(),
        })
    }
}
