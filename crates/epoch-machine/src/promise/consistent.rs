//! A state's parts agree with each other.

use std::collections::BTreeMap;

use epoch_core::Scope;

use super::Violation;
use crate::command::SessionKey;
use crate::state::{GRANTS_MAX, KEYS_MAX, SESSIONS_MAX, SPENT_IDS_KEPT, State};

/// Every relation between the parts of a state holds: sessions and open ids, held rows and request
/// ids, free rows and their order, spent ids and their counts, and the bounds.
///
/// Takes O(n log n) time for n rows.
///
/// # Errors
/// The first part that does not fit.
pub fn consistent(state: &State) -> Result<(), Violation> {
    sessions(state)?;
    scopes(state)?;
    spent(state)?;
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
    for (key, session) in state.rows.sessions() {
        must(state.open_ids.get(&session.open_id) == Some(key), || {
            format!("session {key:?} is not the one of its open id")
        })?;
    }
    Ok(())
}

fn scopes(state: &State) -> Result<(), Violation> {
    let (mut held_rows, mut free_rows) = (0_usize, 0_usize);
    for (name, row) in state.rows.scopes() {
        must(Scope::parse(name).is_ok(), || {
            format!("{name:?} is not a scope")
        })?;
        match &row.held {
            Some(held) => {
                held_rows += 1;
                must(state.rows.sessions().contains_key(&held.session()), || {
                    format!("scope {name:?} is held by a session that is gone")
                })?;
                let bound = state.bound.get(&(held.session(), held.request_id));
                must(bound == Some(name), || {
                    format!("the request id of {name:?} is bound to {bound:?}")
                })?;
            }
            None => {
                free_rows += 1;
                must(state.free.contains(&(row.epoch, name.clone())), || {
                    format!(
                        "free scope {name:?} at {} is not among the free ones",
                        row.epoch
                    )
                })?;
            }
        }
    }
    must(state.bound.len() == held_rows, || {
        format!(
            "{} bound request ids, {held_rows} held scopes",
            state.bound.len()
        )
    })?;
    must(state.free.len() == free_rows, || {
        format!(
            "{} in order of epoch, {free_rows} free scopes",
            state.free.len()
        )
    })
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
        must(!state.bound.contains_key(id), || {
            format!("id {id:?} is spent and bound")
        })?;
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
        && state.bound.len() <= GRANTS_MAX
        && state.rows.keys().len() <= KEYS_MAX;
    must(within, || format!("beyond a bound: {:?}", state.counts()))
}
