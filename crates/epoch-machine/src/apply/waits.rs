//! The end of waits and of lock delays.

use std::sync::Arc;

use epoch_core::{Epoch, RequestId, Scope, SessionId};

use super::Applying;
use crate::command::SessionKey;
use crate::event::{Event, WaitEnd};
use crate::outcome::{Outcome, Refusal};
use crate::rows::SpentUse;

impl Applying<'_> {
    pub(super) fn cancel_wait(
        &mut self,
        scope: &Scope,
        session: &SessionId,
        request_id: RequestId,
    ) -> Result<Outcome, Refusal> {
        let key = SessionKey::from(session);
        let forgotten = self
            .state
            .session(session)
            .ok_or(Refusal::SessionExpired)?
            .forgotten;
        let same = |name: &str| {
            if *name == *scope.as_str() {
                Ok(())
            } else {
                Err(Refusal::RequestIdReused)
            }
        };
        let nothing = Outcome::WaitCancelled {
            cancelled: false,
            granted: None,
        };
        if let Some(place) = self.state.waiting.get(&(key, request_id)).cloned() {
            same(&place.scope)?;
            self.remove_wait(key, request_id, WaitEnd::Cancelled);
            self.spend(key, request_id, &place.scope, SpentUse::WaitCancelled);
            return Ok(Outcome::WaitCancelled {
                cancelled: true,
                granted: None,
            });
        }
        if let Some(name) = self.state.bound_scope(key, request_id) {
            same(&name)?;
            let row = self.state.rows.scopes().get(&name);
            return Ok(Outcome::WaitCancelled {
                cancelled: false,
                granted: row.map(|row| row.epoch),
            });
        }
        if let Some(spent) = self.state.rows.spent().get(&(key, request_id)) {
            same(&spent.scope)?;
            return Ok(nothing);
        }
        if request_id.get() > forgotten {
            // The acquire may still be on its way: it must not begin to wait after this.
            let name = self.state.name_of(scope);
            self.spend(key, request_id, &name, SpentUse::WaitCancelled);
        }
        Ok(nothing)
    }

    pub(super) fn end_wait(&mut self, session: SessionKey, request_id: RequestId) -> Outcome {
        let place = self.state.waiting.get(&(session, request_id)).cloned();
        if let Some(place) = &place {
            self.remove_wait(session, request_id, WaitEnd::Expired);
            self.spend(session, request_id, &place.scope, SpentUse::WaitExpired);
        }
        Outcome::WaitEnded {
            ended: place.is_some(),
        }
    }

    pub(super) fn remove_wait(&mut self, session: SessionKey, request_id: RequestId, end: WaitEnd) {
        let Some(place) = self.state.waiting.get(&(session, request_id)).cloned() else {
            return;
        };
        self.state.remove_wait(&place);
        self.events.push(Event::WaitEnded {
            scope: place.scope,
            session,
            request_id,
            end,
        });
    }

    pub(super) fn end_delay(&mut self, scope: &Scope, epoch: Epoch) -> Outcome {
        let row = self.state.rows.scopes().get_key_value(scope.as_str());
        let delayed = row.filter(|(_, row)| row.is_delayed() && row.epoch == epoch);
        let name = delayed.map(|(name, _)| Arc::clone(name));
        let ended = name.is_some();
        if let Some(name) = name {
            self.hand_over(name, epoch);
        }
        Outcome::DelayEnded { ended }
    }
}
