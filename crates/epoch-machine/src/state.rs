//! The replicated state.

mod admin;
mod derived;
mod read;
mod request;
mod trust;

use std::sync::Arc;

use epoch_core::{
    BUNDLE_KEYS_MAX, BUNDLE_NODES_MAX, ClusterId, Epoch, GrantsDigest, Holder, Incarnation, OpenId,
    Position, Principal, RequestId, Scope, SessionId,
};
use imbl::{OrdMap, OrdSet};

use crate::command::{HolderKey, Leadership, SessionKey, Ttl};
use crate::epoch_rule;
use crate::hash::StateHash;
use crate::limits::Usage;
use crate::outcome::{Grant, Refusal};
use crate::rows::{Held, Origin, Place, Rows};
use crate::terms::Terms;
use crate::token::TokenHash;

pub use admin::{AuditPage, PermissionPage};
pub use read::{HeldState, Page, QueuedWait, ScopeState, SessionItem, SessionPage, SessionPlace};
pub use request::Requested;
pub use trust::{CERTIFICATE_LIFE_S, KeyStanding, NodeKey};

/// Stands for the bounds that this crate's own tests could not reach in reasonable time.
const FEW: usize = 5_000;
/// Sessions at most. Bounds memory; part of the replicated behaviour.
pub const SESSIONS_MAX: usize = if cfg!(test) { FEW } else { 1_000_000 };
/// Current grants at most, scopes in their lock delay included: each keeps its place for who waits
/// for it, and delays are bounded with them. 1.6 GB at 400 bytes each. Part of the replicated
/// behaviour.
pub const GRANTS_MAX: usize = if cfg!(test) { FEW } else { 4_000_000 };
/// Bundles at most since the last one that the root key signed: ten years of them, or more. Part of
/// the replicated behaviour.
pub const BUNDLES_MAX: usize = if cfg!(test) { 8 } else { 1_024 };
/// Signing keys of one node in a bundle at most: all nodes' fit in it. Part of the replicated
/// behaviour.
pub const KEYS_OF_NODE_MAX: usize = 3;
/// Offered keys at most: those of all nodes of a bundle, and of as many others as are likely to be
/// added at once. Part of the replicated behaviour.
pub const OFFERS_MAX: usize = if cfg!(test) { 12 } else { 32 };
/// Keys that have left the bundle, or are to, which are remembered: more than a bundle can have.
/// Part of the replicated behaviour.
pub const RETIRED_KEPT: usize = if cfg!(test) { 40 } else { 1_024 };
const _: () = assert!(OFFERS_MAX > BUNDLE_NODES_MAX && RETIRED_KEPT > BUNDLE_KEYS_MAX);
const _: () = assert!(KEYS_OF_NODE_MAX * BUNDLE_NODES_MAX <= BUNDLE_KEYS_MAX);
/// Permissions at most. Part of the replicated behaviour.
pub const PERMISSIONS_MAX: usize = if cfg!(test) { 100 } else { 10_000 };
/// Permissions of one principal at most: each of its calls may look at all of them. Part of the
/// replicated behaviour.
pub const PERMISSIONS_OF_ONE_MAX: usize = 64;
/// Tokens at most. Part of the replicated behaviour.
pub const TOKENS_MAX: usize = if cfg!(test) { 40 } else { 10_000 };
/// Tokens of one principal at most. Part of the replicated behaviour.
pub const TOKENS_OF_ONE_MAX: usize = 16;
/// Principals with limits at most. Part of the replicated behaviour.
pub const LIMITED_MAX: usize = if cfg!(test) { 100 } else { 10_000 };
/// Audit records kept: the newest ones. Part of the replicated behaviour.
pub const AUDIT_KEPT: u64 = if cfg!(test) { 32 } else { 1_024 };
/// Request ids kept in a session after their grant has ended; those of current grants are kept
/// besides. Part of the replicated behaviour.
pub const SPENT_IDS_KEPT: u32 = 1_024;
/// Waits for one scope at most. Part of the replicated behaviour.
pub const QUEUE_MAX: usize = if cfg!(test) { 8 } else { 10_000 };
/// Waits for all scopes together at most. Part of the replicated behaviour.
pub const WAITS_MAX: usize = if cfg!(test) { FEW } else { 1_000_000 };
/// Bytes of all records at most, with their scopes and intents: 256 MiB. Part of the replicated
/// behaviour.
pub const RECORD_BYTES_MAX: usize = if cfg!(test) { 1 << 16 } else { 256 << 20 };

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
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
    // What follows from other rows.
    pub(crate) spent: u32,
    pub(crate) grants: u32,
    pub(crate) waits: u32,
    pub(crate) digest: GrantsDigest,
}

impl SessionState {
    pub(crate) fn new(open_id: OpenId, holder: Holder, ttl: Ttl, stall_limit: Option<Ttl>) -> Self {
        Self {
            open_id,
            holder,
            ttl,
            stall_limit,
            principal: None,
            holder_key: None,
            forgotten: 0,
            spent: 0,
            grants: 0,
            waits: 0,
            digest: GrantsDigest::default(),
        }
    }

    /// The digest of its current grants.
    #[must_use]
    pub fn digest(&self) -> GrantsDigest {
        self.digest
    }

    /// How many grants it has.
    #[must_use]
    pub fn grants(&self) -> u32 {
        self.grants
    }

    /// How many waits it has.
    #[must_use]
    pub fn waits(&self) -> u32 {
        self.waits
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            sessions: 1,
            grants: self.grants,
            waits: self.waits,
        }
    }

    pub(crate) fn hold(&mut self, scope: &str, epoch: Epoch) {
        self.grants = self.grants.saturating_add(1);
        self.digest = self.digest.with(scope, epoch);
    }

    pub(crate) fn let_go(&mut self, scope: &str, epoch: Epoch) {
        self.grants = self.grants.saturating_sub(1);
        self.digest = self.digest.without(scope, epoch);
    }
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
    /// Request ids kept that bind nothing any more.
    pub spent: usize,
    /// Acquires that wait.
    pub waits: usize,
    /// Records, removed ones that are still remembered included.
    pub records: usize,
    /// Bytes of all records, as their bound counts them.
    pub record_bytes: usize,
    /// Rare rows: permissions, tokens, limits, audit records, and what concerns signing keys.
    pub admin: usize,
}

/// The replicated state. A clone is O(1) and shares everything.
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) cluster_id: ClusterId,
    pub(crate) incarnation: Incarnation,
    pub(crate) group: u32,
    pub(crate) now_ms: u64,
    pub(crate) rows: Rows,
    /// Sessions by principal and open id: what another principal has opened is as if it were not
    /// there.
    pub(crate) open_ids: OrdMap<(Option<Principal>, OpenId), SessionKey>,
    /// Sessions by the first bytes of the hash that others are shown.
    pub(crate) session_hashes: OrdSet<(u64, SessionKey)>,
    /// Current grants by session and request id; transferred ones have none.
    pub(crate) bound: OrdSet<(SessionKey, Option<RequestId>, Arc<str>)>,
    /// The places of waits by session and request id.
    pub(crate) waiting: OrdMap<(SessionKey, RequestId), Place>,
    /// The places of waits by scope and session: a session waits for a scope once.
    pub(crate) queued: OrdMap<(Arc<str>, SessionKey), (u64, u32)>,
    /// How many wait for a scope; no row where nobody does.
    pub(crate) queue_lengths: OrdMap<Arc<str>, usize>,
    /// Free rows by last epoch, without delayed ones: those that time has made forgettable come
    /// first.
    pub(crate) free: OrdSet<(Epoch, Arc<str>)>,
    /// Scopes in their lock delay.
    pub(crate) delayed: OrdSet<Arc<str>>,
    /// Removed records by revision, that is, by time.
    pub(crate) removed: OrdSet<(u64, Arc<str>)>,
    /// Tokens by principal and label.
    pub(crate) token_labels: OrdMap<(Principal, Arc<str>), TokenHash>,
    /// The latest leadership that granted, on the default terms, shared by the rows it granted.
    /// Not part of the state: `apply` sets it before it is used.
    pub(crate) origin: Arc<Origin>,
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
            session_hashes,
            bound,
            waiting,
            queued,
            queue_lengths,
            free,
            delayed,
            removed,
            token_labels,
            origin: _,
        } = self;
        *cluster_id == other.cluster_id
            && *incarnation == other.incarnation
            && *group == other.group
            && *now_ms == other.now_ms
            && *rows == other.rows
            && *open_ids == other.open_ids
            && *session_hashes == other.session_hashes
            && *bound == other.bound
            && *waiting == other.waiting
            && *queued == other.queued
            && *queue_lengths == other.queue_lengths
            && *free == other.free
            && *delayed == other.delayed
            && *removed == other.removed
            && *token_labels == other.token_labels
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
            session_hashes: OrdSet::new(),
            bound: OrdSet::new(),
            waiting: OrdMap::new(),
            queued: OrdMap::new(),
            queue_lengths: OrdMap::new(),
            free: OrdSet::new(),
            delayed: OrdSet::new(),
            removed: OrdSet::new(),
            token_labels: OrdMap::new(),
            origin: Arc::new(Origin {
                leadership: Leadership { term: 0, node: 0 },
                terms: Terms::default(),
                before: None,
            }),
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
            waits: self.rows.waits().len(),
            records: self.rows.records().len(),
            record_bytes: self.rows.record_bytes(),
            admin: self.rows.admin().len(),
        }
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
        match row.held() {
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
            session: key.with(session.open_id),
            request_id: held.request_id,
            position: self.position(&held.origin.leadership, held.index, held.offset),
            terms: held.terms().clone(),
        })
    }
}
