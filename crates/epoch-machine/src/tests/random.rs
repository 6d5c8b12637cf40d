//! Random commands from a seed.

use std::sync::Arc;

use epoch_core::{Epoch, Holder, IntentId, OpenId, RequestId, Scope, SessionId};
use uuid::Uuid;

use crate::command::{Command, Scopes, SessionKey, Ttl};
use crate::record::{IntentDigest, Value};
use crate::terms::{LockDelay, Metadata, Terms, Wait};

/// splitmix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let length = u64::try_from(all.len()).unwrap();
        (length > 0).then(|| &all[usize::try_from(self.below(length)).unwrap()])
    }
}

/// A grant that some client believes it has or had.
#[derive(Debug, Clone)]
pub(super) struct Believed {
    pub(super) scope: Scope,
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
}

/// What clients and operators know, and choose from: recent things, some of them long gone.
#[derive(Debug, Default)]
pub(super) struct Clients {
    sessions: Vec<SessionId>,
    believed: Vec<Believed>,
    /// Acquires whose answer was lost.
    unanswered: Vec<Command>,
    request_ids: u64,
}

impl Clients {
    const SESSIONS_KNOWN: usize = 12;
    const BELIEVED_MAX: usize = 24;
    const UNANSWERED_MAX: usize = 8;
    const SCOPES: u64 = 6;
    const OPEN_IDS: u64 = 9;

    pub(super) fn opened(&mut self, session: SessionId) {
        push_bounded(&mut self.sessions, session, Self::SESSIONS_KNOWN);
    }

    pub(super) fn granted(&mut self, believed: Believed) {
        push_bounded(&mut self.believed, believed, Self::BELIEVED_MAX);
    }

    pub(super) fn not_answered(&mut self, command: Command) {
        push_bounded(&mut self.unanswered, command, Self::UNANSWERED_MAX);
    }

    pub(super) fn command(&mut self, random: &mut Random) -> Command {
        match random.below(100) {
            0..10 => open(random),
            10..12 => Command::Close {
                session: self.session(random),
            },
            12..14 => Command::Expire {
                session: SessionKey::from(&self.session(random)),
            },
            14..50 => self.acquire(random),
            50..62 => self.other(random),
            62..85 => self.release(random),
            85..95 => self.revoke(random),
            95 => register_key(random),
            96 => self.other(random),
            _ => match self.unanswered.pop() {
                Some(command) => command,
                None => self.acquire(random),
            },
        }
    }

    fn session(&mut self, random: &mut Random) -> SessionId {
        let known = random.of(&self.sessions).copied();
        match known {
            Some(session) if !random.one_in(30) => session,
            // At the place of another's, or nowhere.
            Some(session) => SessionId {
                open_id: open_id(random),
                ..session
            },
            None => SessionId {
                open_id: open_id(random),
                index: 0,
                offset: 0,
            },
        }
    }

    fn acquire(&mut self, random: &mut Random) -> Command {
        // Mostly fresh ids; some used before, by this session or another.
        if !random.one_in(5) {
            self.request_ids += 1;
        }
        let back = if random.one_in(8) {
            random.below(20)
        } else {
            0
        };
        let request_id = self.request_ids.saturating_sub(back).max(1);
        Command::Acquire {
            scope: scope(random),
            session: self.session(random),
            request_id: RequestId::new(request_id).unwrap(),
            terms: terms(random),
            wait: wait(random),
            reissue: random.one_in(10),
        }
    }

    fn release(&mut self, random: &mut Random) -> Command {
        match random.of(&self.believed).cloned() {
            Some(Believed {
                scope,
                session,
                epoch,
            }) => {
                let session = if random.one_in(20) {
                    self.session(random)
                } else {
                    session
                };
                Command::Release {
                    scope,
                    session,
                    epoch: near(random, epoch),
                }
            }
            None => Command::Release {
                scope: scope(random),
                session: self.session(random),
                epoch: Epoch::new(1 + random.below(1 << 50)).unwrap(),
            },
        }
    }

    /// What is rarer than acquires and releases.
    fn other(&mut self, random: &mut Random) -> Command {
        let request_id = self.request_ids.saturating_sub(random.below(12)).max(1);
        let request_id = RequestId::new(request_id).unwrap();
        let session = self.session(random);
        let believed = random.of(&self.believed).cloned();
        let (scope, holder, epoch) = match believed {
            Some(Believed {
                scope,
                session,
                epoch,
            }) => (scope, session, epoch),
            None => (scope(random), session, Epoch::new(1).unwrap()),
        };
        match random.below(6) {
            0 => Command::EndWait {
                session: SessionKey::from(&session),
                request_id,
            },
            1 => Command::CancelWait {
                scope,
                session,
                request_id,
            },
            2 => Command::EndDelay { scope, epoch },
            3 => Command::Transfer {
                scope,
                session: holder,
                epoch,
                to: session.hash(),
            },
            4 => {
                self.request_ids += 2;
                let names = [["a", "b"], ["b", "B"]];
                let names = names[usize::from(random.one_in(2))];
                let scopes = names.map(|name| Scope::parse(name).unwrap());
                Command::AcquireMany {
                    scopes: Scopes::new(scopes.to_vec()).unwrap(),
                    session,
                    request_id: RequestId::new(self.request_ids - 1).unwrap(),
                    terms: terms(random),
                }
            }
            _ => {
                let value = Value::new(&[u8::try_from(random.below(3)).unwrap(); 900]).ok();
                let value = value.filter(|_| !random.one_in(4));
                let id = IntentId::parse(&format!("intent {}", random.below(30))).unwrap();
                Command::WriteRecord {
                    scope,
                    session: holder,
                    epoch,
                    expected_revision: random.one_in(4).then_some(0),
                    intent: random
                        .one_in(2)
                        .then(|| IntentDigest::of(&id, value.as_ref())),
                    value,
                }
            }
        }
    }

    fn revoke(&mut self, random: &mut Random) -> Command {
        match random.of(&self.believed).cloned() {
            Some(Believed { scope, epoch, .. }) if !random.one_in(4) => Command::Revoke {
                scope,
                epoch: Some(near(random, epoch)),
            },
            Some(_) | None => Command::Revoke {
                scope: scope(random),
                epoch: None,
            },
        }
    }
}

fn push_bounded<T>(all: &mut Vec<T>, one: T, bound: usize) {
    if all.len() == bound {
        all.remove(0);
    }
    all.push(one);
}

fn near(random: &mut Random, epoch: Epoch) -> Epoch {
    let off = if random.one_in(20) {
        random.below(5)
    } else {
        2
    };
    Epoch::new((epoch.get() + off).saturating_sub(2)).unwrap_or(epoch)
}

fn scope(random: &mut Random) -> Scope {
    let number = random.below(Clients::SCOPES);
    Scope::parse(["a", "a/b", "b", "\u{e9}", "e\u{301}", "B"][usize::try_from(number).unwrap()])
        .unwrap()
}

fn open_id(random: &mut Random) -> OpenId {
    OpenId(Uuid::from_u128(u128::from(random.below(Clients::OPEN_IDS))))
}

fn terms(random: &mut Random) -> Terms {
    let delay = if random.one_in(8) { 5_000 } else { 0 };
    let metadata = if random.one_in(20) { "run 7" } else { "" };
    Terms {
        lock_delay: LockDelay::from_ms(delay).unwrap(),
        metadata: Metadata::new(metadata).unwrap(),
    }
}

fn wait(random: &mut Random) -> Wait {
    let ms = if random.one_in(3) { 30_000 } else { 0 };
    Wait::from_ms(ms).unwrap()
}

fn open(random: &mut Random) -> Command {
    Command::Open {
        open_id: open_id(random),
        holder: Holder::parse(["agent-a", "agent-b"][usize::from(random.one_in(10))]).unwrap(),
        ttl: Ttl::from_ms(10_000 - random.below(20) / 19).unwrap(),
        stall_limit: None,
    }
}

fn register_key(random: &mut Random) -> Command {
    Command::RegisterKey {
        node: 1 + random.below(3),
        public_key: Arc::new([u8::try_from(random.below(4)).unwrap(); 32]),
    }
}
