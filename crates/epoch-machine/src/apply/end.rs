//! Release, Transfer and Revoke: the ways in which one grant ends.

use epoch_core::{Epoch, Principal, Scope, SessionHash, SessionId};

use super::Applying;
use super::grants::For;
use crate::audit::AuditAction;
use crate::command::SessionKey;
use crate::epoch_rule;
use crate::event::{GrantEventKind, WaitEnd};
use crate::outcome::{Outcome, Refusal};

impl Applying<'_> {
    pub(super) fn release(
        &mut self,
        scope: &Scope,
        session: &SessionId,
        epoch: Epoch,
    ) -> Result<Outcome, Refusal> {
        match self.state.current_grant(scope, session, epoch) {
            Ok(grant) => {
                let name = self.state.name_of(scope);
                self.end_grant(&name, SessionKey::from(session));
                let who = Some((grant.holder, grant.session));
                self.grant_event(
                    GrantEventKind::Released,
                    &name,
                    epoch,
                    Some(epoch),
                    None,
                    who,
                );
                self.hand_over(name, epoch);
                Ok(Outcome::Released { released: true })
            }
            // Free since, and nobody has had it after: releasing again is not an error.
            Err(Refusal::Superseded { epoch: None }) => Ok(Outcome::Released { released: false }),
            Err(refusal) => Err(refusal),
        }
    }

    pub(super) fn transfer(
        &mut self,
        scope: &Scope,
        session: &SessionId,
        epoch: Epoch,
        to: &SessionHash,
    ) -> Result<Outcome, Refusal> {
        let from = SessionKey::from(session);
        let target = self.state.session_by_hash(to);
        let current = self.state.current_grant(scope, session, epoch);
        let row = self.state.rows.scopes().get(scope.as_str());
        if let (Err(Refusal::Superseded { .. }), Some(row)) = (&current, row)
            && let Some(held) = row.held()
            && held.origin.before == Some((from, epoch))
            && Some(held.session()) == target
        {
            return Ok(Outcome::Transferred {
                epoch: row.epoch,
                new: false,
            });
        }
        let grant = current?;
        // One that may not have it is as if it were not there.
        let permitted = |key: &SessionKey| self.state.session_may_acquire(*key, scope.as_str());
        let target = target.filter(permitted).ok_or(Refusal::TargetExpired)?;
        if target == from {
            return Err(Refusal::TargetIsSelf);
        }
        let name = self.state.name_of(scope);
        let waits = self.state.waits_for(&name, target);
        if !waits && self.principal_of(target) != self.principal_of(from) {
            self.grants_left(target, 1)?;
        }
        self.state
            .next_epoch(&name)
            .ok_or(Refusal::EpochExhausted)?;
        self.end_grant(&name, from);
        let before = Some((from, epoch));
        // Its own wait for the scope is over, and its request id is answered.
        let whom = match self.state.wait_of(&name, target) {
            Some((_, waiting)) => {
                self.remove_wait(target, waiting.request_id, WaitEnd::Granted);
                For {
                    session: target,
                    request_id: Some(waiting.request_id),
                    terms: waiting.terms,
                    before,
                }
            }
            None => For {
                session: target,
                request_id: None,
                terms: grant.terms,
                before,
            },
        };
        let granted = self.grant(&name, whom, GrantEventKind::Transferred, Some(epoch))?;
        Ok(Outcome::Transferred {
            epoch: granted.epoch,
            new: true,
        })
    }

    pub(super) fn revoke(
        &mut self,
        by: Option<&Principal>,
        scope: &Scope,
        epoch: Option<Epoch>,
    ) -> Result<Outcome, Refusal> {
        let came = self
            .may_revoke(by, scope)
            .and_then(|()| self.revoke_unaudited(scope, epoch));
        self.audited(by, AuditAction::Revoke, scope.as_str(), came)
    }

    fn revoke_unaudited(
        &mut self,
        scope: &Scope,
        epoch: Option<Epoch>,
    ) -> Result<Outcome, Refusal> {
        let row = self.state.rows.scopes().get(scope.as_str()).cloned();
        if let Some(expected) = epoch {
            match &row {
                Some(row) if row.epoch == expected && row.held().is_some() => {}
                Some(row) if row.epoch < expected => {
                    return Err(Refusal::EpochUnknown { epoch: expected });
                }
                Some(row) => {
                    let later = (row.epoch > expected).then_some(row.epoch);
                    return Err(Refusal::Superseded { epoch: later });
                }
                None => return Err(self.state.without_row(expected)),
            }
        }
        let last = row.as_ref().map(|row| row.epoch);
        let burnt = epoch_rule::next(last, self.state.now_ms).ok_or(Refusal::EpochExhausted)?;
        let name = self.state.name_of(scope);
        let held_by = row.and_then(|row| row.held().map(|held| (row.epoch, held.session())));
        let who = held_by.and_then(|(_, session)| self.who(session));
        if let Some((_, session)) = held_by {
            self.end_grant(&name, session);
        }
        let ended = held_by.map(|(epoch, _)| epoch);
        self.grant_event(GrantEventKind::Revoked, &name, burnt, ended, None, who);
        self.hand_over(name, burnt);
        Ok(Outcome::Revoked {
            scope: scope.clone(),
            epoch: burnt,
            position: self.position(),
            ended: ended.is_some(),
        })
    }
}
