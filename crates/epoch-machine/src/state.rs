//! The replicated state and its reads.

use std::ops::Bound;
use std::sync::Arc;

use epoch_core::{
    ClusterId, Epoch, Holder, Incarnation, NodeId, OpenId, Position, RequestId, Scope, SessionHash,
    SessionId,
};
use imbl::{OrdMap, OrdSet};

use crate::command::{Leadership, PublicKey, SessionKey, Ttl};
use crate::epoch_rule;
use crate::hash::StateHash;
use crate::outcome::{Grant, Refusal};
use crate::rows::{Held, Row, Rows};

/// Stands for the bounds that this crate's own tests could not reach in reasonable time.
const FEW: usize = 5_000;
/// Sessions at most. Bounds memory; part of the replicated behaviour.
pub const SESSIONS_MAX: usize = if cfg!(test) { FEW } else { 1_000_000 };
/// Current grants at most: 1.6 GB at 400 bytes each. Part of the replicated behaviour.
pub const GRANTS_MAX: usize = if cfg!(test) { FEW } else { 4_000_000 };
/// Signing keys at most. Part of the replicated behaviour.
pub const KEYS_MAX: usize = 64;
/// Request ids kept in a session after their grant has ended; those of current grants are kept
/// besides. Part of the replicated behaviour.
pub const SPENT_IDS_KEPT: u32 = 1_024;
/// Rows that one List looks at, so that a page over many free rows stays short.
const LIST_SCANNED_MAX: usize = 10_000;

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// Chosen by the client.
    pub open_id: OpenId,
    /// Whom it acts for.
    pub holder: Holder,
    /// Its time to live.
    pub ttl: Ttl,
    /// The highest request id forgotten; 0 when none is.
    pub forgotten: u64,
    pub(crate) spent: u32,
}

/// What anyone may know of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeState {
    /// Which.
    pub scope: Scope,
    /// The current grant's epoch.
    pub epoch: Epoch,
    /// Its holder.
    pub holder: Holder,
    /// The hash of its session's id.
    pub session: SessionHash,
    /// Where it was granted.
    pub position: Position,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Held scopes, in byte order.
    pub scopes: Vec<ScopeState>,
    /// Continue after this one; absent at the end.
    pub next: Option<Scope>,
}

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Live sessions.
    pub sessions: usize,
    /// Current grants.
    pub grants: usize,
    /// Rows of scopes, free ones that cannot be forgotten yet included.
    pub rows: usize,
    /// Request ids kept whose grant has ended.
    pub spent: usize,
}

/// The replicated state. A clone is O(1) and shares everything.
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) cluster_id: ClusterId,
    pub(crate) incarnation: Incarnation,
    pub(crate) group: u32,
    pub(crate) now_ms: u64,
    pub(crate) rows: Rows,
    /// Sessions by open id.
    pub(crate) open_ids: OrdMap<OpenId, SessionKey>,
    /// Request ids of current grants.
    pub(crate) bound: OrdMap<(SessionKey, RequestId), Arc<str>>,
    /// Free rows by last epoch: those that time has made forgettable come first.
    pub(crate) free: OrdSet<(Epoch, Arc<str>)>,
    /// The latest leadership that granted, shared by the rows it granted. Not part of the state:
    /// `apply` sets it before it is used.
    pub(crate) leadership: Arc<Leadership>,
}

/// Equal when every later entry has equal outcomes on both.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        // Taken apart, so that a new field cannot be left out by mistake.
        let Self {
            cluster_id,
            incarnation,
            group,
            now_ms,
            rows,
            open_ids,
            bound,
            free,
            leadership: _,
        } = self;
        *cluster_id == other.cluster_id
            && *incarnation == other.incarnation
            && *group == other.group
            && *now_ms == other.now_ms
            && *rows == other.rows
            && *open_ids == other.open_ids
            && *bound == other.bound
            && *free == other.free
    }
}

impl Eq for State {}

impl State {
    /// The state before the first entry.
    #[must_use]
    pub fn new(cluster_id: ClusterId, incarnation: Incarnation, group: u32) -> Self {
        Self {
            cluster_id,
            incarnation,
            group,
            now_ms: 0,
            rows: Rows::new(cluster_id),
            open_ids: OrdMap::new(),
            bound: OrdMap::new(),
            free: OrdSet::new(),
            leadership: Arc::new(Leadership { term: 0, node: 0 }),
        }
    }

    /// The cluster.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster_id
    }

    /// This life of its state.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The Raft group.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Replicated time, in milliseconds since 1970; never lowered.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The hash of everything that equality sees, in constant time.
    #[must_use]
    pub fn hash(&self) -> StateHash {
        self.rows.hash(self.incarnation, self.group, self.now_ms)
    }

    /// How much there is of everything.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.rows.sessions().len(),
            grants: self.bound.len(),
            rows: self.rows.scopes().len(),
            spent: self.rows.spent().len(),
        }
    }

    /// Every signing key, by node.
    pub fn keys(&self) -> impl Iterator<Item = (NodeId, &PublicKey)> {
        self.rows.keys().iter().map(|(node, key)| (*node, &**key))
    }

    /// Whether a node's key is known.
    #[must_use]
    pub fn has_key(&self, node: NodeId, public_key: &PublicKey) -> bool {
        self.rows.keys().contains(&(node, Arc::new(*public_key)))
    }

    /// Every live session.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionKey, &SessionState)> {
        self.rows
            .sessions()
            .iter()
            .map(|(key, session)| (*key, session))
    }

    /// A live session. The open id must match too: after a rollback of disks, the same position
    /// can be another session's.
    #[must_use]
    pub fn session(&self, id: &SessionId) -> Option<&SessionState> {
        self.rows
            .sessions()
            .get(&SessionKey::from(id))
            .filter(|session| session.open_id == id.open_id)
    }

    /// One scope; `None` when it is free or unknown.
    #[must_use]
    pub fn scope(&self, scope: &Scope) -> Option<ScopeState> {
        let row = self.rows.scopes().get(scope.as_str())?;
        self.scope_state(scope.as_str(), row)
    }

    /// Held scopes that begin with `prefix`, byte by byte, after `after`, `limit` at most (0 counts
    /// as 1: a page that holds nothing would have no place to continue from).
    #[must_use]
    pub fn list(&self, prefix: &str, after: Option<&Scope>, limit: usize) -> Page {
        let start = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let limit = limit.max(1);
        let mut page = Page {
            scopes: Vec::new(),
            next: None,
        };
        let mut last = None;
        let rows = self
            .rows
            .scopes()
            .range::<_, str>((start, Bound::Unbounded));
        for (scanned, (name, row)) in rows.enumerate() {
            if !name.starts_with(prefix) {
                break;
            }
            if page.scopes.len() == limit || scanned == LIST_SCANNED_MAX {
                page.next = last.and_then(|name: &Arc<str>| Scope::parse(name).ok());
                break;
            }
            page.scopes.extend(self.scope_state(name, row));
            last = Some(name);
        }
        page
    }

    /// The current grant that `session` holds in `scope` at `epoch`.
    ///
    /// # Errors
    /// The session is gone, the grant has ended or is another's, or was never made.
    pub fn current_grant(
        &self,
        scope: &Scope,
        session: &SessionId,
        epoch: Epoch,
    ) -> Result<Grant, Refusal> {
        let key = SessionKey::from(session);
        self.session(session).ok_or(Refusal::SessionExpired)?;
        let Some(row) = self.rows.scopes().get(scope.as_str()) else {
            return Err(self.without_row(epoch));
        };
        match &row.held {
            Some(held) if row.epoch == epoch && held.session() == key => self
                .grant(scope.clone(), row.epoch, held)
                .ok_or(Refusal::SessionExpired),
            Some(_) if row.epoch == epoch => Err(Refusal::NotTheHolder { epoch }),
            Some(_) | None if epoch > row.epoch => Err(Refusal::EpochUnknown { epoch }),
            Some(_) | None => Err(Refusal::Superseded {
                epoch: (row.epoch > epoch).then_some(row.epoch),
            }),
        }
    }

    /// What to say of an epoch in a scope that has no row: one that time has passed may have been
    /// granted, a later one cannot have been.
    pub(crate) fn without_row(&self, epoch: Epoch) -> Refusal {
        if epoch_rule::forgettable(epoch, self.now_ms) {
            Refusal::Superseded { epoch: None }
        } else {
            Refusal::EpochUnknown { epoch }
        }
    }

    pub(crate) fn position(&self, leadership: &Leadership, index: u64, offset: u32) -> Position {
        Position {
            group: self.group,
            term: leadership.term,
            leader: leadership.node,
            index,
            offset,
        }
    }

    /// `None` only if the row named a session that is gone, which [`Loader`](crate::Loader) and
    /// `apply` rule out.
    pub(crate) fn grant(&self, scope: Scope, epoch: Epoch, held: &Held) -> Option<Grant> {
        let key = held.session();
        let session = self.rows.sessions().get(&key)?;
        Some(Grant {
            scope,
            epoch,
            holder: session.holder.clone(),
            session: SessionId {
                open_id: session.open_id,
                index: key.index,
                offset: key.offset,
            },
            request_id: held.request_id,
            position: self.position(&held.leadership, held.index, held.offset),
        })
    }

    fn scope_state(&self, name: &str, row: &Row) -> Option<ScopeState> {
        let grant = self.grant(Scope::parse(name).ok()?, row.epoch, row.held.as_ref()?)?;
        Some(ScopeState {
            scope: grant.scope,
            epoch: grant.epoch,
            holder: grant.holder,
            session: grant.session.hash(),
            position: grant.position,
        })
    }
}
