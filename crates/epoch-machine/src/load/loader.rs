//! Rows put together to a state, with every relation checked.

use std::sync::Arc;

use epoch_core::{Principal, RequestId};

use super::{Head, RecordRow, ScopeRow, SessionRow, SpentRow, StandingRow, WaitRow};
use crate::admin::AdminRow;
use crate::command::SessionKey;
use crate::record::INTENTS_KEPT;
use crate::rows::{Held, Origin, Place, Row, Spent, Standing, Waiting};
use crate::state::{SPENT_IDS_KEPT, SessionState, State};

/// Rows that do not make a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Two rows have one key.
    #[error("two rows for {0}")]
    Duplicate(String),
    /// A row names a session that has no row before it.
    #[error("{0} names a session that is not there")]
    NoSession(String),
    /// A session has more spent request ids than are kept.
    #[error("a session has more than {SPENT_IDS_KEPT} spent request ids")]
    TooManySpent,
    /// A wait lasts no time.
    #[error("{0} waits for no time")]
    NoWait(String),
    /// A wait is for a scope that nobody holds and nothing delays.
    #[error("request id {0} waits for a scope that is free")]
    WaitForFree(RequestId),
    /// A wait is for a scope that its own session holds.
    #[error("request id {0} waits for a scope that its session holds")]
    WaitForOwn(RequestId),
    /// A wait is for a scope that its session may not acquire.
    #[error("request id {0} waits for a scope that its session may not acquire")]
    WaitNotPermitted(RequestId),
    /// A record has more intents than are kept.
    #[error("a record has more than {INTENTS_KEPT} intents")]
    TooManyIntents,
    /// A spent request id is at or below the highest one its session has forgotten.
    #[error("spent request id {0} was forgotten")]
    Forgotten(RequestId),
    /// More rare rows of a kind than are kept.
    #[error("there are more {0} than are kept")]
    TooMany(&'static str),
    /// Limits that limit nothing.
    #[error("the limits of {0:?} limit nothing")]
    NoLimits(Principal),
    /// Rows about signing keys that cannot be.
    #[error("there is {0}")]
    Trust(&'static str),
    /// Permissions, and none of them to operate.
    #[error("there are permissions, and nobody may operate")]
    NoOperator,
}

/// Puts rows together to a state: sessions first, then scopes, spent ids, waits, records
/// and rare rows.
#[derive(Debug)]
pub struct Loader {
    state: State,
    scopes: Vec<(Arc<str>, Row)>,
    /// The origin of the grant before.
    last_origin: Arc<Origin>,
    /// The scope of the wait before.
    last_queue: Option<Arc<str>>,
}

impl Loader {
    /// Begins with what is not a row.
    #[must_use]
    pub fn new(head: Head) -> Self {
        let mut state = State::new(head.cluster_id, head.incarnation, head.group);
        state.now_ms = head.now_ms;
        Self {
            last_origin: Arc::clone(&state.origin),
            state,
            scopes: Vec::new(),
            last_queue: None,
        }
    }

    /// Adds a session.
    ///
    /// # Errors
    /// Its key or open id is there already.
    pub fn session(&mut self, row: SessionRow) -> Result<(), LoadError> {
        let SessionRow {
            key,
            open_id,
            holder,
            ttl,
            stall_limit,
            principal,
            holder_key,
            forgotten,
        } = row;
        let session = SessionState {
            principal,
            holder_key,
            forgotten,
            ..SessionState::new(open_id, holder, ttl, stall_limit)
        };
        if self.state.add_session(key, session) {
            Ok(())
        } else {
            Err(LoadError::Duplicate(format!("session {open_id}")))
        }
    }

    /// Adds a scope.
    ///
    /// # Errors
    /// It is held by a session that was not added.
    pub fn scope(&mut self, row: ScopeRow) -> Result<(), LoadError> {
        let name = row.scope.shared();
        let standing = match row.standing {
            StandingRow::Free(delay) => Standing::Free(delay),
            StandingRow::Held(held) => {
                self.check_session(held.session, || format!("scope {:?}", row.scope))?;
                let origin = Origin {
                    leadership: held.leadership,
                    terms: held.terms,
                    before: held.before,
                };
                if *self.last_origin != origin {
                    self.last_origin = self.shared(origin);
                }
                Standing::Held(Held {
                    session_index: held.session.index,
                    session_offset: held.session.offset,
                    request_id: held.request_id,
                    index: held.index,
                    offset: held.offset,
                    origin: Arc::clone(&self.last_origin),
                })
            }
        };
        let row = Row {
            epoch: row.epoch,
            standing,
        };
        self.scopes.push((name, row));
        Ok(())
    }

    fn check_session(
        &self,
        key: SessionKey,
        what: impl FnOnce() -> String,
    ) -> Result<(), LoadError> {
        if self.state.rows.sessions().contains_key(&key) {
            Ok(())
        } else {
            Err(LoadError::NoSession(what()))
        }
    }

    /// Rows near each other tend to share an origin; looking back a little finds most.
    fn shared(&self, origin: Origin) -> Arc<Origin> {
        const LOOK_BACK: usize = 64;
        self.scopes
            .iter()
            .rev()
            .take(LOOK_BACK)
            .filter_map(|(_, row)| row.held())
            .find(|held| *held.origin == origin)
            .map_or_else(|| Arc::new(origin), |held| Arc::clone(&held.origin))
    }

    /// Adds a request id that binds nothing any more.
    ///
    /// # Errors
    /// Its session was not added, has too many, or has forgotten it; or it is there already.
    pub fn spent(&mut self, row: SpentRow) -> Result<(), LoadError> {
        let SpentRow {
            session: key,
            request_id,
            scope,
            what,
        } = row;
        let shown = || format!("spent request id {request_id}");
        let Some(session) = self.state.rows.sessions().get(&key) else {
            return Err(LoadError::NoSession(shown()));
        };
        if session.spent >= SPENT_IDS_KEPT {
            return Err(LoadError::TooManySpent);
        }
        if request_id.get() <= session.forgotten {
            return Err(LoadError::Forgotten(request_id));
        }
        let scope = scope.shared();
        let spent = Spent { scope, what };
        let old = self.state.rows.put_spent((key, request_id), spent);
        if old.is_some() {
            return Err(LoadError::Duplicate(shown()));
        }
        Ok(())
    }

    /// Adds a wait.
    ///
    /// # Errors
    /// Its session was not added; it lasts no time; or its place, its request id or its session
    /// in this queue is there already.
    pub fn wait(&mut self, row: WaitRow) -> Result<(), LoadError> {
        let WaitRow {
            scope,
            index,
            offset,
            session,
            request_id,
            wait,
            terms,
        } = row;
        let what = || format!("wait of request id {request_id}");
        self.check_session(session, what)?;
        if wait.is_zero() {
            return Err(LoadError::NoWait(what()));
        }
        // One name for the whole queue: its rows come one after another.
        let scope = match self.last_queue.take() {
            Some(last) if *last == *scope.as_str() => last,
            _ => scope.shared(),
        };
        self.last_queue = Some(Arc::clone(&scope));
        let place = Place {
            scope,
            index,
            offset,
        };
        let waiting = Waiting {
            session,
            request_id,
            wait,
            terms,
        };
        let spent = self.state.rows.spent().contains_key(&(session, request_id));
        if spent || !self.state.add_wait(place, waiting) {
            return Err(LoadError::Duplicate(what()));
        }
        Ok(())
    }

    /// Adds a record.
    ///
    /// # Errors
    /// It has too many intents, or is there already.
    pub fn record(&mut self, row: RecordRow) -> Result<(), LoadError> {
        let RecordRow { scope, record } = row;
        if record.intents.len() > INTENTS_KEPT {
            return Err(LoadError::TooManyIntents);
        }
        match self.state.put_record(scope.shared(), record) {
            None => Ok(()),
            Some(_) => Err(LoadError::Duplicate(format!("the record of {scope:?}"))),
        }
    }

    /// Adds a rare row.
    ///
    /// # Errors
    /// It is there already, as is the token's label within its principal; or limits limit nothing.
    pub fn admin(&mut self, row: AdminRow) -> Result<(), LoadError> {
        if let AdminRow::Limits { principal, limits } = &row
            && limits.are_none()
        {
            return Err(LoadError::NoLimits(principal.clone()));
        }
        let key = row.key();
        if self.state.add_admin(row) {
            Ok(())
        } else {
            Err(LoadError::Duplicate(format!("{key:?}")))
        }
    }

    /// The state.
    ///
    /// # Errors
    /// A scope or a current grant's request id is there twice; a wait is for a free scope or for one
    /// that its session holds or may not acquire; there are too many rare rows of a kind, or
    /// permissions and nobody who may operate, or rows about signing keys that do not fit together.
    pub fn finish(mut self) -> Result<State, LoadError> {
        // Inserting in order leaves the map's leaves half full: even places first, then odd ones,
        // takes a fifth less memory.
        let scopes = std::mem::take(&mut self.scopes);
        let even = scopes.iter().step_by(2);
        let odd = scopes.iter().skip(1).step_by(2);
        for (name, row) in even.chain(odd) {
            self.add(name, row)?;
        }
        for ((session, request_id), place) in &self.state.waiting {
            let row = self.state.rows.scopes().get(&place.scope);
            let holder = row.and_then(Row::held).map(Held::session);
            if holder == Some(*session) {
                return Err(LoadError::WaitForOwn(*request_id));
            }
            let taken = row.is_some_and(|row| row.held().is_some() || row.is_delayed());
            if !taken && self.state.next_epoch(&place.scope).is_some() {
                return Err(LoadError::WaitForFree(*request_id));
            }
            if !self.state.session_may_acquire(*session, &place.scope) {
                return Err(LoadError::WaitNotPermitted(*request_id));
            }
        }
        if !self.state.is_open() && !self.state.has_operator_but(None) {
            return Err(LoadError::NoOperator);
        }
        if let Some(what) = self.state.too_many() {
            return Err(LoadError::TooMany(what));
        }
        if let Some(what) = self.state.untrue_of_trust() {
            return Err(LoadError::Trust(what));
        }
        Ok(self.state)
    }

    fn add(&mut self, name: &Arc<str>, row: &Row) -> Result<(), LoadError> {
        let state = &mut self.state;
        let old = state.rows.put_scope(Arc::clone(name), row.clone());
        if old.is_some() {
            return Err(LoadError::Duplicate(format!("scope {name:?}")));
        }
        let Some(held) = row.held() else {
            if row.is_delayed() {
                state.delayed.insert(Arc::clone(name));
            } else {
                state.free.insert((row.epoch, Arc::clone(name)));
            }
            return Ok(());
        };
        let Some(request_id) = held.request_id else {
            state.bind(held, name);
            return Ok(());
        };
        let id = (held.session(), request_id);
        let twice = state.rows.spent().contains_key(&id)
            || state.waiting.contains_key(&id)
            || state.bound_scope(id.0, id.1).is_some();
        if twice {
            return Err(LoadError::Duplicate(format!(
                "request id {request_id} of {name:?}"
            )));
        }
        state.bind(held, name);
        Ok(())
    }
}
