//! Applying a batch: the only place where the state changes.

use std::sync::Arc;

use epoch_core::{Epoch, Holder, NodeId, OpenId, RequestId, Scope, SessionId};

use crate::command::{Batch, Command, Entry, PublicKey, SessionKey, Ttl};
use crate::epoch_rule;
use crate::outcome::{ForeignLeadership, Outcome, Refusal};
use crate::rows::{Held, Row};
use crate::state::{GRANTS_MAX, KEYS_MAX, SESSIONS_MAX, SPENT_IDS_KEPT, SessionState, State};

/// Free rows forgotten in one batch at most, so that no batch takes long.
const FORGOTTEN_PER_BATCH_MAX: usize = 1_024;

/// Applies the batch that stands at `entry`; one outcome for each command, in order.
///
/// # Errors
/// The batch was made under another leadership than the one that wrote it: nothing has changed.
pub fn apply(
    state: &mut State,
    entry: Entry,
    batch: &Batch,
) -> Result<Vec<Outcome>, ForeignLeadership> {
    if batch.leadership != entry.leadership {
        return Err(ForeignLeadership);
    }
    state.now_ms = state.now_ms.max(batch.wall_ms);
    if *state.leadership != entry.leadership {
        state.leadership = Arc::new(entry.leadership);
    }
    forget_free_rows(state);

    let mut outcomes = Vec::with_capacity(batch.commands.len());
    for (offset, command) in (0..).zip(&batch.commands) {
        let at = At {
            index: entry.index,
            offset,
        };
        outcomes.push(apply_command(state, at, command).unwrap_or_else(Outcome::Refused));
    }
    Ok(outcomes)
}

/// The place of one command under the entry's leadership.
#[derive(Clone, Copy)]
struct At {
    index: u64,
    offset: u32,
}

fn apply_command(state: &mut State, at: At, command: &Command) -> Result<Outcome, Refusal> {
    match command {
        Command::Open {
            open_id,
            holder,
            ttl,
        } => open(state, at, *open_id, holder, *ttl),
        Command::Close { session } => {
            let found = state.session(session).is_some();
            let ended = if found {
                end_session(state, SessionKey::from(session))
            } else {
                None
            };
            Ok(Outcome::Closed {
                closed: ended.is_some(),
                ended: ended.unwrap_or(0),
            })
        }
        Command::Expire { session } => {
            let ended = end_session(state, *session);
            Ok(Outcome::Expired {
                expired: ended.is_some(),
                ended: ended.unwrap_or(0),
            })
        }
        Command::Acquire {
            scope,
            session,
            request_id,
        } => acquire(state, at, scope, session, *request_id),
        Command::Release {
            scope,
            session,
            epoch,
        } => release(state, scope, session, *epoch),
        Command::Revoke { scope, epoch } => revoke(state, at, scope, *epoch),
        Command::RegisterKey { node, public_key } => register_key(state, *node, public_key),
    }
}

fn open(
    state: &mut State,
    at: At,
    open_id: OpenId,
    holder: &Holder,
    ttl: Ttl,
) -> Result<Outcome, Refusal> {
    let opened = |key: SessionKey, new| Outcome::Opened {
        session: SessionId {
            open_id,
            index: key.index,
            offset: key.offset,
        },
        ttl,
        holder: holder.clone(),
        new,
    };
    if let Some(key) = state.open_ids.get(&open_id) {
        let same = state
            .rows
            .sessions()
            .get(key)
            .is_some_and(|session| session.holder == *holder && session.ttl == ttl);
        return if same {
            Ok(opened(*key, false))
        } else {
            Err(Refusal::OpenIdReused)
        };
    }
    if state.rows.sessions().len() >= SESSIONS_MAX {
        return Err(Refusal::SessionLimit);
    }
    let key = SessionKey {
        index: at.index,
        offset: at.offset,
    };
    let session = SessionState {
        open_id,
        holder: holder.clone(),
        ttl,
        forgotten: 0,
        spent: 0,
    };
    state.rows.put_session(key, session);
    state.open_ids.insert(open_id, key);
    Ok(opened(key, true))
}

/// Ends a session with all that is its own; the number of grants that ended, or `None` when there
/// was no such session.
fn end_session(state: &mut State, key: SessionKey) -> Option<usize> {
    let session = state.rows.remove_session(key)?;
    state.open_ids.remove(&session.open_id);
    let bound = ids_of(&state.bound, key);
    for (request_id, scope) in &bound {
        state.bound.remove(&(key, *request_id));
        if let Some(row) = state.rows.scopes().get(scope) {
            let epoch = row.epoch;
            set_free(state, Arc::clone(scope), epoch);
        }
    }
    for (request_id, _) in ids_of(state.rows.spent(), key) {
        state.rows.remove_spent((key, request_id));
    }
    Some(bound.len())
}

fn ids_of(
    map: &imbl::OrdMap<(SessionKey, RequestId), Arc<str>>,
    key: SessionKey,
) -> Vec<(RequestId, Arc<str>)> {
    let (Ok(first), Ok(last)) = (
        RequestId::new(1),
        RequestId::new(epoch_core::EPOCH_EXCLUSIVE_MAX - 1),
    ) else {
        return Vec::new();
    };
    map.range((key, first)..=(key, last))
        .map(|((_, request_id), scope)| (*request_id, Arc::clone(scope)))
        .collect()
}

fn acquire(
    state: &mut State,
    at: At,
    scope: &Scope,
    session: &SessionId,
    request_id: RequestId,
) -> Result<Outcome, Refusal> {
    let key = SessionKey::from(session);
    let forgotten = state
        .session(session)
        .ok_or(Refusal::SessionExpired)?
        .forgotten;
    let row = state.rows.scopes().get(scope.as_str());

    if let Some(bound) = state.bound.get(&(key, request_id)) {
        if **bound != *scope.as_str() {
            return Err(Refusal::RequestIdReused);
        }
        let held = row.and_then(|row| Some((row.epoch, row.held.as_ref()?)));
        let grant = held.and_then(|(epoch, held)| state.grant(scope.clone(), epoch, held));
        let grant = grant.ok_or(Refusal::Superseded { epoch: None })?;
        return Ok(Outcome::Granted { grant, new: false });
    }
    if let Some(spent) = state.rows.spent().get(&(key, request_id)) {
        if **spent != *scope.as_str() {
            return Err(Refusal::RequestIdReused);
        }
        return Err(Refusal::Superseded {
            epoch: row.map(|row| row.epoch),
        });
    }
    if request_id.get() <= forgotten {
        return Err(Refusal::RequestIdTooOld { forgotten });
    }
    if let Some(Row {
        epoch,
        held: Some(held),
    }) = row
    {
        let epoch = *epoch;
        return Err(if held.session() == key {
            Refusal::AlreadyHeld { epoch }
        } else {
            Refusal::ScopeHeld { epoch }
        });
    }
    if state.bound.len() >= GRANTS_MAX {
        return Err(Refusal::GrantLimit);
    }

    let last = row.map(|row| row.epoch);
    let epoch = epoch_rule::next(last, state.now_ms).ok_or(Refusal::EpochExhausted)?;
    // A free row's name is kept, so that one scope is one allocation.
    let name = match (last, state.rows.scopes().get_key_value(scope.as_str())) {
        (Some(last), Some((name, _))) => {
            let name = Arc::clone(name);
            state.free.remove(&(last, Arc::clone(&name)));
            name
        }
        _ => scope.shared(),
    };
    let held = Held {
        session_index: key.index,
        session_offset: key.offset,
        request_id,
        index: at.index,
        offset: at.offset,
        leadership: Arc::clone(&state.leadership),
    };
    let grant = state
        .grant(scope.clone(), epoch, &held)
        .ok_or(Refusal::SessionExpired)?;
    state.rows.put_scope(
        Arc::clone(&name),
        Row {
            epoch,
            held: Some(held),
        },
    );
    state.bound.insert((key, request_id), name);
    Ok(Outcome::Granted { grant, new: true })
}

fn release(
    state: &mut State,
    scope: &Scope,
    session: &SessionId,
    epoch: Epoch,
) -> Result<Outcome, Refusal> {
    match state.current_grant(scope, session, epoch) {
        Ok(grant) => {
            end_grant(state, scope, SessionKey::from(session), grant.request_id);
            Ok(Outcome::Released { released: true })
        }
        // Free since, and nobody has had it after: releasing again is not an error.
        Err(Refusal::Superseded { epoch: None }) => Ok(Outcome::Released { released: false }),
        Err(refusal) => Err(refusal),
    }
}

fn revoke(
    state: &mut State,
    at: At,
    scope: &Scope,
    epoch: Option<Epoch>,
) -> Result<Outcome, Refusal> {
    let row = state.rows.scopes().get(scope.as_str()).cloned();
    if let Some(expected) = epoch {
        match &row {
            Some(Row {
                epoch,
                held: Some(_),
            }) if *epoch == expected => {}
            Some(row) if row.epoch < expected => {
                return Err(Refusal::EpochUnknown { epoch: expected });
            }
            Some(row) => {
                let later = (row.epoch > expected).then_some(row.epoch);
                return Err(Refusal::Superseded { epoch: later });
            }
            None => return Err(state.without_row(expected)),
        }
    }
    let last = row.as_ref().map(|row| row.epoch);
    let burnt = epoch_rule::next(last, state.now_ms).ok_or(Refusal::EpochExhausted)?;
    let held = row.and_then(|row| row.held);
    let ended = held.is_some();
    if let Some(held) = held {
        end_grant(state, scope, held.session(), held.request_id);
    }
    set_free(state, scope.shared(), burnt);
    let position = state.position(&state.leadership, at.index, at.offset);
    Ok(Outcome::Revoked {
        scope: scope.clone(),
        epoch: burnt,
        position,
        ended,
    })
}

/// Frees a held scope and moves its request id to the spent ones.
fn end_grant(state: &mut State, scope: &Scope, key: SessionKey, request_id: RequestId) {
    if let Some(name) = state.bound.remove(&(key, request_id)) {
        state.rows.put_spent((key, request_id), name);
        forget_spent_id(state, key);
    }
    let row = state.rows.scopes().get_key_value(scope.as_str());
    if let Some((name, epoch)) = row.map(|(name, row)| (Arc::clone(name), row.epoch)) {
        set_free(state, name, epoch);
    }
}

/// Forgets the session's lowest spent id when it keeps too many.
fn forget_spent_id(state: &mut State, key: SessionKey) {
    let many = |session: &&SessionState| session.spent > SPENT_IDS_KEPT;
    if state.rows.sessions().get(&key).filter(many).is_none() {
        return;
    }
    let Ok(first) = RequestId::new(1) else { return };
    let mut of_session = state.rows.spent().range((key, first)..);
    let lowest = of_session.next().map(|(id, _)| *id);
    let Some((_, request_id)) = lowest.filter(|(session, _)| *session == key) else {
        return;
    };
    state.rows.remove_spent((key, request_id));
    if let Some(mut session) = state.rows.sessions().get(&key).cloned() {
        session.forgotten = session.forgotten.max(request_id.get());
        state.rows.put_session(key, session);
    }
}

/// Makes a scope free at `epoch`: its row stays until time alone keeps the next epoch above it.
fn set_free(state: &mut State, name: Arc<str>, epoch: Epoch) {
    if let Some(row) = state.rows.scopes().get(&name)
        && row.held.is_none()
    {
        state.free.remove(&(row.epoch, Arc::clone(&name)));
    }
    if epoch_rule::forgettable(epoch, state.now_ms) {
        state.rows.remove_scope(&name);
    } else {
        state.free.insert((epoch, Arc::clone(&name)));
        state.rows.put_scope(name, Row { epoch, held: None });
    }
}

fn forget_free_rows(state: &mut State) {
    for _ in 0..FORGOTTEN_PER_BATCH_MAX {
        match state.free.get_min() {
            Some((epoch, _)) if epoch_rule::forgettable(*epoch, state.now_ms) => {}
            _ => return,
        }
        if let (Some((_, name)), rest) = state.free.without_min() {
            state.rows.remove_scope(&name);
            state.free = rest;
        }
    }
}

fn register_key(
    state: &mut State,
    node: NodeId,
    public_key: &Arc<PublicKey>,
) -> Result<Outcome, Refusal> {
    if !state.has_key(node, public_key) && state.rows.keys().len() >= KEYS_MAX {
        return Err(Refusal::KeyLimit);
    }
    state.rows.put_key(node, Arc::clone(public_key));
    Ok(Outcome::KeyRegistered { node })
}
