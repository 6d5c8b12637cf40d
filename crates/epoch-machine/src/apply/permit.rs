//! What a principal may do, and how much it may have.

use epoch_core::{Holder, Principal, Scope, SessionId};

use super::Applying;
use crate::command::SessionKey;
use crate::event::WaitEnd;
use crate::limits::{Limits, Usage};
use crate::outcome::Refusal;
use crate::permission::Verb;
use crate::rows::SpentUse;

impl Applying<'_> {
    /// Whether a session may be opened: while the cluster is open, any; after that, by a principal
    /// that may acquire something, for a holder of its own.
    pub(super) fn may_open(
        &self,
        principal: Option<&Principal>,
        holder: &Holder,
    ) -> Result<(), Refusal> {
        let owns = principal.is_some_and(|principal| principal.owns(holder));
        let may = self.state.allows_somewhere(principal, Verb::Acquire);
        if self.state.is_open() || (owns && may) {
            Ok(())
        } else {
            Err(Refusal::PermissionDenied)
        }
    }

    /// Whether a session may acquire these scopes, before anything about them is looked at.
    pub(super) fn may_acquire<'s>(
        &self,
        session: &SessionId,
        mut scopes: impl Iterator<Item = &'s Scope>,
    ) -> Result<(), Refusal> {
        let session = self.state.session(session).ok_or(Refusal::SessionExpired)?;
        let principal = session.principal.as_ref();
        if scopes.all(|scope| self.state.allows(principal, Verb::Acquire, scope)) {
            Ok(())
        } else {
            Err(Refusal::PermissionDenied)
        }
    }

    /// Whether the principal of a session, if it has one, may open another.
    pub(super) fn sessions_left(&self, principal: Option<&Principal>) -> Result<(), Refusal> {
        match principal.map(|principal| self.room(principal)) {
            Some((usage, limits)) if !fits(usage.sessions, 1, limits.sessions) => {
                Err(Refusal::PrincipalSessionLimit)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the principal of a session may have so many grants more. Waits count with its
    /// grants, so that a handover never brings it above its limit.
    pub(super) fn grants_left(&self, key: SessionKey, more: usize) -> Result<(), Refusal> {
        let Some(principal) = self.principal_of(key) else {
            return Ok(());
        };
        let (usage, limits) = self.room(principal);
        if fits(
            usage.grants.saturating_add(usage.waits),
            more,
            limits.grants,
        ) {
            Ok(())
        } else {
            Err(Refusal::PrincipalGrantLimit)
        }
    }

    /// Whether the principal of a session may wait once more.
    pub(super) fn waits_left(&self, key: SessionKey) -> Result<(), Refusal> {
        self.grants_left(key, 1)?;
        match self.principal_of(key).map(|principal| self.room(principal)) {
            Some((usage, limits)) if !fits(usage.waits, 1, limits.waits) => {
                Err(Refusal::PrincipalWaitLimit)
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn principal_of(&self, key: SessionKey) -> Option<&Principal> {
        self.state.rows.sessions().get(&key)?.principal.as_ref()
    }

    fn room(&self, principal: &Principal) -> (Usage, Limits) {
        (self.state.usage(principal), self.state.limits(principal))
    }

    /// Ends the waits that are no longer allowed: of a principal, or of all.
    pub(super) fn end_waits_not_allowed(&mut self, of: Option<&Principal>) {
        if of.is_some_and(|principal| self.state.usage(principal).waits == 0) {
            return;
        }
        let waits = self.state.rows.waits().iter();
        let ended: Vec<_> = waits
            .filter(|(_, waiting)| of.is_none() || self.principal_of(waiting.session) == of)
            .filter(|(place, waiting)| {
                !self
                    .state
                    .session_may_acquire(waiting.session, &place.scope)
            })
            .map(|(place, waiting)| (place.clone(), waiting.session, waiting.request_id))
            .collect();
        for (place, session, request_id) in ended {
            self.remove_wait(session, request_id, WaitEnd::Cancelled);
            self.spend(session, request_id, &place.scope, SpentUse::WaitCancelled);
        }
    }
}

fn fits(has: u32, more: usize, limit: Option<u32>) -> bool {
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    limit.is_none_or(|limit| has.saturating_add(more) <= limit)
}
