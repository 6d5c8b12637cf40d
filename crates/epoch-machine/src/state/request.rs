//! What request ids stand for.

use epoch_core::{RequestId, Scope, SessionId};

use super::State;
use crate::command::SessionKey;
use crate::outcome::{Grant, Refusal};
use crate::rows::SpentUse;
use crate::terms::Terms;

/// What a request id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// Nothing yet.
    New,
    /// A current grant.
    Granted(Box<Grant>),
    /// A wait.
    Waiting,
}

impl State {
    /// What the request id of an acquire stands for already.
    ///
    /// # Errors
    /// The session is gone, the id stands for another request, is too old, or what it stood for
    /// has ended.
    pub fn request(
        &self,
        scope: &Scope,
        session: &SessionId,
        request_id: RequestId,
        terms: &Terms,
    ) -> Result<Requested, Refusal> {
        let key = SessionKey::from(session);
        let forgotten = self
            .session(session)
            .ok_or(Refusal::SessionExpired)?
            .forgotten;
        let row = self.rows.scopes().get(scope.as_str());
        if let Some(name) = self.bound_scope(key, request_id) {
            let held = row.and_then(|row| Some((row.epoch, row.held()?)));
            let same = held.filter(|(_, held)| *name == *scope.as_str() && held.terms() == terms);
            let (epoch, held) = same.ok_or(Refusal::RequestIdReused)?;
            let grant = self.grant(scope.clone(), epoch, held);
            let grant = grant.ok_or(Refusal::Superseded { epoch: None })?;
            return Ok(Requested::Granted(Box::new(grant)));
        }
        if let Some(place) = self.waiting.get(&(key, request_id)) {
            let waiting = self.rows.waits().get(place);
            let same = *place.scope == *scope.as_str()
                && waiting.is_some_and(|waiting| waiting.terms == *terms);
            return if same {
                Ok(Requested::Waiting)
            } else {
                Err(Refusal::RequestIdReused)
            };
        }
        if let Some(spent) = self.rows.spent().get(&(key, request_id)) {
            if *spent.scope != *scope.as_str() {
                return Err(Refusal::RequestIdReused);
            }
            return Err(match spent.what {
                SpentUse::Grant => Refusal::Superseded {
                    epoch: row.map(|row| row.epoch),
                },
                SpentUse::WaitExpired => Refusal::WaitExpired,
                SpentUse::WaitCancelled => Refusal::WaitCancelled,
            });
        }
        if request_id.get() <= forgotten {
            return Err(Refusal::RequestIdTooOld { forgotten });
        }
        Ok(Requested::New)
    }
}
