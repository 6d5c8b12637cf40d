//! A state's parts agree with each other.

use std::collections::BTreeMap;

use epoch_core::{GrantsDigest, Principal, Scope};

use super::Violation;
use crate::admin::AdminRow;
use crate::command::SessionKey;
use crate::limits::Usage;
use crate::record::INTENTS_KEPT;
use crate::state::{
    GRANTS_MAX, QUEUE_MAX, RECORD_BYTES_MAX, SESSIONS_MAX, SPENT_IDS_KEPT, State, WAITS_MAX,
};

/// Every relation between the parts of a state holds: sessions with what finds and counts them,
/// held rows and request ids, free rows and their order, queues, spent ids, records, rare rows with
/// what follows from them, and the bounds. Nobody waits for what it may not acquire, and once there
/// are permissions, somebody may operate.
///
/// Takes O(n log n) time for n rows.
///
/// # Errors
/// The first part that does not fit.
pub fn consistent(state: &State) -> Result<(), Violation> {
    sessions(state)?;
    scopes(state)?;
    waits(state)?;
    spent(state)?;
    records(state)?;
    admin(state)?;
    usage(state)?;
    bounds(state)
}

fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(Violation::Inconsistent(what()))
    }
}

fn sessions(state: &State) -> Result<(), Violation> {
    must(state.open_ids.len() == state.rows.sessions().len(), || {
        format!(
            "{} open ids, {} sessions",
            state.open_ids.len(),
            state.rows.sessions().len()
        )
    })?;
    must(
        state.session_hashes.len() == state.rows.sessions().len(),
        || format!("{} session hashes", state.session_hashes.len()),
    )?;
    let mut held: BTreeMap<SessionKey, (u32, GrantsDigest)> = BTreeMap::new();
    for (name, row) in state.rows.scopes() {
        if let Some(grant) = row.held() {
            let (count, digest) = held.entry(grant.session()).or_default();
            *count = count.saturating_add(1);
            *digest = digest.with(name, row.epoch);
        }
    }
    for (key, session) in state.rows.sessions() {
        let opened = (session.principal.clone(), session.open_id);
        must(state.open_ids.get(&opened) == Some(key), || {
            format!("session {key:?} is not the one of its open id")
        })?;
        let hash = key.with(session.open_id).hash();
        must(state.session_by_hash(&hash) == Some(*key), || {
            format!("session {key:?} is not the one of its hash")
        })?;
        let (grants, digest) = held.get(key).copied().unwrap_or_default();
        must((session.grants, session.digest) == (grants, digest), || {
            format!("session {key:?} counts {} grants", session.grants)
        })?;
        let waits = state.waits_of(*key).len();
        must(usize::try_from(session.waits) == Ok(waits), || {
            format!("session {key:?} counts {} waits of {waits}", session.waits)
        })?;
    }
    Ok(())
}

fn scopes(state: &State) -> Result<(), Violation> {
    let (mut held_rows, mut free_rows, mut delayed_rows) = (0_usize, 0_usize, 0_usize);
    for (name, row) in state.rows.scopes() {
        must(Scope::parse(name).is_ok(), || {
            format!("{name:?} is not a scope")
        })?;
        if let Some(held) = row.held() {
            held_rows += 1;
            must(state.rows.sessions().contains_key(&held.session()), || {
                format!("scope {name:?} is held by a session that is gone")
            })?;
            let bound = (held.session(), held.request_id, name.clone());
            must(state.bound.contains(&bound), || {
                format!("the request id of {name:?} is not bound")
            })?;
            if let Some(request_id) = held.request_id {
                let scope = state.bound_scope(held.session(), request_id);
                must(scope.as_ref() == Some(name), || {
                    format!("the request id of {name:?} is bound to {scope:?}")
                })?;
            }
        } else if row.is_delayed() {
            delayed_rows += 1;
            must(state.delayed.contains(name), || {
                format!("delayed scope {name:?} is not among the delayed ones")
            })?;
        } else {
            free_rows += 1;
            must(state.free.contains(&(row.epoch, name.clone())), || {
                format!(
                    "free scope {name:?} at {} is not among the free ones",
                    row.epoch
                )
            })?;
        }
    }
    must(state.bound.len() == held_rows, || {
        format!(
            "{} bound request ids, {held_rows} held scopes",
            state.bound.len()
        )
    })?;
    must(state.delayed.len() == delayed_rows, || {
        format!(
            "{} delays, {delayed_rows} delayed scopes",
            state.delayed.len()
        )
    })?;
    must(state.free.len() == free_rows, || {
        format!(
            "{} in order of epoch, {free_rows} free scopes",
            state.free.len()
        )
    })
}

fn waits(state: &State) -> Result<(), Violation> {
    let mut lengths: BTreeMap<_, usize> = BTreeMap::new();
    for (place, waiting) in state.rows.waits() {
        let id = (waiting.session, waiting.request_id);
        must(state.rows.sessions().contains_key(&id.0), || {
            format!("{id:?} waits in a session that is gone")
        })?;
        must(state.waiting.get(&id) == Some(place), || {
            format!("{id:?} does not wait at {place:?}")
        })?;
        let queued = state.wait_of(&place.scope, id.0).map(|(place, _)| place);
        must(queued.as_ref() == Some(place), || {
            format!("{id:?} waits at {place:?}, and its session at {queued:?}")
        })?;
        must(state.bound_scope(id.0, id.1).is_none(), || {
            format!("id {id:?} waits and is bound")
        })?;
        must(state.session_may_acquire(id.0, &place.scope), || {
            format!("{id:?} waits for {:?}, which it may not", place.scope)
        })?;
        let row = state.rows.scopes().get(&place.scope);
        let taken = row.is_some_and(|row| row.held().is_some() || row.is_delayed());
        must(taken || state.next_epoch(&place.scope).is_none(), || {
            format!("{id:?} waits for a scope that is free")
        })?;
        let holder = row.and_then(|row| row.held()).map(|held| held.session());
        must(holder != Some(id.0), || {
            format!("{id:?} waits for a scope that its session holds")
        })?;
        *lengths.entry(place.scope.clone()).or_default() += 1;
    }
    let waits = state.rows.waits().len();
    must(
        state.waiting.len() == waits && state.queued.len() == waits,
        || format!("{waits} waits, {} ids of them", state.waiting.len()),
    )?;
    must(
        state.queue_lengths.iter().eq(lengths.iter())
            && lengths.values().all(|length| *length <= QUEUE_MAX),
        || format!("queues of {lengths:?} count as {:?}", state.queue_lengths),
    )
}

fn records(state: &State) -> Result<(), Violation> {
    let (mut bytes, mut removed) = (0, 0);
    for (name, record) in state.rows.records() {
        bytes += record.bytes(name);
        must(record.intents.len() <= INTENTS_KEPT, || {
            format!("record {name:?} has {} intents", record.intents.len())
        })?;
        if record.value.is_none() {
            removed += 1;
            let place = (record.revision, name.clone());
            must(state.removed.contains(&place), || {
                format!("removed record {name:?} is not among the removed ones")
            })?;
        }
    }
    must(
        (bytes, removed) == (state.rows.record_bytes(), state.removed.len()),
        || format!("{bytes} bytes of records, {removed} of them removed"),
    )
}

fn admin(state: &State) -> Result<(), Violation> {
    let (mut permissions, mut tokens, mut audit) = (0, 0, Vec::new());
    for (key, row) in state.rows.admin() {
        must(row.key() == *key, || format!("{row:?} stands at {key:?}"))?;
        match row {
            AdminRow::Bundle(_)
            | AdminRow::Offer(_)
            | AdminRow::Rotation(_)
            | AdminRow::Retired(_)
            | AdminRow::Statement(_) => {}
            AdminRow::Permission(_) => permissions += 1,
            AdminRow::Token(token) => {
                tokens += 1;
                let labelled = state.labelled(&token.principal, &token.label);
                must(labelled == Some(token), || {
                    format!("{token:?} is not the one of its label")
                })?;
            }
            AdminRow::Limits { limits, .. } => {
                must(!limits.are_none(), || format!("{row:?} limits nothing"))?;
            }
            AdminRow::Audit(record) => audit.push(record.number),
        }
    }
    must(
        (permissions, tokens) == (state.rows.permissions(), state.token_labels.len()),
        || format!("{permissions} permissions and {tokens} tokens count as others"),
    )?;
    must(state.is_open() || state.has_operator_but(None), || {
        format!("nobody may operate, with {permissions} permissions")
    })?;
    must(state.untrue_of_trust().is_none(), || {
        format!("{:?} is there", state.untrue_of_trust())
    })?;
    let rising = audit.windows(2).all(|pair| match pair {
        [one, next] => one.checked_add(1) == Some(*next),
        _ => true,
    });
    must(rising, || format!("audit records {audit:?}"))
}

fn usage(state: &State) -> Result<(), Violation> {
    let mut expected: BTreeMap<&Principal, Usage> = BTreeMap::new();
    for (key, session) in state.rows.sessions() {
        let Some(principal) = &session.principal else {
            continue;
        };
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let usage = expected.entry(principal).or_default();
        *usage = usage.plus(Usage {
            sessions: 1,
            grants: count(state.grants_of(*key).len()),
            waits: count(state.waits_of(*key).len()),
        });
    }
    must(
        expected
            .iter()
            .map(|(who, usage)| (*who, usage))
            .eq(state.rows.usage()),
        || format!("{expected:?} count as {:?}", state.rows.usage()),
    )
}

fn spent(state: &State) -> Result<(), Violation> {
    let mut counts: BTreeMap<SessionKey, u32> = BTreeMap::new();
    for id in state.rows.spent().keys() {
        let (key, request_id) = *id;
        let forgotten = state
            .rows
            .sessions()
            .get(&key)
            .map(|session| session.forgotten);
        must(
            forgotten.is_some_and(|forgotten| request_id.get() > forgotten),
            || {
                format!(
                    "spent id {request_id} of session {key:?}, which forgot up to {forgotten:?}"
                )
            },
        )?;
        let binds = state.bound_scope(key, request_id).is_some() || state.waiting.contains_key(id);
        must(!binds, || format!("id {id:?} is spent and bound"))?;
        *counts.entry(key).or_default() += 1;
    }
    for (key, session) in state.rows.sessions() {
        let count = counts.get(key).copied().unwrap_or(0);
        must(session.spent == count && count <= SPENT_IDS_KEPT, || {
            format!(
                "session {key:?} counts {} spent ids and has {count}",
                session.spent
            )
        })?;
        must(session.forgotten == 0 || count == SPENT_IDS_KEPT, || {
            format!("session {key:?} has forgotten ids and keeps only {count}")
        })?;
    }
    Ok(())
}

fn bounds(state: &State) -> Result<(), Violation> {
    let within = state.rows.sessions().len() <= SESSIONS_MAX
        && state.grants_and_delays() <= GRANTS_MAX
        && state.too_many().is_none()
        && state.rows.waits().len() <= WAITS_MAX
        && state.rows.record_bytes() <= RECORD_BYTES_MAX;
    must(within, || format!("beyond a bound: {:?}", state.counts()))
}
