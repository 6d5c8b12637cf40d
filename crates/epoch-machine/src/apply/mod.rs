//! Applying a batch: the only place where the state changes.

mod acquire;
mod end;
mod grants;
mod keys;
mod operate;
mod permit;
mod record;
mod session;
mod trust;
mod waits;

use std::sync::Arc;

use epoch_core::{Cursor, Epoch, Holder, Position, RequestId, SessionId};

use crate::admin::Permission;
use crate::command::{Batch, Command, Entry, SessionKey};
use crate::epoch_rule;
use crate::event::{Event, GrantEvent, GrantEventKind};
use crate::outcome::{Applied, ForeignLeadership, Outcome, Refusal};
use crate::record::REMOVED_KEPT_MS;
use crate::rows::Origin;
use crate::state::{SessionState, State};
use crate::terms::Terms;

/// Rows forgotten of each kind in one batch at most, so that no batch takes long.
const FORGOTTEN_PER_BATCH_MAX: usize = 1_024;

/// Applies the batch that stands at `entry`: one outcome for each command, in order, and what
/// happened.
///
/// # Errors
/// The batch was made under another leadership than the one that wrote it: nothing has changed.
pub fn apply(state: &mut State, entry: Entry, batch: &Batch) -> Result<Applied, ForeignLeadership> {
    if batch.leadership != entry.leadership {
        return Err(ForeignLeadership);
    }
    state.now_ms = state.now_ms.max(batch.wall_ms);
    if state.origin.leadership != entry.leadership {
        state.origin = Arc::new(Origin {
            leadership: entry.leadership,
            terms: Terms::default(),
            before: None,
        });
    }
    forget_free_rows(state);
    forget_removed_records(state);

    let mut outcomes = Vec::with_capacity(batch.commands.len());
    let mut applying = Applying {
        state,
        index: entry.index,
        offset: 0,
        grant_events: 0,
        events: Vec::with_capacity(batch.commands.len()),
    };
    for (offset, command) in (0..).zip(&batch.commands) {
        applying.offset = offset;
        let outcome = applying.command(command);
        outcomes.push(outcome.unwrap_or_else(Outcome::Refused));
    }
    Ok(Applied {
        outcomes,
        events: applying.events,
    })
}

/// A state in the course of an entry.
struct Applying<'a> {
    state: &'a mut State,
    index: u64,
    /// Of the command that is being applied.
    offset: u32,
    /// How many of the entry's events so far are of grants.
    grant_events: u32,
    events: Vec<Event>,
}

impl Applying<'_> {
    #[expect(
        clippy::too_many_lines,
        reason = "one arm a command, with nothing in it but its fields"
    )]
    fn command(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        match command {
            Command::Open {
                open_id,
                holder,
                ttl,
                stall_limit,
                principal,
                holder_key,
            } => {
                let new = SessionState {
                    principal: principal.clone(),
                    holder_key: *holder_key,
                    ..SessionState::new(*open_id, holder.clone(), *ttl, *stall_limit)
                };
                self.open(new)
            }
            Command::Close { session } => Ok(self.close(session)),
            Command::Expire { session } => Ok(self.expire(*session)),
            Command::Acquire {
                scope,
                session,
                request_id,
                terms,
                wait,
                reissue,
            } => self.acquire(scope, session, *request_id, terms, *wait, *reissue),
            Command::AcquireMany {
                scopes,
                session,
                request_id,
                terms,
            } => self.acquire_many(scopes, session, *request_id, terms),
            Command::CancelWait {
                scope,
                session,
                request_id,
            } => self.cancel_wait(scope, session, *request_id),
            Command::EndWait {
                session,
                request_id,
            } => Ok(self.end_wait(*session, *request_id)),
            Command::EndDelay { scope, epoch } => Ok(self.end_delay(scope, *epoch)),
            Command::Release {
                scope,
                session,
                epoch,
            } => self.release(scope, session, *epoch),
            Command::Transfer {
                scope,
                session,
                epoch,
                to,
            } => self.transfer(scope, session, *epoch, to),
            Command::Revoke { scope, epoch, by } => self.revoke(by.as_ref(), scope, *epoch),
            Command::WriteRecord {
                scope,
                session,
                epoch,
                value,
                expected_revision,
                intent,
            } => self.write_record(
                scope,
                session,
                *epoch,
                value.as_ref(),
                *expected_revision,
                *intent,
            ),
            Command::GrantPermission {
                by,
                principal,
                prefix,
                verbs,
            } => {
                let permission = Permission {
                    principal: principal.clone(),
                    prefix: prefix.clone(),
                    verbs: *verbs,
                };
                self.grant_permission(by.as_ref(), permission)
            }
            Command::RevokePermission {
                by,
                principal,
                prefix,
            } => self.revoke_permission(by.as_ref(), principal, prefix),
            Command::AddToken {
                by,
                principal,
                label,
                hash,
                expires_ms,
            } => self.add_token(by.as_ref(), principal, label, *hash, *expires_ms),
            Command::RemoveToken {
                by,
                principal,
                label,
            } => self.remove_token(by.as_ref(), principal, label),
            Command::SetLimits {
                by,
                principal,
                limits,
            } => self.set_limits(by.as_ref(), principal, *limits),
            Command::PutBundle { by, bundle } => self.put_bundle(by.as_ref(), bundle),
            Command::OfferKey(offer) => self.offer_key(offer),
            Command::RotateKeys { by, node } => self.rotate_keys(by.as_ref(), *node),
            Command::RetireKey { by, kid } => self.retire_key(by.as_ref(), *kid),
            Command::PutStatement { by, text } => self.put_statement(by.as_ref(), text),
        }
    }

    /// The position of the command that is being applied.
    fn position(&self) -> Position {
        let leadership = &self.state.origin.leadership;
        self.state.position(leadership, self.index, self.offset)
    }

    fn grant_event(
        &mut self,
        kind: GrantEventKind,
        scope: &Arc<str>,
        epoch: Epoch,
        ended: Option<Epoch>,
        request_id: Option<RequestId>,
        who: Option<(Holder, SessionId)>,
    ) {
        // 4,096 commands of at most 4,000,000 grants each: an entry's events can be counted in 32
        // bits unless all of them end in each, which no state allows.
        self.grant_events = self.grant_events.saturating_add(1);
        self.events.push(Event::Grant(GrantEvent {
            cursor: Cursor {
                index: self.index,
                offset: self.grant_events,
            },
            time_ms: self.state.now_ms,
            kind,
            scope: Arc::clone(scope),
            epoch,
            ended,
            request_id,
            who,
        }));
    }

    /// Whom events name for a session.
    fn who(&self, key: SessionKey) -> Option<(Holder, SessionId)> {
        let session = self.state.rows.sessions().get(&key)?;
        Some((session.holder.clone(), key.with(session.open_id)))
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

fn forget_removed_records(state: &mut State) {
    let before = epoch_rule::floor(state.now_ms.saturating_sub(REMOVED_KEPT_MS));
    for _ in 0..FORGOTTEN_PER_BATCH_MAX {
        match state.removed.get_min() {
            Some((revision, _)) if before.is_some_and(|before| *revision <= before) => {}
            _ => return,
        }
        if let (Some((_, name)), rest) = state.removed.without_min() {
            state.rows.remove_record(&name);
            state.removed = rest;
        }
    }
}
