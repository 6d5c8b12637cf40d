//! The state as rows, for snapshots: out in order, and back in with every relation checked.

use std::sync::Arc;

use epoch_core::{ClusterId, Epoch, Holder, Incarnation, NodeId, OpenId, RequestId, Scope};

use crate::command::{Leadership, PublicKey, SessionKey, Ttl};
use crate::rows::{Held, Row};
use crate::state::{KEYS_MAX, SPENT_IDS_KEPT, SessionState, State};

/// What is not a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// This life of its state.
    pub incarnation: Incarnation,
    /// The Raft group.
    pub group: u32,
    /// Replicated time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Signing keys by node.
    pub keys: Vec<(NodeId, PublicKey)>,
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
    /// Its current grant.
    pub held: Option<HeldRow>,
}

/// A current grant as part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    /// Whose.
    pub session: SessionKey,
    /// Under which request id.
    pub request_id: RequestId,
    /// Under which leadership it was granted.
    pub leadership: Leadership,
    /// At which log index.
    pub index: u64,
    /// At which offset of the batch.
    pub offset: u32,
}

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
    /// A spent request id is at or below the highest one its session has forgotten.
    #[error("spent request id {0} was forgotten")]
    Forgotten(RequestId),
    /// More keys than are kept.
    #[error("there are more than {KEYS_MAX} keys")]
    TooManyKeys,
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
            keys: self.keys().map(|(node, key)| (node, *key)).collect(),
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

    /// Request ids whose grant has ended, in order, with their scope.
    pub fn spent_rows(&self) -> impl Iterator<Item = (SessionKey, RequestId, Scope)> {
        let spent = self.rows.spent().iter();
        spent.filter_map(|((session, request_id), name)| {
            Some((*session, *request_id, Scope::parse(name).ok()?))
        })
    }

    pub(crate) fn session_row(&self, key: SessionKey) -> Option<SessionRow> {
        let session = self.rows.sessions().get(&key)?;
        Some(SessionRow::new(key, session))
    }

    pub(crate) fn scope_row(&self, name: &str) -> Option<ScopeRow> {
        ScopeRow::new(name, self.rows.scopes().get(name)?)
    }
}

impl SessionRow {
    fn new(key: SessionKey, session: &SessionState) -> Self {
        Self {
            key,
            open_id: session.open_id,
            holder: session.holder.clone(),
            ttl: session.ttl,
            forgotten: session.forgotten,
        }
    }
}

impl ScopeRow {
    /// Never `None`: every name in the map was a scope when it came in.
    fn new(name: &str, row: &Row) -> Option<Self> {
        Some(Self {
            scope: Scope::parse(name).ok()?,
            epoch: row.epoch,
            held: row.held.as_ref().map(|held| HeldRow {
                session: held.session(),
                request_id: held.request_id,
                leadership: *held.leadership,
                index: held.index,
                offset: held.offset,
            }),
        })
    }
}

/// Puts rows together to a state: sessions first, then scopes, then spent ids.
#[derive(Debug)]
pub struct Loader {
    state: State,
    scopes: Vec<(Arc<str>, Row)>,
}

impl Loader {
    /// Begins with what is not a row.
    ///
    /// # Errors
    /// A key is there twice, or there are too many.
    pub fn new(head: Head) -> Result<Self, LoadError> {
        let mut state = State::new(head.cluster_id, head.incarnation, head.group);
        state.now_ms = head.now_ms;
        if head.keys.len() > KEYS_MAX {
            return Err(LoadError::TooManyKeys);
        }
        for (node, key) in head.keys {
            if !state.rows.put_key(node, Arc::new(key)) {
                return Err(LoadError::Duplicate(format!("a key of node {node}")));
            }
        }
        Ok(Self {
            state,
            scopes: Vec::new(),
        })
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
            forgotten,
        } = row;
        let session = SessionState {
            open_id,
            holder,
            ttl,
            forgotten,
            spent: 0,
        };
        let twice = self.state.rows.put_session(key, session).is_some()
            || self.state.open_ids.insert(open_id, key).is_some();
        if twice {
            Err(LoadError::Duplicate(format!("session {open_id}")))
        } else {
            Ok(())
        }
    }

    /// Adds a scope.
    ///
    /// # Errors
    /// It is held by a session that was not added.
    pub fn scope(&mut self, row: ScopeRow) -> Result<(), LoadError> {
        let name = row.scope.shared();
        let held = match row.held {
            None => None,
            Some(held) => {
                if !self.state.rows.sessions().contains_key(&held.session) {
                    return Err(LoadError::NoSession(format!("scope {:?}", row.scope)));
                }
                if *self.state.leadership != held.leadership {
                    self.state.leadership = self.shared(held.leadership);
                }
                Some(Held {
                    session_index: held.session.index,
                    session_offset: held.session.offset,
                    request_id: held.request_id,
                    index: held.index,
                    offset: held.offset,
                    leadership: Arc::clone(&self.state.leadership),
                })
            }
        };
        self.scopes.push((
            name,
            Row {
                epoch: row.epoch,
                held,
            },
        ));
        Ok(())
    }

    /// Rows near each other tend to share a leadership; looking back a little finds most.
    fn shared(&self, leadership: Leadership) -> Arc<Leadership> {
        const LOOK_BACK: usize = 64;
        self.scopes
            .iter()
            .rev()
            .take(LOOK_BACK)
            .filter_map(|(_, row)| row.held.as_ref())
            .find(|held| *held.leadership == leadership)
            .map_or_else(|| Arc::new(leadership), |held| Arc::clone(&held.leadership))
    }

    /// Adds a request id whose grant has ended.
    ///
    /// # Errors
    /// Its session was not added, has too many, or has forgotten it; or it is there already.
    pub fn spent(
        &mut self,
        key: SessionKey,
        request_id: RequestId,
        scope: &Scope,
    ) -> Result<(), LoadError> {
        let what = || format!("spent request id {request_id}");
        let Some(session) = self.state.rows.sessions().get(&key) else {
            return Err(LoadError::NoSession(what()));
        };
        if session.spent >= SPENT_IDS_KEPT {
            return Err(LoadError::TooManySpent);
        }
        if request_id.get() <= session.forgotten {
            return Err(LoadError::Forgotten(request_id));
        }
        let old = self.state.rows.put_spent((key, request_id), scope.shared());
        if old.is_some() {
            return Err(LoadError::Duplicate(what()));
        }
        Ok(())
    }

    /// The state.
    ///
    /// # Errors
    /// A scope or a current grant's request id is there twice.
    pub fn finish(mut self) -> Result<State, LoadError> {
        // Inserting in order leaves the map's leaves half full: even places first, then odd ones,
        // takes a fifth less memory.
        let scopes = std::mem::take(&mut self.scopes);
        let even = scopes.iter().step_by(2);
        let odd = scopes.iter().skip(1).step_by(2);
        for (name, row) in even.chain(odd) {
            self.add(name, row)?;
        }
        Ok(self.state)
    }

    fn add(&mut self, name: &Arc<str>, row: &Row) -> Result<(), LoadError> {
        let state = &mut self.state;
        let old = state.rows.put_scope(Arc::clone(name), row.clone());
        if old.is_some() {
            return Err(LoadError::Duplicate(format!("scope {name:?}")));
        }
        let Some(held) = &row.held else {
            state.free.insert((row.epoch, Arc::clone(name)));
            return Ok(());
        };
        let id = (held.session(), held.request_id);
        let twice = state.rows.spent().contains_key(&id)
            || state.bound.insert(id, Arc::clone(name)).is_some();
        if twice {
            return Err(LoadError::Duplicate(format!(
                "request id {} of {name:?}",
                held.request_id
            )));
        }
        Ok(())
    }
}
