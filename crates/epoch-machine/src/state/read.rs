//! What anyone may know of the state.

use std::ops::Bound;
use std::sync::Arc;

use epoch_core::{Epoch, Holder, Position, RequestId, Scope, SessionHash, SessionId};

use super::{SessionState, State};
use crate::command::SessionKey;
use crate::outcome::Grant;
use crate::record::Record;
use crate::rows::Row;
use crate::terms::Metadata;

/// Rows that one page looks at, so that one over many rows that do not fit stays short.
const SCANNED_MAX: usize = 10_000;

/// What anyone may know of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeState {
    /// Which.
    pub scope: Scope,
    /// Its current grant.
    pub held: Option<HeldState>,
    /// Whether it is in its lock delay.
    pub delayed: bool,
    /// How many wait.
    pub waiting: usize,
    /// The first of them, in order.
    pub queue: Vec<QueuedWait>,
}

/// What anyone may know of a current grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldState {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its holder.
    pub holder: Holder,
    /// The hash of its session's id.
    pub session: SessionHash,
    /// Where it was granted.
    pub position: Position,
    /// What its holder says of it.
    pub metadata: Metadata,
}

/// What anyone may know of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedWait {
    /// Who waits.
    pub holder: Holder,
    /// The hash of its session's id.
    pub session: SessionHash,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Held scopes, in byte order, without their queues.
    pub scopes: Vec<ScopeState>,
    /// Continue after this one; absent at the end.
    pub next: Option<Scope>,
}

/// One thing that a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionItem {
    /// A current grant.
    Grant(Grant),
    /// A wait.
    Wait {
        /// For what.
        scope: Scope,
        /// Under which request id.
        request_id: RequestId,
        /// Waits that come before it.
        ahead: usize,
    },
}

/// A place among the things that a session has: its grants come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionPlace {
    /// A grant, by its request id (none for a transferred one) and its scope.
    Grant(Option<RequestId>, Scope),
    /// A wait, by its request id.
    Wait(RequestId),
}

/// One page of what a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// In order of [`SessionPlace`].
    pub items: Vec<SessionItem>,
    /// Continue after this one; absent at the end.
    pub next: Option<SessionPlace>,
}

impl State {
    /// One scope, with the first `queue_limit` that wait for it.
    #[must_use]
    pub fn scope(&self, scope: &Scope, queue_limit: usize) -> ScopeState {
        let row = self.rows.scopes().get(scope.as_str());
        let mut state = self.scope_state(scope.clone(), row);
        if state.waiting > 0 {
            let name = self.name_of(scope);
            let waits = self
                .queue(&name)
                .filter_map(|(_, waiting)| self.queued_wait(waiting.session));
            state.queue = waits.take(queue_limit).collect();
        }
        state
    }

    /// The current grant of a scope.
    #[must_use]
    pub fn held(&self, scope: &Scope) -> Option<Grant> {
        let row = self.rows.scopes().get(scope.as_str())?;
        self.grant(scope.clone(), row.epoch, row.held()?)
    }

    /// Held scopes that begin with `prefix`, byte by byte, after `after`, `limit` at most (0 counts
    /// as 1: a page that holds nothing would have no place to continue from); with `holder`, those
    /// that it holds.
    #[must_use]
    pub fn list(
        &self,
        prefix: &str,
        holder: Option<&Holder>,
        after: Option<&Scope>,
        limit: usize,
    ) -> Page {
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
            if page.scopes.len() == limit || scanned == SCANNED_MAX {
                page.next = last.and_then(|name: &Arc<str>| Scope::parse(name).ok());
                break;
            }
            last = Some(name);
            let session = row.held().map(|held| held.session());
            let session = session.and_then(|key| self.rows.sessions().get(&key));
            let wanted = |session: &SessionState| holder.is_none_or(|h| *h == session.holder);
            if session.is_some_and(wanted)
                && let Ok(scope) = Scope::parse(name)
            {
                page.scopes.push(self.scope_state(scope, Some(row)));
            }
        }
        page
    }

    /// The live sessions that are wanted, after `after`, `limit` at most (0 counts as 1), with where
    /// to continue.
    #[must_use]
    pub fn list_sessions(
        &self,
        wanted: impl Fn(&SessionState) -> bool,
        after: Option<SessionKey>,
        limit: usize,
    ) -> (Vec<(SessionKey, &SessionState)>, Option<SessionKey>) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut found, mut last) = (Vec::new(), None);
        let rows = self.rows.sessions().range((start, Bound::Unbounded));
        for (scanned, (key, session)) in rows.enumerate() {
            if found.len() == limit.max(1) || scanned == SCANNED_MAX {
                return (found, last);
            }
            last = Some(*key);
            if wanted(session) {
                found.push((*key, session));
            }
        }
        (found, None)
    }

    /// What a session has after `after`, `limit` at most (0 counts as 1); `None` when there is no
    /// such session.
    #[must_use]
    pub fn session_page(
        &self,
        id: &SessionId,
        after: Option<&SessionPlace>,
        limit: usize,
    ) -> Option<SessionPage> {
        self.session(id)?;
        let key = SessionKey::from(id);
        let limit = limit.max(1);
        let mut items: Vec<(SessionPlace, SessionItem)> = Vec::new();
        if !matches!(after, Some(SessionPlace::Wait(_))) {
            let start = match after {
                Some(SessionPlace::Grant(request_id, scope)) => {
                    Bound::Excluded((key, *request_id, scope.shared()))
                }
                Some(SessionPlace::Wait(_)) | None => Bound::Included((key, None, Arc::default())),
            };
            let bound = self.bound.range((start, Bound::Unbounded));
            let own = bound.take_while(|(session, ..)| *session == key);
            items.extend(own.take(limit + 1).filter_map(|(_, request_id, name)| {
                let scope = Scope::parse(name).ok()?;
                let row = self.rows.scopes().get(name)?;
                let grant = self.grant(scope.clone(), row.epoch, row.held()?)?;
                Some((
                    SessionPlace::Grant(*request_id, scope),
                    SessionItem::Grant(grant),
                ))
            }));
        }
        let start = match after {
            Some(SessionPlace::Wait(request_id)) => Bound::Excluded((key, *request_id)),
            Some(SessionPlace::Grant(..)) | None => Bound::Included((key, RequestId::FIRST)),
        };
        let waits = self.waiting.range((start, Bound::Unbounded));
        let own = waits.take_while(|((session, _), _)| *session == key);
        let room = (limit + 1).saturating_sub(items.len());
        items.extend(own.take(room).filter_map(|((_, request_id), place)| {
            let before = self
                .queue(&place.scope)
                .take_while(|(other, _)| *other < place);
            let item = SessionItem::Wait {
                scope: Scope::parse(&place.scope).ok()?,
                request_id: *request_id,
                ahead: before.count(),
            };
            Some((SessionPlace::Wait(*request_id), item))
        }));
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items
            .last()
            .filter(|_| more)
            .map(|(place, _)| place.clone());
        Some(SessionPage {
            items: items.into_iter().map(|(_, item)| item).collect(),
            next,
        })
    }

    /// The wait under a session's request id: its scope, if it still waits.
    #[must_use]
    pub fn wait(&self, session: SessionKey, request_id: RequestId) -> Option<Scope> {
        let place = self.waiting.get(&(session, request_id))?;
        Scope::parse(&place.scope).ok()
    }

    /// The current grant under a session's request id.
    #[must_use]
    pub fn granted(&self, session: SessionKey, request_id: RequestId) -> Option<Grant> {
        let name = self.bound_scope(session, request_id)?;
        let row = self.rows.scopes().get(&name)?;
        self.grant(Scope::parse(&name).ok()?, row.epoch, row.held()?)
    }

    /// Every wait, with how long it may take in all, in milliseconds.
    pub fn waits(&self) -> impl Iterator<Item = (SessionKey, RequestId, crate::Wait)> {
        let waits = self.rows.waits().iter();
        waits.map(|(_, waiting)| (waiting.session, waiting.request_id, waiting.wait))
    }

    /// Every scope in its lock delay.
    pub fn delays(&self) -> impl Iterator<Item = (Arc<str>, crate::LockDelay)> {
        self.delayed.iter().filter_map(|name| {
            let row = self.rows.scopes().get(name)?;
            Some((Arc::clone(name), row.delay()?))
        })
    }

    /// A scope in its lock delay, with the epoch that was lost; `None` when it is in none.
    #[must_use]
    pub fn delay(&self, name: &str) -> Option<(Scope, Epoch)> {
        let row = self.rows.scopes().get(name)?;
        row.delay()?;
        Some((Scope::parse(name).ok()?, row.epoch))
    }

    /// A scope's record; also of a removed one that is still remembered.
    #[must_use]
    pub fn record(&self, scope: &Scope) -> Option<&Record> {
        self.rows.records().get(scope.as_str())
    }

    fn scope_state(&self, scope: Scope, row: Option<&Row>) -> ScopeState {
        let held = row.and_then(|row| self.grant(scope.clone(), row.epoch, row.held()?));
        ScopeState {
            held: held.map(|grant| HeldState {
                epoch: grant.epoch,
                holder: grant.holder,
                session: grant.session.hash(),
                position: grant.position,
                metadata: grant.terms.metadata,
            }),
            delayed: row.is_some_and(Row::is_delayed),
            waiting: self.queue_length(scope.as_str()),
            queue: Vec::new(),
            scope,
        }
    }

    fn queued_wait(&self, key: SessionKey) -> Option<QueuedWait> {
        let session = self.rows.sessions().get(&key)?;
        Some(QueuedWait {
            holder: session.holder.clone(),
            session: key.with(session.open_id).hash(),
        })
    }
}
