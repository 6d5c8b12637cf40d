//! Acquire and AcquireMany.

use std::sync::Arc;

use epoch_core::{RequestId, Scope, SessionId};

use super::Applying;
use super::grants::For;
use crate::command::{Scopes, SessionKey};
use crate::event::{Event, GrantEventKind};
use crate::outcome::{Outcome, Refusal};
use crate::rows::{Place, Waiting};
use crate::state::{GRANTS_MAX, QUEUE_MAX, Requested, WAITS_MAX};
use crate::terms::{Terms, Wait};

impl Applying<'_> {
    pub(super) fn acquire(
        &mut self,
        scope: &Scope,
        session: &SessionId,
        request_id: RequestId,
        terms: &Terms,
        wait: Wait,
        reissue: bool,
    ) -> Result<Outcome, Refusal> {
        self.may_acquire(session, std::iter::once(scope))?;
        let key = SessionKey::from(session);
        match self.state.request(scope, session, request_id, terms)? {
            Requested::Granted(grant) => {
                return Ok(Outcome::Granted {
                    grant: *grant,
                    new: false,
                });
            }
            Requested::Waiting => return Ok(Outcome::Waiting),
            Requested::New => {}
        }
        let whom = For {
            session: key,
            request_id: Some(request_id),
            terms: terms.clone(),
            before: None,
        };
        let taken = self.taken(scope, key);
        let granted = match taken {
            Ok(()) => {
                self.grants_left(key, 1)?;
                if self.state.grants_and_delays() >= GRANTS_MAX {
                    return Err(Refusal::GrantLimit);
                }
                let name = self.state.name_of(scope);
                self.grant(&name, whom, GrantEventKind::Granted, None)
            }
            Err(Refusal::AlreadyHeld { epoch }) if reissue => {
                let name = self.state.name_of(scope);
                // Checked first: a refusal must change nothing.
                self.state
                    .next_epoch(&name)
                    .ok_or(Refusal::EpochExhausted)?;
                self.end_grant(&name, key);
                self.grant(&name, whom, GrantEventKind::Granted, Some(epoch))
            }
            Err(Refusal::ScopeHeld { .. } | Refusal::LockDelayed { .. }) if !wait.is_zero() => {
                self.enqueue(scope, key, request_id, terms, wait)?;
                return Ok(Outcome::Waiting);
            }
            Err(refusal) => Err(refusal),
        };
        Ok(Outcome::Granted {
            grant: granted?,
            new: true,
        })
    }

    pub(super) fn acquire_many(
        &mut self,
        scopes: &Scopes,
        session: &SessionId,
        first: RequestId,
        terms: &Terms,
    ) -> Result<Outcome, Refusal> {
        self.may_acquire(session, scopes.iter())?;
        let key = SessionKey::from(session);
        let mut numbered = Vec::with_capacity(scopes.iter().len());
        for (number, scope) in (first.get()..).zip(scopes.iter()) {
            let request_id = RequestId::new(number).map_err(|_over| Refusal::RequestIdsOver)?;
            numbered.push((request_id, scope));
        }
        let mut granted = Vec::with_capacity(numbered.len());
        for (request_id, scope) in &numbered {
            match self.state.request(scope, session, *request_id, terms)? {
                Requested::New => {}
                Requested::Granted(grant) => granted.push(*grant),
                // It was asked for alone before.
                Requested::Waiting => return Err(Refusal::RequestIdReused),
            }
        }
        if granted.len() == numbered.len() {
            return Ok(Outcome::GrantedMany {
                grants: granted,
                new: false,
            });
        }
        if !granted.is_empty() {
            // Some of these ids were used in another call.
            return Err(Refusal::RequestIdReused);
        }
        for (_, scope) in &numbered {
            let taken = self.taken(scope, key).and_then(|()| {
                let next = self.state.next_epoch(scope.as_str());
                next.map(|_| ()).ok_or(Refusal::EpochExhausted)
            });
            if let Err(refusal) = taken {
                return Ok(Outcome::RefusedMany {
                    scope: (*scope).clone(),
                    refusal,
                });
            }
        }
        self.grants_left(key, numbered.len())?;
        let grants = self.state.grants_and_delays();
        if grants.saturating_add(numbered.len()) > GRANTS_MAX {
            return Err(Refusal::GrantLimit);
        }
        for (request_id, scope) in numbered {
            let name = self.state.name_of(scope);
            let whom = For {
                session: key,
                request_id: Some(request_id),
                terms: terms.clone(),
                before: None,
            };
            granted.push(self.grant(&name, whom, GrantEventKind::Granted, None)?);
        }
        Ok(Outcome::GrantedMany {
            grants: granted,
            new: true,
        })
    }

    /// Why a session cannot have a scope at once.
    fn taken(&self, scope: &Scope, key: SessionKey) -> Result<(), Refusal> {
        let Some(row) = self.state.rows.scopes().get(scope.as_str()) else {
            return Ok(());
        };
        let epoch = row.epoch;
        match row.held() {
            Some(held) if held.session() == key => Err(Refusal::AlreadyHeld { epoch }),
            _ if self.state.waits_for(&self.state.name_of(scope), key) => {
                Err(Refusal::AlreadyWaiting)
            }
            Some(_) => Err(Refusal::ScopeHeld { epoch }),
            None if row.is_delayed() => Err(Refusal::LockDelayed { epoch }),
            None => Ok(()),
        }
    }

    fn enqueue(
        &mut self,
        scope: &Scope,
        session: SessionKey,
        request_id: RequestId,
        terms: &Terms,
        wait: Wait,
    ) -> Result<(), Refusal> {
        self.waits_left(session)?;
        let name = self.state.name_of(scope);
        if self.state.queue_length(&name) >= QUEUE_MAX {
            return Err(Refusal::QueueFull);
        }
        if self.state.rows.waits().len() >= WAITS_MAX {
            return Err(Refusal::WaitLimit);
        }
        let waiting = Waiting {
            session,
            request_id,
            wait,
            terms: terms.clone(),
        };
        let place = Place {
            scope: Arc::clone(&name),
            index: self.index,
            offset: self.offset,
        };
        self.state.add_wait(place, waiting);
        self.events.push(Event::WaitBegun {
            scope: name,
            session,
            request_id,
            wait,
        });
        Ok(())
    }
}
