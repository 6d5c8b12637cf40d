//! What all ways to a grant, and from one, have in common.

use std::sync::Arc;

use epoch_core::{Epoch, RequestId, Scope};

use super::Applying;
use crate::command::SessionKey;
use crate::epoch_rule;
use crate::event::{Event, GrantEventKind, WaitEnd};
use crate::outcome::{Grant, Refusal};
use crate::rows::{Held, Origin, Row, Spent, SpentUse, Standing};
use crate::terms::{LockDelay, Terms};

/// For whom a grant is made, and on what terms.
pub(super) struct For {
    pub(super) session: SessionKey,
    /// `None` when the grant is transferred.
    pub(super) request_id: Option<RequestId>,
    pub(super) terms: Terms,
    /// The grant it was before, when it is transferred.
    pub(super) before: Option<(SessionKey, Epoch)>,
}

impl Applying<'_> {
    /// Makes the next grant of a scope. Whoever had it must have been unbound before, and a place
    /// in the queue removed.
    pub(super) fn grant(
        &mut self,
        name: &Arc<str>,
        whom: For,
        kind: GrantEventKind,
        ended: Option<Epoch>,
    ) -> Result<Grant, Refusal> {
        let For {
            session,
            request_id,
            terms,
            before,
        } = whom;
        let last = self.state.rows.scopes().get(name).map(|row| row.epoch);
        let epoch = epoch_rule::next(last, self.state.now_ms).ok_or(Refusal::EpochExhausted)?;
        let origin = if before.is_none() && terms.are_default() {
            Arc::clone(&self.state.origin)
        } else {
            Arc::new(Origin {
                leadership: self.state.origin.leadership,
                terms,
                before,
            })
        };
        let held = Held {
            session_index: session.index,
            session_offset: session.offset,
            request_id,
            index: self.index,
            offset: self.offset,
            origin,
        };
        let scope = Scope::parse(name).map_err(|_never| Refusal::SessionExpired)?;
        let grant = self
            .state
            .grant(scope, epoch, &held)
            .ok_or(Refusal::SessionExpired)?;
        self.state.bind(&held, name);
        self.put_row(
            name,
            Row {
                epoch,
                standing: Standing::Held(held),
            },
        );
        let who = Some((grant.holder.clone(), grant.session));
        self.grant_event(kind, name, epoch, ended, request_id, who);
        Ok(grant)
    }

    /// Takes the current grant of `session` in a scope from it: its request id is spent. The row
    /// stays as it is, for the caller to change.
    pub(super) fn end_grant(&mut self, name: &Arc<str>, session: SessionKey) {
        if let Some(request_id) = self.state.unbind(session, name) {
            self.spend(session, request_id, name, SpentUse::Grant);
        }
    }

    /// Remembers what a request id was.
    pub(super) fn spend(
        &mut self,
        session: SessionKey,
        request_id: RequestId,
        name: &Arc<str>,
        what: SpentUse,
    ) {
        let spent = Spent {
            scope: Arc::clone(name),
            what,
        };
        self.state.rows.put_spent((session, request_id), spent);
        self.state.forget_spent_id(session);
    }

    /// Gives a scope that nobody holds, at `epoch`, to the first who waits for it; frees it when
    /// nobody does.
    pub(super) fn hand_over(&mut self, name: Arc<str>, epoch: Epoch) {
        while let Some((place, waiting)) = self.state.first_wait(&name) {
            if epoch_rule::next(Some(epoch), self.state.now_ms).is_none() {
                // No epoch is left for anybody: their waits run out.
                break;
            }
            self.put_row(&name, Row::free(epoch));
            self.state.remove_wait(&place);
            self.events.push(Event::WaitEnded {
                scope: Arc::clone(&name),
                session: waiting.session,
                request_id: waiting.request_id,
                end: WaitEnd::Granted,
            });
            let whom = For {
                session: waiting.session,
                request_id: Some(waiting.request_id),
                terms: waiting.terms,
                before: None,
            };
            // The session is there as long as it waits.
            if self
                .grant(&name, whom, GrantEventKind::Granted, None)
                .is_ok()
            {
                return;
            }
        }
        self.put_row(&name, Row::free(epoch));
    }

    /// Keeps a scope that was lost by expiry from all.
    pub(super) fn begin_delay(&mut self, name: &Arc<str>, epoch: Epoch, delay: LockDelay) {
        self.put_row(
            name,
            Row {
                epoch,
                standing: Standing::Free(delay),
            },
        );
        self.events.push(Event::DelayBegun {
            scope: Arc::clone(name),
            epoch,
            delay,
        });
    }

    /// Puts a scope's row, or removes it where time alone keeps the next epoch above it.
    fn put_row(&mut self, name: &Arc<str>, row: Row) {
        let was_delayed = self.state.delayed.contains(name);
        self.state.put_row(name, row);
        if was_delayed && !self.state.delayed.contains(name) {
            self.events.push(Event::DelayEnded {
                scope: Arc::clone(name),
            });
        }
    }
}
