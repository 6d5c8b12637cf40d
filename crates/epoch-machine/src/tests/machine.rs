//! One command at a time, for tests that say what comes of each.

use epoch_core::{
    ClusterId, Epoch, Holder, Incarnation, IntentId, OpenId, Position, Principal, RequestId, Scope,
    SessionId,
};
use uuid::Uuid;

use super::text::Text;
use crate::admin::{AdminRow, Permission};
use crate::apply::apply;
use crate::audit::{AuditAction, AuditRecord, AuditTarget};
use crate::command::{Batch, Command, Entry, Leadership, Scopes, SessionKey, Ttl};
use crate::event::Event;
use crate::outcome::{Applied, Grant, Outcome, Refusal};
use crate::permission::{Prefix, Verb, Verbs};
use crate::promise::consistent;
use crate::record::{IntentDigest, Value};
use crate::state::State;
use crate::terms::{LockDelay, Metadata, Terms, Wait};
use crate::token::{Token, TokenHash, TokenLabel};

pub(super) const WALL_MS: u64 = 1_800_000_000_000;
pub(super) const LEADERSHIP: Leadership = Leadership { term: 3, node: 2 };

/// The first epoch that is given at `wall_ms`.
pub(super) fn first_epoch(wall_ms: u64) -> Epoch {
    Epoch::new((wall_ms << 10) + 1).unwrap()
}

pub(super) fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

pub(super) fn scope(name: &str) -> Scope {
    Scope::parse(name).unwrap()
}

pub(super) fn request_id(id: u64) -> RequestId {
    RequestId::new(id).unwrap()
}

pub(super) fn principal(name: &str) -> Principal {
    Principal::parse(name).unwrap()
}

/// Verbs are named with commas between.
pub(super) fn verbs(names: &str) -> Verbs {
    let verbs = names.split(',').map(|name| Verb::parse(name).unwrap());
    Verbs::new(verbs).unwrap()
}

pub(super) fn permission(who: &str, prefix: &str, names: &str) -> AdminRow {
    AdminRow::Permission(Permission {
        principal: principal(who),
        prefix: Prefix::parse(prefix).unwrap(),
        verbs: verbs(names),
    })
}

pub(super) fn token(owner: &str, byte: u8, label: &str) -> Token {
    Token {
        hash: TokenHash([byte; 32]),
        principal: principal(owner),
        label: TokenLabel::parse(label).unwrap(),
        created_ms: WALL_MS,
        expires_ms: None,
    }
}

pub(super) fn audit_record(number: u64) -> AuditRecord {
    AuditRecord {
        number,
        time_ms: WALL_MS,
        index: 1,
        principal: None,
        action: AuditAction::Revoke,
        target: AuditTarget::new("a").unwrap(),
        refused: None,
    }
}

pub(super) fn acquire(name: &str, session: SessionId, id: u64, wait_ms: u64) -> Command {
    Command::Acquire {
        scope: scope(name),
        session,
        request_id: request_id(id),
        terms: Terms::default(),
        wait: Wait::from_ms(wait_ms).unwrap(),
        reissue: false,
    }
}

pub(super) fn terms(lock_delay_ms: u64, metadata: &str) -> Terms {
    Terms {
        lock_delay: LockDelay::from_ms(lock_delay_ms).unwrap(),
        metadata: Metadata::new(metadata).unwrap(),
    }
}

/// A record write under a grant.
pub(super) fn write(
    grant: &Grant,
    value: Option<&[u8]>,
    expected_revision: Option<u64>,
    intent: Option<&str>,
) -> Command {
    let value = value.map(|bytes| Value::new(bytes).unwrap());
    let intent = intent.map(|id| IntentId::parse(id).unwrap());
    Command::WriteRecord {
        scope: grant.scope.clone(),
        session: grant.session,
        epoch: grant.epoch,
        intent: intent.map(|id| IntentDigest::of(&id, value.as_ref())),
        value,
        expected_revision,
    }
}

pub(super) struct Machine {
    pub(super) state: State,
    pub(super) index: u64,
    pub(super) wall_ms: u64,
    /// Of the entry just applied.
    pub(super) events: Vec<Event>,
    /// Switched off where checking after each of many commands would take too long.
    pub(super) checked: bool,
}

impl Machine {
    pub(super) fn new() -> Self {
        let state = State::new(
            ClusterId(Uuid::from_u128(1)),
            Incarnation(Uuid::from_u128(2)),
            5,
        );
        Self {
            state,
            index: 0,
            wall_ms: WALL_MS,
            events: Vec::new(),
            checked: true,
        }
    }

    pub(super) fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        self.index += 1;
        let entry = Entry {
            leadership: LEADERSHIP,
            index: self.index,
        };
        let batch = Batch {
            leadership: LEADERSHIP,
            wall_ms: self.wall_ms,
            commands,
        };
        let Applied { outcomes, events } = apply(&mut self.state, entry, &batch).unwrap();
        self.events = events;
        if self.checked {
            consistent(&self.state).unwrap();
        }
        outcomes
    }

    pub(super) fn one(&mut self, command: Command) -> Outcome {
        self.apply(vec![command]).remove(0)
    }

    pub(super) fn try_open(&mut self, open_id: u128, holder: &str, ttl_ms: u64) -> Outcome {
        self.one(Command::Open {
            open_id: OpenId(Uuid::from_u128(open_id)),
            holder: Holder::parse(holder).unwrap(),
            ttl: Ttl::from_ms(ttl_ms).unwrap(),
            stall_limit: None,
            principal: None,
            holder_key: None,
        })
    }

    pub(super) fn open(&mut self, open_id: u128) -> SessionId {
        match self.try_open(open_id, "agent", 10_000) {
            Outcome::Opened { session, .. } => session,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn try_acquire(&mut self, name: &str, session: SessionId, id: u64) -> Outcome {
        self.one(Command::Acquire {
            scope: scope(name),
            session,
            request_id: request_id(id),
            terms: Terms::default(),
            wait: Wait::default(),
            reissue: false,
        })
    }

    pub(super) fn acquire(&mut self, name: &str, session: SessionId, id: u64) -> Grant {
        match self.try_acquire(name, session, id) {
            Outcome::Granted { grant, .. } => grant,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn release(&mut self, name: &str, session: SessionId, epoch: Epoch) -> Outcome {
        self.one(Command::Release {
            scope: scope(name),
            session,
            epoch,
        })
    }

    pub(super) fn revoke(&mut self, name: &str, epoch: Option<Epoch>) -> Outcome {
        self.one(Command::Revoke {
            scope: scope(name),
            epoch,
            by: None,
        })
    }

    pub(super) fn close(&mut self, session: SessionId) -> Outcome {
        self.one(Command::Close { session })
    }

    pub(super) fn expire(&mut self, session: SessionId) -> Outcome {
        self.one(Command::Expire {
            session: SessionKey::from(&session),
        })
    }

    /// An acquire that waits for up to 30 s.
    pub(super) fn wait(&mut self, name: &str, session: SessionId, id: u64) -> Outcome {
        self.one(acquire(name, session, id, 30_000))
    }

    pub(super) fn acquire_on(
        &mut self,
        terms: Terms,
        name: &str,
        session: SessionId,
        id: u64,
    ) -> Outcome {
        self.one(Command::Acquire {
            scope: scope(name),
            session,
            request_id: request_id(id),
            terms,
            wait: Wait::default(),
            reissue: false,
        })
    }

    pub(super) fn reissue(&mut self, name: &str, session: SessionId, id: u64) -> Outcome {
        self.one(Command::Acquire {
            scope: scope(name),
            session,
            request_id: request_id(id),
            terms: Terms::default(),
            wait: Wait::default(),
            reissue: true,
        })
    }

    pub(super) fn acquire_many(&mut self, names: &[&str], session: SessionId, id: u64) -> Outcome {
        self.one(Command::AcquireMany {
            scopes: Scopes::new(names.iter().map(|name| scope(name)).collect()).unwrap(),
            session,
            request_id: request_id(id),
            terms: Terms::default(),
        })
    }

    pub(super) fn cancel_wait(&mut self, name: &str, session: SessionId, id: u64) -> Outcome {
        self.one(Command::CancelWait {
            scope: scope(name),
            session,
            request_id: request_id(id),
        })
    }

    pub(super) fn end_wait(&mut self, session: SessionId, id: u64) -> Outcome {
        self.one(Command::EndWait {
            session: SessionKey::from(&session),
            request_id: request_id(id),
        })
    }

    pub(super) fn end_delay(&mut self, name: &str, epoch: Epoch) -> Outcome {
        self.one(Command::EndDelay {
            scope: scope(name),
            epoch,
        })
    }

    pub(super) fn transfer(
        &mut self,
        name: &str,
        session: SessionId,
        epoch: Epoch,
        to: SessionId,
    ) -> Outcome {
        self.one(Command::Transfer {
            scope: scope(name),
            session,
            epoch,
            to: to.hash(),
        })
    }

    /// The epoch of the grant that a session has under a request id.
    pub(super) fn granted(&self, session: SessionId, id: u64) -> Option<Epoch> {
        let grant = self
            .state
            .granted(SessionKey::from(&session), request_id(id));
        grant.map(|grant| grant.epoch)
    }

    /// What happened in the entry just applied, in words: a session by its log index, times since
    /// [`WALL_MS`].
    pub(super) fn told(&self) -> Vec<String> {
        let text = Text {
            base_ms: WALL_MS,
            ..Text::default()
        };
        self.events.iter().map(|event| text.event(event)).collect()
    }

    /// The position of the only command of the entry just applied.
    pub(super) fn position(&self) -> Position {
        Position {
            group: 5,
            term: LEADERSHIP.term,
            leader: LEADERSHIP.node,
            index: self.index,
            offset: 0,
        }
    }
}

pub(super) fn refused(refusal: Refusal) -> Outcome {
    Outcome::Refused(refusal)
}
