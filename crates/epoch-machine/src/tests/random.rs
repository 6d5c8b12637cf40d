//! Random commands from a seed.

use std::num::NonZeroU64;

use epoch_core::{Epoch, Holder, IntentId, OpenId, Principal, RequestId, Scope, SessionId};
use uuid::Uuid;

use super::random_trust::trust_command;
use crate::command::{Command, Scopes, SessionKey, Ttl};
use crate::event::{Event, GrantEvent, GrantEventKind};
use crate::limits::Limits;
use crate::outcome::Outcome;
use crate::permission::{Prefix, Verbs};
use crate::record::{IntentDigest, Value};
use crate::state::State;
use crate::terms::{LockDelay, Metadata, Terms, Wait};
use crate::token::{TokenHash, TokenLabel};

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
struct Believed {
    scope: Scope,
    session: SessionId,
    epoch: Epoch,
}

/// What clients, operators and the leader know, and choose from: recent things, some of them long
/// gone.
#[derive(Debug, Default)]
pub(super) struct Clients {
    sessions: Vec<SessionId>,
    believed: Vec<Believed>,
    /// Waits, and delays, as they began.
    waits: Vec<(Scope, SessionKey, RequestId)>,
    delays: Vec<(Scope, Epoch)>,
    /// Commands whose answer was lost.
    unanswered: Vec<Command>,
    /// Commands that were answered, to be repeated for no good reason.
    answered: Vec<Command>,
    request_ids: u64,
    /// Whether there are principals, and operators who give them permissions: one command in so
    /// many is theirs.
    operators: Option<u64>,
    /// As many commands are about signing keys.
    keepers: Option<u64>,
}

impl Clients {
    const KNOWN_MAX: usize = 24;
    const SESSIONS_KNOWN: usize = 14;
    const UNANSWERED_MAX: usize = 8;
    const SCOPES: u64 = 6;
    const OPEN_IDS: u64 = 12;

    /// In one run in three there are permissions.
    pub(super) fn new(random: &mut Random) -> Self {
        Self {
            operators: random.one_in(3).then_some(12),
            keepers: random.one_in(3).then_some(12),
            ..Self::default()
        }
    }

    /// Operators do most.
    pub(super) fn with_busy_operators() -> Self {
        Self {
            operators: Some(2),
            keepers: Some(3),
            ..Self::default()
        }
    }

    pub(super) fn told(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Grant(GrantEvent {
                    kind: GrantEventKind::Granted | GrantEventKind::Transferred,
                    scope,
                    epoch,
                    who: Some((_, session)),
                    ..
                }) => {
                    let believed = Believed {
                        scope: Scope::parse(scope).unwrap(),
                        session: *session,
                        epoch: *epoch,
                    };
                    push_bounded(&mut self.believed, believed, Self::KNOWN_MAX);
                }
                Event::WaitBegun {
                    scope,
                    session,
                    request_id,
                    ..
                } => {
                    let wait = (Scope::parse(scope).unwrap(), *session, *request_id);
                    push_bounded(&mut self.waits, wait, Self::KNOWN_MAX);
                }
                // Mostly; some go on with a session that is gone.
                Event::SessionEnded { session, .. } if session.index % 8 > 0 => {
                    let ended = |id: &SessionId| SessionKey::from(id) == *session;
                    self.sessions.retain(|id| !ended(id));
                    self.believed.retain(|believed| !ended(&believed.session));
                }
                Event::DelayBegun { scope, epoch, .. } => {
                    let delay = (Scope::parse(scope).unwrap(), *epoch);
                    push_bounded(&mut self.delays, delay, 3);
                }
                _ => {}
            }
        }
    }

    pub(super) fn answered(&mut self, command: Command, outcome: &Outcome, missed: bool) {
        if let Outcome::Opened { session, .. } = outcome {
            push_bounded(&mut self.sessions, *session, Self::SESSIONS_KNOWN);
            return;
        }
        if missed && !matches!(outcome, Outcome::Released { .. }) {
            push_bounded(&mut self.unanswered, command, Self::UNANSWERED_MAX);
        } else if matches!(
            command,
            Command::Acquire { .. } | Command::AcquireMany { .. } | Command::WriteRecord { .. }
        ) {
            push_bounded(&mut self.answered, command, Self::KNOWN_MAX);
        }
    }

    /// The next command, at a leader's time; the honest know the state.
    pub(super) fn command(&mut self, random: &mut Random, state: &State, wall_ms: u64) -> Command {
        if self.keepers.is_some_and(|odds| random.one_in(odds)) {
            return trust_command(random, state, wall_ms);
        }
        if self.operators.is_some_and(|odds| random.one_in(odds)) {
            return operator_command(random);
        }
        match random.below(200) {
            0..20 => self.open(random),
            20..23 => Command::Close {
                session: self.session(random),
            },
            23..28 => Command::Expire {
                session: SessionKey::from(&self.session(random)),
            },
            28..102 => self.acquire(random),
            102..106 => self.acquire_many(random),
            106..140 => self.release(random),
            140..152 => self.revoke(random),
            152..162 => self.cancel_wait(random),
            162..166 => self.end_wait(random),
            166..170 => self.end_delay(random),
            170..176 => self.transfer(random),
            176..186 => self.write(random),
            186..190 => match random.of(&self.answered).cloned() {
                Some(command) => command,
                None => self.acquire(random),
            },
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

    /// Mostly a fresh one; some used before, by this session or another.
    fn request_id(&mut self, random: &mut Random) -> RequestId {
        if !random.one_in(5) {
            self.request_ids += 1;
        }
        let back = if random.one_in(8) {
            random.below(20)
        } else {
            0
        };
        RequestId::new(self.request_ids.saturating_sub(back).max(1)).unwrap()
    }

    fn acquire(&mut self, random: &mut Random) -> Command {
        let request_id = self.request_id(random);
        Command::Acquire {
            scope: scope(random),
            session: self.session(random),
            request_id,
            terms: terms(random),
            wait: wait(random),
            reissue: random.one_in(10),
        }
    }

    fn acquire_many(&mut self, random: &mut Random) -> Command {
        let request_id = self.request_id(random);
        self.request_ids += 2;
        let first = scope(random);
        let mut scopes = vec![scope(random), scope(random)];
        scopes.retain(|scope| *scope != first);
        scopes.dedup();
        scopes.push(first);
        Command::AcquireMany {
            scopes: Scopes::new(scopes).unwrap(),
            session: self.session(random),
            request_id,
            terms: terms(random),
        }
    }

    fn known_wait(&mut self, random: &mut Random) -> (Scope, SessionId, RequestId) {
        let known = random.of(&self.waits).cloned();
        if let Some((scope, session, request_id)) = known
            && !random.one_in(6)
        {
            let of = |id: &&SessionId| SessionKey::from(*id) == session;
            if let Some(session) = self.sessions.iter().find(of) {
                return (scope, *session, request_id);
            }
        }
        let session = self.session(random);
        (scope(random), session, self.request_id(random))
    }

    fn cancel_wait(&mut self, random: &mut Random) -> Command {
        let (scope, session, request_id) = self.known_wait(random);
        Command::CancelWait {
            scope,
            session,
            request_id,
        }
    }

    fn end_wait(&mut self, random: &mut Random) -> Command {
        let (_, session, request_id) = self.known_wait(random);
        Command::EndWait {
            session: SessionKey::from(&session),
            request_id,
        }
    }

    fn end_delay(&mut self, random: &mut Random) -> Command {
        let known = random.of(&self.delays).cloned();
        let (scope, epoch) = known.unwrap_or_else(|| (scope(random), Epoch::new(1).unwrap()));
        let epoch = near(random, epoch);
        Command::EndDelay { scope, epoch }
    }

    /// A grant, mostly as its holder believes it is, and mostly one of the latest.
    fn grant(&mut self, random: &mut Random) -> Believed {
        let recent = self.believed.len().saturating_sub(8);
        let all = if random.one_in(3) {
            &self.believed
        } else {
            &self.believed[recent..]
        };
        match random.of(all).cloned() {
            Some(believed) => Believed {
                session: if random.one_in(20) {
                    self.session(random)
                } else {
                    believed.session
                },
                epoch: near(random, believed.epoch),
                ..believed
            },
            None => Believed {
                scope: scope(random),
                session: self.session(random),
                epoch: Epoch::new(1 + random.below(1 << 50)).unwrap(),
            },
        }
    }

    fn release(&mut self, random: &mut Random) -> Command {
        let Believed {
            scope,
            session,
            epoch,
        } = self.grant(random);
        Command::Release {
            scope,
            session,
            epoch,
        }
    }

    fn transfer(&mut self, random: &mut Random) -> Command {
        let Believed {
            scope,
            session,
            epoch,
        } = self.grant(random);
        let (_, waiting, _) = self.known_wait(random);
        Command::Transfer {
            scope,
            session,
            epoch,
            to: waiting.hash(),
        }
    }

    fn write(&mut self, random: &mut Random) -> Command {
        let Believed {
            scope,
            session,
            epoch,
        } = self.grant(random);
        let value = Value::new(&[u8::try_from(random.below(3)).unwrap(); 30]).ok();
        let value = value.filter(|_| !random.one_in(4));
        let id = IntentId::parse(&format!("intent {}", random.below(12))).unwrap();
        let intent = IntentDigest::of(&id, value.as_ref());
        Command::WriteRecord {
            scope,
            session,
            epoch,
            value,
            expected_revision: random.one_in(4).then_some(0),
            intent: random.one_in(2).then_some(intent),
        }
    }

    fn revoke(&mut self, random: &mut Random) -> Command {
        let (
            named,
            Believed {
                scope: of, epoch, ..
            },
        ) = (!random.one_in(4), self.grant(random));
        Command::Revoke {
            scope: if named { of } else { scope(random) },
            epoch: named.then_some(epoch),
            by: self.operators.and_then(|_| operator(random)),
        }
    }

    /// Mostly by the principal that the holder is named after.
    fn open(&mut self, random: &mut Random) -> Command {
        let holder = ["agent-a", "agent-b"][usize::from(random.one_in(10))];
        let principal = match random.below(20) {
            0 => None,
            1 => Some("agent-b"),
            _ => Some(holder),
        };
        let principal = principal.filter(|_| self.operators.is_some());
        let below = if random.one_in(20) { "/7" } else { "" };
        Command::Open {
            open_id: open_id(random),
            holder: Holder::parse(&format!("{holder}{below}")).unwrap(),
            ttl: Ttl::from_ms(10_000 - random.below(20) / 19).unwrap(),
            stall_limit: random.one_in(30).then(|| Ttl::from_ms(60_000).unwrap()),
            principal: principal.map(|name| Principal::parse(name).unwrap()),
            holder_key: random.one_in(30).then_some([7; 32]),
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
    let delay = if random.one_in(6) { 5_000 } else { 0 };
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

/// Mostly the one who may.
pub(super) fn operator(random: &mut Random) -> Option<Principal> {
    let name = match random.below(20) {
        0 => None,
        1 => Some("agent-a"),
        _ => Some("root"),
    };
    name.map(|name| Principal::parse(name).unwrap())
}

fn operator_command(random: &mut Random) -> Command {
    let by = operator(random);
    let one_of = |random: &mut Random, names: &[&'static str]| *random.of(names).unwrap();
    let name = one_of(random, &["agent-a", "agent-a", "agent-b", "root"]);
    let principal = Principal::parse(name).unwrap();
    let prefix = Prefix::parse(one_of(random, &["", "", "a", "a/", "\u{e9}"])).unwrap();
    let label = TokenLabel::parse(one_of(random, &["ci", "laptop"])).unwrap();
    match random.below(16) {
        0..8 => Command::GrantPermission {
            by,
            principal,
            prefix,
            verbs: match random.below(4) {
                0 => Verbs::from_bits(u32::try_from(1 + random.below(15)).unwrap()).unwrap(),
                _ => Verbs::ALL,
            },
        },
        8..11 => Command::RevokePermission {
            by,
            principal,
            prefix,
        },
        11..13 => Command::AddToken {
            by,
            principal,
            label,
            hash: TokenHash([u8::try_from(random.below(4)).unwrap(); 32]),
            expires_ms: NonZeroU64::new(random.below(2)),
        },
        13 => Command::RemoveToken {
            by,
            principal,
            label,
        },
        _ => {
            let mut limit = || (!random.one_in(3)).then(|| u32::try_from(random.below(6)).unwrap());
            Command::SetLimits {
                by,
                principal,
                limits: Limits {
                    sessions: limit(),
                    grants: limit(),
                    waits: limit(),
                    requests_per_second: limit(),
                },
            }
        }
    }
}
