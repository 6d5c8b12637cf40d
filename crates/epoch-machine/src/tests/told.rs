//! What someone knows who hears of events only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use epoch_core::{Cursor, Epoch, RequestId};

use crate::command::{Entry, SessionKey};
use crate::event::{Event, GrantEvent, GrantEventKind, WaitEnd};
use crate::load::StandingRow;
use crate::state::State;

/// Whose a grant is, and under which request id.
type Whose = (SessionKey, Option<RequestId>);

/// Sessions, grants, queues and delays as events tell of them: a state says the same, or an event
/// is missing, wrong or one too many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    sessions: BTreeSet<SessionKey>,
    grants: BTreeMap<Arc<str>, (Epoch, Whose)>,
    queues: BTreeMap<Arc<str>, Vec<(SessionKey, RequestId)>>,
    delays: BTreeMap<Arc<str>, Epoch>,
}

fn must(holds: bool, what: &str, event: &Event) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{what}: {event:?}"))
    }
}

impl Told {
    pub(super) fn of(state: &State) -> Self {
        let mut told = Self {
            sessions: state.session_rows().map(|row| row.key).collect(),
            ..Self::default()
        };
        for row in state.scope_rows() {
            let name = row.scope.shared();
            match row.standing {
                StandingRow::Held(held) => {
                    let whose = (held.session, held.request_id);
                    told.grants.insert(name, (row.epoch, whose));
                }
                StandingRow::Free(delay) if !delay.is_zero() => {
                    told.delays.insert(name, row.epoch);
                }
                StandingRow::Free(_) => {}
            }
        }
        for row in state.wait_rows() {
            let queue = told.queues.entry(row.scope.shared()).or_default();
            queue.push((row.session, row.request_id));
        }
        told
    }

    /// Takes in what an entry brought about, as it must follow from what was told before.
    pub(super) fn follow(
        &mut self,
        entry: Entry,
        now_ms: u64,
        events: &[Event],
    ) -> Result<(), String> {
        let mut grant_events = 0;
        for (at, event) in events.iter().enumerate() {
            let next = events.get(at + 1);
            match event {
                Event::SessionOpened { session, new, .. } => {
                    must(
                        self.sessions.insert(*session) == *new,
                        "no new session",
                        event,
                    )?;
                }
                Event::SessionEnded { session, .. } => {
                    must(self.sessions.remove(session), "it was not there", event)?;
                    must(!self.has(*session), "it has something yet", event)?;
                }
                Event::Grant(grant) => {
                    grant_events += 1;
                    let cursor = Cursor {
                        index: entry.index,
                        offset: grant_events,
                    };
                    let stands = grant.cursor == cursor && grant.time_ms == now_ms;
                    must(stands, "another place or time", event)?;
                    self.grant(grant, event)?;
                }
                Event::WaitBegun {
                    scope,
                    session,
                    request_id,
                    ..
                } => {
                    let taken = self.grants.contains_key(scope) || self.delays.contains_key(scope);
                    must(taken, "the scope is free", event)?;
                    let queue = self.queues.entry(Arc::clone(scope)).or_default();
                    let twice = queue.iter().any(|(other, _)| other == session);
                    must(!twice, "it waits already", event)?;
                    queue.push((*session, *request_id));
                }
                Event::WaitEnded {
                    scope,
                    session,
                    request_id,
                    end,
                } => {
                    let id = (*session, *request_id);
                    must(self.remove_wait(scope, id), "it does not wait", event)?;
                    let granted = is_granted(next, scope, id);
                    must(
                        granted == (*end == WaitEnd::Granted),
                        "no such grant",
                        event,
                    )?;
                }
                Event::DelayBegun { scope, epoch, .. } => {
                    let lost = at.checked_sub(1).and_then(|before| events.get(before));
                    must(is_lost(lost, scope, *epoch), "nothing was lost", event)?;
                    let old = self.delays.insert(Arc::clone(scope), *epoch);
                    must(old.is_none(), "it is delayed already", event)?;
                }
                Event::DelayEnded { scope } => {
                    must(self.delays.remove(scope).is_some(), "no delay", event)?;
                }
            }
        }
        Ok(())
    }

    fn grant(&mut self, grant: &GrantEvent, event: &Event) -> Result<(), String> {
        let old = self.grants.remove(&grant.scope);
        let whose = grant.who.as_ref();
        let whose = whose.map(|(_, session)| (SessionKey::from(session), grant.request_id));
        let ended = old.map(|(epoch, _)| epoch);
        must(grant.ended == ended, "another grant ended", event)?;
        match grant.kind {
            GrantEventKind::Granted | GrantEventKind::Transferred => {
                let rises = ended.is_none_or(|ended| grant.epoch > ended);
                must(rises, "the epoch does not rise", event)?;
                let free = !self.delays.contains_key(&grant.scope);
                must(free, "the scope is delayed", event)?;
                let (Some(whose), from) = (whose, old.map(|(_, (from, _))| from)) else {
                    return must(false, "to nobody", event);
                };
                let fits = match grant.kind {
                    // To another than the one that had it.
                    GrantEventKind::Transferred => from.is_some_and(|from| from != whose.0),
                    // Of a free scope, or reissued.
                    _ => from.is_none_or(|from| from == whose.0),
                };
                must(fits, "to the wrong session", event)?;
                must(self.sessions.contains(&whose.0), "no such session", event)?;
                self.grants
                    .insert(Arc::clone(&grant.scope), (grant.epoch, whose));
            }
            GrantEventKind::Released | GrantEventKind::Expired => {
                must(ended == Some(grant.epoch), "another epoch", event)?;
                let lost = old.map(|(_, (from, _))| from);
                must(
                    whose.map(|(from, _)| from) == lost,
                    "another session",
                    event,
                )?;
            }
            GrantEventKind::Revoked => {
                let rises = ended.is_none_or(|ended| grant.epoch > ended);
                must(rises, "the epoch does not rise", event)?;
                let lost = old.map(|(_, (from, _))| from);
                must(
                    whose.map(|(from, _)| from) == lost,
                    "another session",
                    event,
                )?;
            }
        }
        Ok(())
    }

    fn has(&self, session: SessionKey) -> bool {
        let mut grants = self.grants.values();
        let mut waits = self.queues.values().flatten();
        grants.any(|(_, (key, _))| *key == session) || waits.any(|(key, _)| *key == session)
    }

    fn remove_wait(&mut self, scope: &Arc<str>, id: (SessionKey, RequestId)) -> bool {
        let Some(queue) = self.queues.get_mut(scope) else {
            return false;
        };
        let Some(at) = queue.iter().position(|other| *other == id) else {
            return false;
        };
        queue.remove(at);
        if queue.is_empty() {
            self.queues.remove(scope);
        }
        true
    }
}

fn is_granted(event: Option<&Event>, scope: &str, id: (SessionKey, RequestId)) -> bool {
    let Some(Event::Grant(grant)) = event else {
        return false;
    };
    let new = matches!(
        grant.kind,
        GrantEventKind::Granted | GrantEventKind::Transferred
    );
    let session = grant.who.as_ref().map(|(_, session)| session.into());
    new && *grant.scope == *scope && (session, grant.request_id) == (Some(id.0), Some(id.1))
}

fn is_lost(event: Option<&Event>, scope: &str, epoch: Epoch) -> bool {
    matches!(event, Some(Event::Grant(grant))
        if grant.kind == GrantEventKind::Expired && *grant.scope == *scope && grant.epoch == epoch)
}
