//! Who may do what, followed by commands and answers alone: a second opinion on what is denied.

use std::collections::BTreeMap;

use epoch_core::{Principal, Scope, SessionHash, SessionId};

use crate::command::{Command, SessionKey};
use crate::limits::Usage;
use crate::outcome::{Outcome, Refusal};
use crate::permission::{Prefix, Verb, Verbs};
use crate::state::State;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Permitted {
    permissions: BTreeMap<(Principal, Prefix), Verbs>,
    sessions: BTreeMap<SessionKey, (SessionId, Option<Principal>)>,
}

impl Permitted {
    pub(super) fn of(state: &State) -> Self {
        let permissions = state.permissions(None, usize::MAX - 1).permissions;
        let sessions = state.sessions().map(|(key, session)| {
            let id = key.with(session.open_id);
            (key, (id, session.principal.clone()))
        });
        Self {
            permissions: permissions
                .into_iter()
                .map(|its| ((its.principal, its.prefix), its.verbs))
                .collect(),
            sessions: sessions.collect(),
        }
    }

    /// Takes over what was done, as long as it is what may have been done.
    pub(super) fn follow(
        &mut self,
        before: &State,
        after: &State,
        done: &[(Command, Outcome)],
    ) -> Result<(), String> {
        for (command, outcome) in done {
            let denied = *outcome == Outcome::Refused(Refusal::PermissionDenied);
            if denied == self.allows(command) {
                return Err(format!("{command:?} came to {outcome:?} with {self:?}"));
            }
            if let (Command::Transfer { scope, to, .. }, Outcome::Transferred { new: true, .. }) =
                (command, outcome)
                && !self.may_take_over(to, scope)
            {
                return Err(format!("{command:?} gave the scope to who may not have it"));
            }
            self.learn(command, outcome);
        }
        if *self != Self::of(after) {
            return Err(format!("{self:?} was answered"));
        }
        let limits_stay = !done
            .iter()
            .any(|(command, _)| matches!(command, Command::SetLimits { .. }));
        if limits_stay {
            self.stays_within_limits(before, after)?;
        }
        Ok(())
    }

    fn learn(&mut self, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (
                Command::GrantPermission {
                    principal,
                    prefix,
                    verbs,
                    ..
                },
                Outcome::PermissionGranted,
            ) => {
                let key = (principal.clone(), prefix.clone());
                self.permissions.insert(key, *verbs);
            }
            (
                Command::RevokePermission {
                    principal, prefix, ..
                },
                Outcome::PermissionRevoked { .. },
            ) => {
                self.permissions
                    .remove(&(principal.clone(), prefix.clone()));
            }
            (Command::Open { principal, .. }, Outcome::Opened { session, .. }) => {
                let opened = (*session, principal.clone());
                self.sessions.insert(session.into(), opened);
            }
            (Command::Close { session }, Outcome::Closed { closed: true, .. }) => {
                self.sessions.remove(&session.into());
            }
            (Command::Expire { session }, Outcome::Expired { .. }) => {
                self.sessions.remove(session);
            }
            _ => {}
        }
    }

    fn may(&self, principal: Option<&Principal>, verb: Verb, text: &str) -> bool {
        self.permissions.is_empty()
            || self.permissions.iter().any(|((who, prefix), verbs)| {
                Some(who) == principal
                    && verbs.has(verb)
                    && text.as_bytes().starts_with(prefix.as_str().as_bytes())
            })
    }

    fn may_operate(&self, by: Option<&Principal>) -> bool {
        // Nothing but the empty prefix begins the empty text.
        self.may(by, Verb::Operate, "")
    }

    /// Of a session that is gone, something else is told than that it may not.
    fn may_acquire(&self, session: &SessionId, scope: &Scope) -> bool {
        match self.sessions.get(&session.into()) {
            Some((id, principal)) if id == session => {
                self.may(principal.as_ref(), Verb::Acquire, scope.as_str())
            }
            _ => true,
        }
    }

    fn may_take_over(&self, hash: &SessionHash, scope: &Scope) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|(id, principal)| {
            id.hash() == *hash && self.may(principal.as_ref(), Verb::Acquire, scope.as_str())
        })
    }

    fn allows(&self, command: &Command) -> bool {
        match command {
            Command::Open {
                holder, principal, ..
            } => {
                let acquires = |who: &Principal| {
                    let mut its = self.permissions.iter();
                    its.any(|((other, _), verbs)| other == who && verbs.has(Verb::Acquire))
                };
                let named_so = |who: &Principal| {
                    let below = format!("{who}/");
                    holder.as_str() == who.as_str() || holder.as_str().starts_with(&below)
                };
                let may = |who: &Principal| named_so(who) && acquires(who);
                self.permissions.is_empty() || principal.as_ref().is_some_and(may)
            }
            Command::Acquire { scope, session, .. }
            | Command::WriteRecord { scope, session, .. } => self.may_acquire(session, scope),
            Command::AcquireMany {
                scopes, session, ..
            } => scopes.iter().all(|scope| self.may_acquire(session, scope)),
            Command::Revoke { scope, by, .. } => {
                self.may(by.as_ref(), Verb::Revoke, scope.as_str())
            }
            Command::GrantPermission { by, .. }
            | Command::RevokePermission { by, .. }
            | Command::AddToken { by, .. }
            | Command::RemoveToken { by, .. }
            | Command::SetLimits { by, .. }
            | Command::RotateKeys { by, .. }
            | Command::RetireKey { by, .. }
            | Command::PutStatement { by, .. } => self.may_operate(by.as_ref()),
            Command::Close { .. }
            | Command::Expire { .. }
            | Command::CancelWait { .. }
            | Command::EndWait { .. }
            | Command::EndDelay { .. }
            | Command::Transfer { .. }
            | Command::Release { .. }
            | Command::PutBundle { .. }
            | Command::OfferKey(_) => true,
        }
    }

    /// What has grown is within its limit.
    fn stays_within_limits(&self, before: &State, after: &State) -> Result<(), String> {
        for principal in self.sessions.values().filter_map(|(_, who)| who.as_ref()) {
            let limits = after.limits(principal);
            let (had, has) = (before.usage(principal), after.usage(principal));
            let total = |usage: Usage| usage.grants + usage.waits;
            for (had, has, limit) in [
                (had.sessions, has.sessions, limits.sessions),
                (total(had), total(has), limits.grants),
                (had.waits, has.waits, limits.waits),
            ] {
                if has > had && limit.is_some_and(|limit| has > limit) {
                    return Err(format!("{principal} has {has}, beyond {limits:?}"));
                }
            }
        }
        Ok(())
    }
}
