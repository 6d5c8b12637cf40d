//! What follows from the rows, kept in step with them.

use std::sync::Arc;

use epoch_core::{Epoch, RequestId, Scope, SessionHash};

use super::{SPENT_IDS_KEPT, SessionState, State};
use crate::command::SessionKey;
use crate::epoch_rule;
use crate::record::Record;
use crate::rows::{Held, Place, Row, Waiting};

impl State {
    /// False when its key, open id or hash was there already.
    pub(crate) fn add_session(&mut self, key: SessionKey, session: SessionState) -> bool {
        let id = key.with(session.open_id);
        let opened = (session.principal.clone(), session.open_id);
        let new_id = self.open_ids.insert(opened, key).is_none();
        self.session_hashes.insert((hash_start(&id.hash()), key));
        self.rows.put_session(key, session).is_none() && new_id
    }

    /// With nothing of its own left.
    pub(crate) fn remove_session(&mut self, key: SessionKey) {
        if let Some(session) = self.rows.remove_session(key) {
            let id = key.with(session.open_id);
            self.open_ids.remove(&(session.principal, session.open_id));
            self.session_hashes.remove(&(hash_start(&id.hash()), key));
        }
    }

    /// The live session that others know by `hash`.
    pub(crate) fn session_by_hash(&self, hash: &SessionHash) -> Option<SessionKey> {
        let start = hash_start(hash);
        let first = SessionKey {
            index: 0,
            offset: 0,
        };
        let same = |key: &SessionKey| {
            let session = self.rows.sessions().get(key);
            session.is_some_and(|session| key.with(session.open_id).hash() == *hash)
        };
        self.session_hashes
            .range((start, first)..)
            .take_while(|(other, _)| *other == start)
            .map(|(_, key)| *key)
            .find(same)
    }

    /// One scope has one allocation for its name, as far as its row goes.
    pub(crate) fn name_of(&self, scope: &Scope) -> Arc<str> {
        match self.rows.scopes().get_key_value(scope.as_str()) {
            Some((name, _)) => Arc::clone(name),
            None => scope.shared(),
        }
    }

    /// What [`GRANTS_MAX`](super::GRANTS_MAX) counts.
    pub(crate) fn grants_and_delays(&self) -> usize {
        self.bound.len().saturating_add(self.delayed.len())
    }

    pub(crate) fn next_epoch(&self, name: &str) -> Option<Epoch> {
        let last = self.rows.scopes().get(name).map(|row| row.epoch);
        epoch_rule::next(last, self.now_ms)
    }

    /// Puts a scope's row, or removes it where time alone keeps the next epoch above it.
    pub(crate) fn put_row(&mut self, name: &Arc<str>, row: Row) {
        if let Some(old) = self.rows.scopes().get(name)
            && old.held().is_none()
        {
            self.free.remove(&(old.epoch, Arc::clone(name)));
            self.delayed.remove(name);
        }
        if row.is_delayed() {
            self.delayed.insert(Arc::clone(name));
        } else if row.held().is_none() {
            if epoch_rule::forgettable(row.epoch, self.now_ms) {
                self.rows.remove_scope(name);
                return;
            }
            self.free.insert((row.epoch, Arc::clone(name)));
        }
        self.rows.put_scope(Arc::clone(name), row);
    }

    /// False when it was there already.
    pub(crate) fn bind(&mut self, held: &Held, name: &Arc<str>) -> bool {
        let key = (held.session(), held.request_id, Arc::clone(name));
        self.bound.insert(key).is_none()
    }

    /// The request id that bound it, if there was one.
    pub(crate) fn unbind(&mut self, session: SessionKey, name: &Arc<str>) -> Option<RequestId> {
        let request_id = self.rows.scopes().get(name)?.held()?.request_id;
        let bound = (session, request_id, Arc::clone(name));
        self.bound.remove(&bound).and(request_id)
    }

    /// The scope that a request id holds.
    pub(crate) fn bound_scope(
        &self,
        session: SessionKey,
        request_id: RequestId,
    ) -> Option<Arc<str>> {
        let bound = Some(request_id);
        let mut from = self.bound.range((session, bound, Arc::default())..);
        let (key, found, name) = from.next()?;
        (*key == session && *found == bound).then(|| Arc::clone(name))
    }

    pub(crate) fn grants_of(&self, session: SessionKey) -> Vec<Arc<str>> {
        let from = self.bound.range((session, None, Arc::default())..);
        from.take_while(|(key, ..)| *key == session)
            .map(|(_, _, name)| Arc::clone(name))
            .collect()
    }

    pub(crate) fn waits_of(&self, session: SessionKey) -> Vec<(RequestId, Place)> {
        let from = self.waiting.range((session, RequestId::FIRST)..);
        from.take_while(|((key, _), _)| *key == session)
            .map(|((_, request_id), place)| (*request_id, place.clone()))
            .collect()
    }

    pub(crate) fn spent_of(&self, session: SessionKey) -> Vec<RequestId> {
        let from = self.rows.spent().range((session, RequestId::FIRST)..);
        from.take_while(|((key, _), _)| *key == session)
            .map(|((_, request_id), _)| *request_id)
            .collect()
    }

    /// Forgets the session's lowest spent id when it keeps too many.
    pub(crate) fn forget_spent_id(&mut self, key: SessionKey) {
        let many = |session: &&SessionState| session.spent > SPENT_IDS_KEPT;
        if self.rows.sessions().get(&key).filter(many).is_none() {
            return;
        }
        let mut of_session = self.rows.spent().range((key, RequestId::FIRST)..);
        let lowest = of_session.next().map(|(id, _)| *id);
        let Some((_, request_id)) = lowest.filter(|(session, _)| *session == key) else {
            return;
        };
        self.rows.remove_spent((key, request_id));
        if let Some(mut session) = self.rows.sessions().get(&key).cloned() {
            session.forgotten = session.forgotten.max(request_id.get());
            self.rows.put_session(key, session);
        }
    }

    /// The first in a scope's queue.
    pub(crate) fn first_wait(&self, name: &Arc<str>) -> Option<(Place, Waiting)> {
        let (place, waiting) = self.queue(name).next()?;
        Some((place.clone(), waiting.clone()))
    }

    pub(crate) fn queue(&self, name: &Arc<str>) -> impl Iterator<Item = (&Place, &Waiting)> {
        let start = Place {
            scope: Arc::clone(name),
            index: 0,
            offset: 0,
        };
        let scope = Arc::clone(name);
        let from = self.rows.waits().range(start..);
        from.take_while(move |(place, _)| place.scope == scope)
    }

    pub(crate) fn queue_length(&self, name: &str) -> usize {
        self.queue_lengths.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn waits_for(&self, name: &Arc<str>, session: SessionKey) -> bool {
        self.queued.contains_key(&(Arc::clone(name), session))
    }

    pub(crate) fn wait_of(&self, name: &Arc<str>, session: SessionKey) -> Option<(Place, Waiting)> {
        let (index, offset) = *self.queued.get(&(Arc::clone(name), session))?;
        let place = Place {
            scope: Arc::clone(name),
            index,
            offset,
        };
        let waiting = self.rows.waits().get(&place)?.clone();
        Some((place, waiting))
    }

    /// False when the place, the request id, or the session in that queue was there already.
    pub(crate) fn add_wait(&mut self, place: Place, waiting: Waiting) -> bool {
        let Place {
            scope,
            index,
            offset,
        } = &place;
        let session = waiting.session;
        let id = (session, waiting.request_id);
        let new = self
            .queued
            .insert((Arc::clone(scope), session), (*index, *offset))
            .is_none();
        let length = self.queue_length(scope).saturating_add(1);
        self.queue_lengths.insert(Arc::clone(scope), length);
        let new = self.waiting.insert(id, place.clone()).is_none() && new;
        self.rows.put_wait(place, waiting).is_none() && new
    }

    pub(crate) fn remove_wait(&mut self, place: &Place) {
        let Some(waiting) = self.rows.remove_wait(place) else {
            return;
        };
        let scope = &place.scope;
        self.waiting.remove(&(waiting.session, waiting.request_id));
        self.queued.remove(&(Arc::clone(scope), waiting.session));
        match self.queue_length(scope) {
            0 | 1 => self.queue_lengths.remove(scope),
            more => self
                .queue_lengths
                .insert(Arc::clone(scope), more.saturating_sub(1)),
        };
    }

    pub(crate) fn put_record(&mut self, name: Arc<str>, record: Record) -> Option<Record> {
        if record.value.is_none() {
            self.removed.insert((record.revision, Arc::clone(&name)));
        }
        let old = self.rows.put_record(Arc::clone(&name), record)?;
        if old.value.is_none() {
            self.removed.remove(&(old.revision, name));
        }
        Some(old)
    }
}

/// What sessions are sorted by to be found by their hash; the rest of it is compared then.
fn hash_start(hash: &SessionHash) -> u64 {
    let start = hash.0.first_chunk::<8>();
    start.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
