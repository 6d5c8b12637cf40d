//! Random batches that bring about rows and changes of every kind.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use epoch_core::{Holder, IntentId, OpenId, Principal, RequestId, Scope, SessionHash, SessionId};
use epoch_machine::{
    Batch, Command, Grant, IntentDigest, Leadership, Limits, LockDelay, Metadata, Outcome, Prefix,
    Scopes, SessionItem, SessionKey, State, Terms, TokenHash, TokenLabel, Ttl, VALUE_BYTES_MAX,
    Value, Verbs, Wait,
};
use uuid::Uuid;

use super::{apply_batch, index_below, trust};
use crate::SplitMix;

/// Scopes that a third of the commands are about: they have queues, and records that change often.
const BUSY_SCOPES: u64 = 4;
/// Batches for which time stands still, so that free rows are kept, and ...
const STILL_BATCHES: u64 = 100;
/// ... how far it goes on then, in milliseconds: two days, so that removed records are forgotten.
const STEP_MS: u64 = 2 * 24 * 3_600 * 1_000;

/// Who opens all sessions.
const WORKERS: &str = "workers";

pub(super) fn principal(name: &str) -> Principal {
    Principal::parse(name).unwrap()
}

fn permit(who: &str, prefix: &str, verbs: Verbs) -> Command {
    Command::GrantPermission {
        by: Some(principal("root")),
        principal: principal(who),
        prefix: Prefix::parse(prefix).unwrap(),
        verbs,
    }
}

/// Random batches for one state: sessions come and go, scopes are taken, waited for, handed on and
/// lost under several leaderships, records are written, permissions, tokens and limits come and go,
/// and time passes.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    random: SplitMix,
    /// Scopes there are; fewer are fought over more.
    scopes: u64,
    commands_max: u64,
    sessions: Vec<SessionId>,
    by_hash: BTreeMap<SessionHash, SessionId>,
}

impl Workload {
    pub(crate) fn new(seed: u64, scopes: u64, commands_max: u64) -> Self {
        Self {
            random: SplitMix::new(seed),
            scopes,
            commands_max,
            sessions: Vec::new(),
            by_hash: BTreeMap::new(),
        }
    }

    /// The batch for log index `index`.
    pub(crate) fn batch(&mut self, state: &State, index: u64) -> Batch {
        let leadership = Leadership {
            term: 1 + index / 50,
            node: 1 + self.random.below(3),
        };
        let wall_ms = 1_700_000_000_000 + index / STILL_BATCHES * STEP_MS;
        let mut commands = Vec::from_iter(trust::command(&mut self.random, state, wall_ms));
        if state.is_open() {
            commands.extend([
                permit("root", "", Verbs::ALL),
                permit(WORKERS, "scope/", Verbs::ALL),
            ]);
        }
        for _ in 0..self.random.below(self.commands_max) {
            commands.extend(self.command(state));
        }
        Batch {
            leadership,
            wall_ms,
            commands,
        }
    }

    /// Makes the batch for `index` and applies it.
    pub(crate) fn advance(&mut self, state: &mut State, index: u64) -> Batch {
        let batch = self.batch(state, index);
        self.learn(apply_batch(state, index, &batch));
        batch
    }

    /// Goes on with the sessions that were opened.
    pub(crate) fn learn(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            if let Outcome::Opened { session, .. } = outcome {
                self.sessions.push(session);
                self.by_hash.insert(session.hash(), session);
            }
        }
    }

    /// `None` when there is nothing yet that the command drawn could be about.
    fn command(&mut self, state: &State) -> Option<Command> {
        if self.sessions.is_empty() {
            return Some(self.open());
        }
        match self.random.below(34) {
            32.. => Some(self.operate()),
            0..2 => Some(self.open()),
            2 => Some(Command::Revoke {
                scope: self.scope(),
                epoch: None,
                by: Some(principal("root")),
            }),
            3 => {
                let page = state.list("", None, Some(&self.scope()), 1);
                let scope = page.scopes.into_iter().next()?;
                Some(Command::Revoke {
                    scope: scope.scope,
                    epoch: Some(scope.held?.epoch),
                    by: Some(principal(WORKERS)),
                })
            }
            4 => self.end_session(),
            5 => {
                let (session, request_id) = self.waiting(state)?;
                Some(Command::EndWait {
                    session,
                    request_id,
                })
            }
            6 => self.cancel_wait(state),
            7 => {
                let delays: Vec<_> = state.delays().collect();
                let (name, _) = self.one_of(&delays)?;
                let (scope, epoch) = state.delay(name)?;
                Some(Command::EndDelay { scope, epoch })
            }
            8 => {
                let Grant {
                    scope,
                    session,
                    epoch,
                    ..
                } = self.grant(state)?;
                Some(Command::Release {
                    scope,
                    session,
                    epoch,
                })
            }
            9..11 => self.transfer(state),
            11..15 => self.write_record(state),
            15 => Some(self.acquire_many()),
            _ => Some(self.acquire()),
        }
    }

    fn open(&mut self) -> Command {
        let random = &mut self.random;
        let mut time = |from_ms| Ttl::from_ms(from_ms + random.below(9_000)).unwrap();
        let (ttl, limit) = (time(1_000), time(60_000));
        Command::Open {
            open_id: OpenId(Uuid::from_u128(u128::from(random.bits()))),
            holder: Holder::parse(&format!("{WORKERS}/{}", random.below(9))).unwrap(),
            ttl,
            stall_limit: (random.below(3) == 0).then_some(limit),
            principal: Some(principal(WORKERS)),
            holder_key: (random.below(3) == 0).then_some([7; 32]),
        }
    }

    /// Permissions, tokens and limits of principals that have nothing else.
    fn operate(&mut self) -> Command {
        let random = &mut self.random;
        let by = Some(principal("root"));
        let number = random.below(20);
        let whose = principal(&format!("p{number}"));
        let byte = u8::try_from(number * 2 + random.below(2)).unwrap();
        let prefix = Prefix::parse(&format!("scope/{}", random.below(3))).unwrap();
        let label = TokenLabel::parse(&format!("t{byte}")).unwrap();
        match random.below(8) {
            0..2 => permit(whose.as_str(), prefix.as_str(), Verbs::ALL),
            2 => Command::RevokePermission {
                by,
                principal: whose,
                prefix,
            },
            3..5 => Command::AddToken {
                by,
                principal: whose,
                label,
                hash: TokenHash([byte; 32]),
                expires_ms: NonZeroU64::new(random.below(2)),
            },
            5 => Command::RemoveToken {
                by,
                principal: whose,
                label,
            },
            _ => Command::SetLimits {
                by,
                principal: whose,
                limits: Limits {
                    grants: (random.below(2) == 0).then_some(7),
                    ..Limits::default()
                },
            },
        }
    }

    fn end_session(&mut self) -> Option<Command> {
        let end = self.random.below(4);
        if end > 1 {
            return None;
        }
        let at = index_below(&mut self.random, self.sessions.len());
        let session = self.sessions.swap_remove(at);
        Some(if end == 0 {
            Command::Close { session }
        } else {
            Command::Expire {
                session: SessionKey::from(&session),
            }
        })
    }

    /// Half of them of waits that there are, the others of acquires that may come yet.
    fn cancel_wait(&mut self, state: &State) -> Option<Command> {
        let (key, request_id) = match self.random.below(2) {
            0 => self.waiting(state)?,
            _ => (SessionKey::from(&self.session()), self.request_id()),
        };
        let scope = state.wait(key, request_id);
        let mut sessions = self.sessions.iter();
        let session = *sessions.find(|session| SessionKey::from(*session) == key)?;
        Some(Command::CancelWait {
            scope: scope.unwrap_or_else(|| self.scope()),
            session,
            request_id,
        })
    }

    /// To a session that waits for it, where there is one, every other time.
    fn transfer(&mut self, state: &State) -> Option<Command> {
        let Grant {
            scope,
            session,
            epoch,
            ..
        } = self.grant(state)?;
        let queue = state.scope(&scope, 8).queue;
        let to = match self.one_of(&queue) {
            Some(waiting) if self.random.below(2) == 0 => waiting.session,
            _ => self.session().hash(),
        };
        Some(Command::Transfer {
            scope,
            session,
            epoch,
            to,
        })
    }

    fn write_record(&mut self, state: &State) -> Option<Command> {
        let Grant {
            scope,
            session,
            epoch,
            ..
        } = self.grant(state)?;
        let random = &mut self.random;
        let length = match random.below(16) {
            0 => VALUE_BYTES_MAX,
            1 => index_below(random, VALUE_BYTES_MAX),
            _ => index_below(random, 64),
        };
        let byte = u8::try_from(random.below(256)).unwrap();
        let value = (random.below(4) > 0).then(|| Value::new(&vec![byte; length]).unwrap());
        let intent = (random.below(4) > 0).then(|| {
            let id = IntentId::parse(&format!("intent-{}", random.below(100))).unwrap();
            IntentDigest::of(&id, value.as_ref())
        });
        let expected_revision = match random.below(4) {
            0 => Some(state.record(&scope).map_or(0, |record| record.expected())),
            1 => Some(random.below(2)),
            _ => None,
        };
        Some(Command::WriteRecord {
            scope,
            session,
            epoch,
            value,
            expected_revision,
            intent,
        })
    }

    fn acquire(&mut self) -> Command {
        let (scope, session, request_id) = (self.scope(), self.session(), self.request_id());
        let random = &mut self.random;
        let wait_ms = if random.below(2) == 0 {
            1 + random.below(60_000)
        } else {
            0
        };
        Command::Acquire {
            scope,
            session,
            request_id,
            wait: Wait::from_ms(wait_ms).unwrap(),
            reissue: random.below(8) == 0,
            terms: self.terms(),
        }
    }

    fn acquire_many(&mut self) -> Command {
        let mut scopes: Vec<_> = (0..=self.random.below(4)).map(|_| self.scope()).collect();
        scopes.sort();
        scopes.dedup();
        Command::AcquireMany {
            scopes: Scopes::new(scopes).unwrap(),
            session: self.session(),
            request_id: self.request_id(),
            terms: self.terms(),
        }
    }

    fn terms(&mut self) -> Terms {
        let random = &mut self.random;
        let delay_ms = match random.below(4) {
            0 => 1 + random.below(30_000),
            _ => 0,
        };
        let metadata = match random.below(8) {
            0 => format!("{{\"run\": {}}}", random.below(100)),
            _ => String::new(),
        };
        Terms {
            lock_delay: LockDelay::from_ms(delay_ms).unwrap(),
            metadata: Metadata::new(&metadata).unwrap(),
        }
    }

    fn scope(&mut self) -> Scope {
        let scopes = if self.random.below(3) == 0 {
            self.scopes.min(BUSY_SCOPES)
        } else {
            self.scopes
        };
        Scope::parse(&format!("scope/{}", self.random.below(scopes))).unwrap()
    }

    fn request_id(&mut self) -> RequestId {
        RequestId::new(self.random.below(10_000) + 1).unwrap()
    }

    fn session(&mut self) -> SessionId {
        self.sessions[index_below(&mut self.random, self.sessions.len())]
    }

    /// A current grant: one of a busy scope, or some session's.
    fn grant(&mut self, state: &State) -> Option<Grant> {
        let session = self.session();
        if self.random.below(2) == 0 {
            let scope = format!("scope/{}", self.random.below(self.scopes.min(BUSY_SCOPES)));
            let scope = Scope::parse(&scope).unwrap();
            let held = state.scope(&scope, 0).held?;
            let holder = self.by_hash.get(&held.session)?;
            return state.current_grant(&scope, holder, held.epoch).ok();
        }
        let items = state.session_page(&session, None, 8)?.items;
        let grants: Vec<_> = items
            .into_iter()
            .filter_map(|item| match item {
                SessionItem::Grant(grant) => Some(grant),
                SessionItem::Wait { .. } => None,
            })
            .collect();
        self.one_of(&grants).cloned()
    }

    fn waiting(&mut self, state: &State) -> Option<(SessionKey, RequestId)> {
        let waits = state.waits().map(|(session, id, _)| (session, id));
        let waits: Vec<_> = waits.collect();
        self.one_of(&waits).copied()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[index_below(&mut self.random, all.len())])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use epoch_machine::{AdminKey, AdminRow, INTENTS_KEPT, RowChange, SpentUse, StandingRow};

    use super::*;
    use crate::codec::{SnapshotRow, state_rows};
    use crate::testing::fresh_state;

    fn row_kind(row: &SnapshotRow) -> &'static str {
        match row {
            SnapshotRow::Session(row) if row.stall_limit.is_some() => "session, stall limit",
            SnapshotRow::Session(_) => "session",
            SnapshotRow::Scope(row) => match &row.standing {
                StandingRow::Free(delay) if delay.is_zero() => "scope, free",
                StandingRow::Free(_) => "scope, delayed",
                StandingRow::Held(held) => match (held.before, held.request_id) {
                    (Some(_), None) => "scope, transferred",
                    (Some(_), Some(_)) => "scope, transferred to a waiter",
                    (None, _) if held.terms == Terms::default() => "scope, held",
                    (None, _) if held.terms.metadata == Metadata::default() => {
                        "scope, held with a delay"
                    }
                    (None, _) => "scope, held with metadata",
                },
            },
            SnapshotRow::Spent(row) => match row.what {
                SpentUse::Grant => "spent, grant",
                SpentUse::WaitExpired => "spent, expired",
                SpentUse::WaitCancelled => "spent, cancelled",
            },
            SnapshotRow::Wait(row) if row.terms == Terms::default() => "wait",
            SnapshotRow::Wait(_) => "wait, with terms",
            SnapshotRow::Record(row) => match &row.record.value {
                None => "record, removed",
                Some(_) if row.record.intents.len() == INTENTS_KEPT => "record, all intents",
                Some(value) if value.as_bytes().len() == VALUE_BYTES_MAX => "record, largest",
                Some(_) => "record",
            },
            SnapshotRow::Admin(row) => match row {
                AdminRow::Bundle(_) => "rare, bundle",
                AdminRow::Offer(offer) if offer.endorsed => "rare, endorsed key",
                AdminRow::Offer(_) => "rare, offered key",
                AdminRow::Rotation(_) => "rare, wanted key",
                AdminRow::Retired(_) => "rare, retired key",
                AdminRow::Statement(_) => "rare, statement",
                AdminRow::Permission(_) => "rare, permission",
                AdminRow::Token(_) => "rare, token",
                AdminRow::Limits { .. } => "rare, limits",
                AdminRow::Audit(record) if record.refused.is_some() => "rare, refusal",
                AdminRow::Audit(_) => "rare, audit record",
            },
        }
    }

    fn gone_kind(change: &RowChange) -> Option<&'static str> {
        match change {
            RowChange::Session(_, None) => Some("session, gone"),
            RowChange::Scope(_, None) => Some("scope, gone"),
            RowChange::Spent(_, _, None) => Some("spent, gone"),
            RowChange::Wait(_, _, None) => Some("wait, gone"),
            RowChange::Record(_, None) => Some("record, gone"),
            RowChange::Admin(AdminKey::Permission(..), None) => Some("rare, permission, gone"),
            RowChange::Admin(AdminKey::Token(_), None) => Some("rare, token, gone"),
            RowChange::Admin(AdminKey::Limits(_), None) => Some("rare, limits, gone"),
            RowChange::Admin(AdminKey::Audit(_), None) => Some("rare, audit record, gone"),
            RowChange::Admin(AdminKey::Bundle(_), None) => Some("rare, bundle, gone"),
            RowChange::Admin(AdminKey::Offer(_), None) => Some("rare, offered key, gone"),
            RowChange::Admin(AdminKey::Rotation(_), None) => Some("rare, wanted key, gone"),
            _ => None,
        }
    }

    fn outcome_kind(outcome: &Outcome) -> Option<&'static str> {
        match outcome {
            Outcome::GrantedMany { new: true, .. } => Some("granted many"),
            Outcome::RefusedMany { .. } => Some("refused many"),
            Outcome::Transferred { new: true, .. } => Some("transferred"),
            Outcome::DelayEnded { ended: true } => Some("delay ended"),
            Outcome::RecordWritten { replayed: true, .. } => Some("record, replayed"),
            _ => None,
        }
    }

    #[test]
    fn the_workload_brings_about_rows_and_changes_of_every_kind() {
        let mut state = fresh_state();
        state.track_changes();
        let mut workload = Workload::new(1, 300, 20);
        let mut kinds = BTreeSet::new();
        let mut deepest = 0;
        for index in 1..=1_200 {
            let batch = workload.batch(&state, index);
            let outcomes = apply_batch(&mut state, index, &batch);
            kinds.extend(outcomes.iter().filter_map(outcome_kind));
            workload.learn(outcomes);
            if index % 50 == 0 {
                let rows: Vec<_> = state_rows(&state).collect();
                kinds.extend(rows.iter().map(row_kind));
                let page = state.list("", None, None, 1_000);
                let queues = page.scopes.iter().map(|scope| scope.waiting);
                deepest = deepest.max(queues.max().unwrap_or(0));
            }
        }
        let changes = state.take_changes();
        kinds.extend(
            state
                .changed_rows(&changes)
                .filter_map(|row| gone_kind(&row)),
        );
        let expected = [
            "delay ended",
            "granted many",
            "rare, audit record",
            "rare, audit record, gone",
            "rare, bundle",
            "rare, bundle, gone",
            "rare, endorsed key",
            "rare, limits",
            "rare, limits, gone",
            "rare, offered key",
            "rare, offered key, gone",
            "rare, permission",
            "rare, permission, gone",
            "rare, refusal",
            "rare, retired key",
            "rare, statement",
            "rare, token",
            "rare, token, gone",
            "rare, wanted key",
            "rare, wanted key, gone",
            "record",
            "record, all intents",
            "record, gone",
            "record, largest",
            "record, removed",
            "record, replayed",
            "refused many",
            "scope, delayed",
            "scope, free",
            "scope, gone",
            "scope, held",
            "scope, held with a delay",
            "scope, held with metadata",
            "scope, transferred",
            "scope, transferred to a waiter",
            "session",
            "session, gone",
            "session, stall limit",
            "spent, cancelled",
            "spent, expired",
            "spent, gone",
            "spent, grant",
            "transferred",
            "wait",
            "wait, gone",
            "wait, with terms",
        ];
        assert_eq!(Vec::from_iter(kinds), expected);
        assert!(deepest > 3, "{deepest}");
    }
}
