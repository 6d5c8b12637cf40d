//! Sessions: opening and ending.

use std::sync::Arc;

use epoch_core::SessionId;

use super::Applying;
use crate::command::SessionKey;
use crate::event::{Event, GrantEventKind, WaitEnd};
use crate::outcome::{Outcome, Refusal};
use crate::state::{SESSIONS_MAX, SessionState};

impl Applying<'_> {
    /// Opens a session, or finds the one that is as `wanted`.
    pub(super) fn open(&mut self, wanted: SessionState) -> Result<Outcome, Refusal> {
        let principal = wanted.principal.as_ref();
        self.may_open(principal, &wanted.holder)?;
        let (open_id, ttl, stall_limit) = (wanted.open_id, wanted.ttl, wanted.stall_limit);
        let holder = wanted.holder.clone();
        let opened = (wanted.principal.clone(), open_id);
        let found = self.state.open_ids.get(&opened).copied();
        let key = match found {
            Some(key) => {
                let session = self.state.rows.sessions().get(&key);
                let same = |session: &SessionState| {
                    session.holder == holder
                        && session.ttl == ttl
                        && session.stall_limit == stall_limit
                        && session.holder_key == wanted.holder_key
                };
                if !session.is_some_and(same) {
                    return Err(Refusal::OpenIdReused);
                }
                key
            }
            None => {
                self.sessions_left(principal)?;
                if self.state.rows.sessions().len() >= SESSIONS_MAX {
                    return Err(Refusal::SessionLimit);
                }
                let key = SessionKey {
                    index: self.index,
                    offset: self.offset,
                };
                self.state.add_session(key, wanted);
                key
            }
        };
        let new = found.is_none();
        self.events.push(Event::SessionOpened {
            session: key,
            ttl,
            new,
        });
        Ok(Outcome::Opened {
            session: key.with(open_id),
            ttl,
            stall_limit,
            holder,
            new,
        })
    }

    pub(super) fn close(&mut self, session: &SessionId) -> Outcome {
        let found = self.state.session(session).is_some();
        let ended = if found {
            self.end_session(SessionKey::from(session), false)
        } else {
            None
        };
        Outcome::Closed {
            closed: ended.is_some(),
            ended: ended.unwrap_or(0),
        }
    }

    pub(super) fn expire(&mut self, session: SessionKey) -> Outcome {
        let ended = self.end_session(session, true);
        Outcome::Expired {
            expired: ended.is_some(),
            ended: ended.unwrap_or(0),
        }
    }

    /// Ends a session with all that is its own; the number of grants that ended, or `None` when
    /// there was no such session.
    fn end_session(&mut self, key: SessionKey, expired: bool) -> Option<usize> {
        let who = self.who(key)?;
        // Waits first: nothing is handed to a session that ends.
        for (request_id, _) in self.state.waits_of(key) {
            self.remove_wait(key, request_id, WaitEnd::SessionEnded);
        }
        let grants = self.state.grants_of(key);
        for name in &grants {
            self.state.unbind(key, name);
            let Some(row) = self.state.rows.scopes().get(name) else {
                continue;
            };
            let epoch = row.epoch;
            let delay = row.held().map(|held| held.terms().lock_delay);
            let kind = if expired {
                GrantEventKind::Expired
            } else {
                GrantEventKind::Released
            };
            self.grant_event(kind, name, epoch, Some(epoch), None, Some(who.clone()));
            match delay.filter(|delay| expired && !delay.is_zero()) {
                Some(delay) => self.begin_delay(name, epoch, delay),
                None => self.hand_over(Arc::clone(name), epoch),
            }
        }
        for request_id in self.state.spent_of(key) {
            self.state.rows.remove_spent((key, request_id));
        }
        self.state.remove_session(key);
        self.events.push(Event::SessionEnded {
            session: key,
            expired,
        });
        Some(grants.len())
    }
}
