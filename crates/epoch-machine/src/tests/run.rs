//! The machine driven by random commands, with all promises checked over what came of it.

use std::collections::BTreeMap;

use epoch_core::{
    ClusterId, EPOCH_EXCLUSIVE_MAX, Incarnation, OpenId, Position, RequestId, Scope, SessionId,
};
use uuid::Uuid;

use super::hash::hash_of_rows;
use super::promises::{Coverage, Failure};
use super::random::{Believed, Clients, Random};
use super::shadow::Shadow;
use crate::changes::Changes;
use crate::command::{Batch, Command, Entry, Leadership};
use crate::event::{Event, GrantEvent, GrantEventKind, WaitEnd};
use crate::load::Loader;
use crate::outcome::{Applied, ForeignLeadership, Outcome};
use crate::promise::{
    Acquired, AppliedEntry, Committed, committed_before_seen, consistent, exactly_one,
    first_come_first_served, provenance, unique_and_rising,
};
use crate::state::State;

/// What is under test: `apply`, or `apply` with a bug planted around it.
pub(super) type Apply = fn(&mut State, Entry, &Batch) -> Result<Applied, ForeignLeadership>;

const WALL_MS_FIRST: u64 = 1_800_000_000_000;

/// A command on its way.
struct Proposal {
    sent: u64,
    command: Command,
}

/// Lengths to go back to, with the state that belongs to them.
struct Saved {
    state: State,
    index: u64,
    committed: usize,
    answered: usize,
    entries: usize,
    events: usize,
}

pub(super) struct Run {
    apply: Apply,
    random: Random,
    clients: Clients,
    state: State,
    replica: State,
    index: u64,
    leadership: Leadership,
    /// The leader's clock.
    wall_ms: u64,
    /// Counts everything that happens, for sent and returned.
    tick: u64,
    on_the_way: Vec<Proposal>,
    /// When each acquire was sent for the first time.
    first_sent: BTreeMap<(SessionId, Option<RequestId>, Scope), u64>,
    /// Everything answered, in all lives of the disks; retries count from when they were first
    /// sent, since a rolled-back grant can come back.
    answered_ever: Vec<Acquired>,
    /// Every grant and every burnt epoch applied, in all lives of the disks.
    applied_ever: Vec<Acquired>,
    committed_ever: Vec<Committed>,
    /// The same of this life only.
    answered: Vec<Acquired>,
    committed: Vec<Committed>,
    entries: Vec<AppliedEntry>,
    saved: Option<Saved>,
    now_ms_ever: u64,
    /// Follows the state by its changes alone.
    shadow: Shadow,
    /// Of checkpoints that failed since the last one that did not.
    not_written: Changes,
    /// Of this life.
    events: Vec<Event>,
    coverage: Coverage,
}

impl Run {
    pub(super) fn new(seed: u64, apply: Apply) -> Self {
        let mut state = State::new(
            ClusterId(Uuid::from_u128(1)),
            Incarnation(Uuid::from_u128(2)),
            0,
        );
        let replica = state.clone();
        state.track_changes();
        Self {
            apply,
            random: Random::new(seed),
            clients: Clients::default(),
            replica,
            state,
            index: 0,
            leadership: Leadership { term: 1, node: 1 },
            wall_ms: WALL_MS_FIRST,
            tick: 0,
            on_the_way: Vec::new(),
            first_sent: BTreeMap::new(),
            answered_ever: Vec::new(),
            applied_ever: Vec::new(),
            committed_ever: Vec::new(),
            answered: Vec::new(),
            committed: Vec::new(),
            entries: Vec::new(),
            saved: None,
            now_ms_ever: 0,
            shadow: Shadow::default(),
            not_written: Changes::default(),
            events: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    pub(super) fn steps(mut self, steps: u64) -> Result<Coverage, Failure> {
        // One episode in eight ends in the year 2248.
        let last_year = if self.random.one_in(8) {
            steps - steps / 10
        } else {
            u64::MAX
        };
        for step in 0..steps {
            self.pass_time();
            if step == last_year {
                self.wall_ms = (1 << 43) - 1;
            }
            for _ in 0..self.random.below(3) {
                let command = self.clients.command(&mut self.random);
                self.tick += 1;
                if let Command::Acquire {
                    scope,
                    session,
                    request_id,
                    ..
                } = &command
                {
                    let request = (*session, Some(*request_id), scope.clone());
                    self.first_sent.entry(request).or_insert(self.tick);
                }
                self.on_the_way.push(Proposal {
                    sent: self.tick,
                    command,
                });
            }
            match self.random.below(400) {
                0 => self.save(),
                1 => self.roll_back()?,
                2..4 => self.rows_out_and_in()?,
                4..14 => self.change_leadership(),
                14..24 => self.foreign_batch()?,
                _ => self.batch()?,
            }
            consistent(&self.state)?;
            if self.state.hash() != hash_of_rows(&self.state) {
                return Err(Failure::Hash);
            }
            if self.random.one_in(12) {
                self.checkpoint()?;
            }
        }
        self.check_promises()?;
        Ok(self.coverage)
    }

    fn pass_time(&mut self) {
        let on = match self.random.below(200) {
            0 => self.random.below(3_600_000),
            1..40 => 1,
            _ => 0,
        };
        self.wall_ms = self.wall_ms.saturating_add(on);
        if self.random.one_in(150) {
            self.wall_ms = self.wall_ms.saturating_sub(self.random.below(1_200_000));
        }
    }

    fn change_leadership(&mut self) {
        let node = 1 + self.random.below(3);
        let term = self.leadership.term + u64::from(node <= self.leadership.node);
        self.leadership = Leadership { term, node };
    }

    fn take_batch(&mut self) -> (Batch, Vec<u64>) {
        let count = self.random.below(5);
        let count = usize::try_from(count).unwrap().min(self.on_the_way.len());
        let (mut sent, mut commands) = (Vec::new(), Vec::new());
        for proposal in self.on_the_way.drain(..count) {
            sent.push(proposal.sent);
            commands.push(proposal.command);
        }
        (
            Batch {
                leadership: self.leadership,
                wall_ms: self.wall_ms,
                commands,
            },
            sent,
        )
    }

    /// A batch that was queued under another leadership: nothing happens, and its callers ask
    /// again.
    fn foreign_batch(&mut self) -> Result<(), Failure> {
        let (mut batch, sent) = self.take_batch();
        batch.leadership.node += 1;
        batch.wall_ms += 1_000;
        self.index += 1;
        let entry = Entry {
            leadership: self.leadership,
            index: self.index,
        };
        let before = self.state.clone();
        let result = (self.apply)(&mut self.state, entry, &batch);
        if result != Err(ForeignLeadership) || self.state != before {
            return Err(Failure::Foreign(batch));
        }
        self.coverage.foreign += 1;
        for (sent, command) in sent.into_iter().zip(batch.commands) {
            self.on_the_way.push(Proposal { sent, command });
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<(), Failure> {
        let (batch, sent) = self.take_batch();
        self.index += 1;
        let entry = Entry {
            leadership: self.leadership,
            index: self.index,
        };
        let before = self.state.clone();
        let applied = (self.apply)(&mut self.state, entry, &batch);
        let on_replica = (self.apply)(&mut self.replica, entry, &batch);
        if applied != on_replica
            || self.state.hash() != self.replica.hash()
            || (self.random.one_in(20) && self.state != self.replica)
        {
            return Err(Failure::Replicas(batch));
        }
        let Ok(Applied { outcomes, events }) = applied else {
            return Err(Failure::Replicas(batch));
        };
        if self.state.now_ms() < before.now_ms() {
            return Err(Failure::Time);
        }
        self.note_events(&events);
        self.events.extend(events);
        self.refused_changed_nothing(before, entry, &batch, &outcomes)?;

        self.now_ms_ever = self.now_ms_ever.max(self.state.now_ms());
        let commands = u32::try_from(batch.commands.len()).unwrap();
        self.entries.push(AppliedEntry { entry, commands });
        self.tick += 1;
        for ((sent, command), outcome) in sent.into_iter().zip(batch.commands).zip(outcomes) {
            self.note(sent, command, outcome);
        }
        Ok(())
    }

    fn refused_changed_nothing(
        &mut self,
        before: State,
        entry: Entry,
        batch: &Batch,
        outcomes: &[Outcome],
    ) -> Result<(), Failure> {
        let all_refused = outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Refused(_) | Outcome::RefusedMany { .. }));
        if all_refused && self.random.one_in(4) {
            let mut expected = before;
            let empty = Batch {
                commands: Vec::new(),
                ..batch.clone()
            };
            if (self.apply)(&mut expected, entry, &empty).is_err() || expected != self.state {
                return Err(Failure::Refused(batch.clone()));
            }
        }
        Ok(())
    }

    fn note(&mut self, sent: u64, command: Command, outcome: Outcome) {
        match outcome {
            Outcome::Opened { session, .. } => self.clients.opened(session),
            Outcome::Granted { grant, new } => {
                let incarnation = self.state.incarnation();
                if new {
                    self.committed.push(Committed::new(&grant, incarnation));
                } else {
                    self.coverage.retried += 1;
                }
                self.clients.granted(Believed {
                    scope: grant.scope.clone(),
                    session: grant.session,
                    epoch: grant.epoch,
                });
                if self.random.one_in(6) {
                    self.clients.not_answered(command);
                } else {
                    self.tick += 1;
                    let record = Acquired::new(&grant, incarnation, sent, self.tick);
                    let request = (record.session, grant.request_id, record.scope.clone());
                    let first_sent = self.first_sent.get(&request).copied().unwrap_or(sent);
                    self.answered_ever.push(Acquired {
                        sent: first_sent,
                        ..record.clone()
                    });
                    self.answered.push(record);
                }
            }
            Outcome::Revoked { .. } => self.coverage.revoked += 1,
            Outcome::Expired { expired: true, .. } => self.coverage.expired += 1,
            Outcome::Expired { expired: false, .. }
            | Outcome::Closed { .. }
            | Outcome::Released { .. }
            | Outcome::KeyRegistered { .. }
            | Outcome::Waiting
            | Outcome::GrantedMany { .. }
            | Outcome::RefusedMany { .. }
            | Outcome::WaitCancelled { .. }
            | Outcome::WaitEnded { .. }
            | Outcome::DelayEnded { .. }
            | Outcome::Transferred { .. }
            | Outcome::RecordWritten { .. }
            | Outcome::Refused(_) => {}
        }
    }

    /// Every grant is told as an event, whatever brought it about.
    fn note_events(&mut self, events: &[Event]) {
        let incarnation = self.state.incarnation();
        for event in events {
            match event {
                Event::Grant(GrantEvent {
                    kind: GrantEventKind::Granted | GrantEventKind::Transferred,
                    scope,
                    epoch,
                    request_id,
                    who: Some((_, session)),
                    cursor,
                    ..
                }) => {
                    self.coverage.grants += 1;
                    self.tick += 1;
                    let record = Acquired {
                        scope: Scope::parse(scope).unwrap(),
                        incarnation,
                        epoch: *epoch,
                        session: *session,
                        request_id: *request_id,
                        sent: self.tick,
                        returned: self.tick,
                    };
                    self.clients.granted(Believed {
                        scope: record.scope.clone(),
                        session: *session,
                        epoch: *epoch,
                    });
                    self.committed_ever.push(Committed {
                        scope: record.scope.clone(),
                        incarnation,
                        epoch: *epoch,
                        session: *session,
                        request_id: *request_id,
                        position: self.state.position(&self.leadership, cursor.index, 0),
                    });
                    self.applied_ever.push(record);
                }
                Event::Grant(GrantEvent {
                    kind: GrantEventKind::Revoked,
                    scope,
                    epoch,
                    cursor,
                    ..
                }) => {
                    self.tick += 1;
                    let scope = Scope::parse(scope).unwrap();
                    let position = self.state.position(&self.leadership, cursor.index, 0);
                    let record = burnt(&self.state, scope, *epoch, position, self.tick);
                    self.applied_ever.push(record);
                }
                Event::WaitEnded {
                    end: WaitEnd::Granted,
                    ..
                } => self.coverage.handed_over += 1,
                Event::DelayEnded { .. } => self.coverage.delays += 1,
                _ => {}
            }
        }
    }

    fn save(&mut self) {
        self.saved = Some(Saved {
            state: self.state.clone(),
            index: self.index,
            committed: self.committed.len(),
            answered: self.answered.len(),
            entries: self.entries.len(),
            events: self.events.len(),
        });
    }

    /// All disks are rolled back, nobody is told, and clocks are sane: the next batch's time is
    /// later than any before.
    fn roll_back(&mut self) -> Result<(), Failure> {
        let Some(saved) = self.saved.take() else {
            return Ok(());
        };
        self.check_promises()?;
        self.coverage.rollbacks += 1;
        self.replica = saved.state.clone();
        self.state = saved.state;
        self.state.track_changes();
        self.shadow = Shadow::of(&self.state);
        self.not_written = Changes::default();
        self.index = saved.index;
        self.committed.truncate(saved.committed);
        self.answered.truncate(saved.answered);
        self.entries.truncate(saved.entries);
        self.events.truncate(saved.events);
        // Clocks are later than what was given, too: more than 1,024 handovers of one scope in a
        // millisecond happen here only, where time stands still at will.
        let highest = self
            .applied_ever
            .iter()
            .map(|record| record.epoch.get() >> 10)
            .max();
        let later = self.now_ms_ever.max(highest.unwrap_or(0)) + 1;
        self.wall_ms = self.wall_ms.max(later);
        // The first batch carries the clock before anything else happens, as a leader's does.
        let on_the_way = std::mem::take(&mut self.on_the_way);
        self.batch()?;
        self.on_the_way = on_the_way;
        Ok(())
    }

    fn rows_out_and_in(&mut self) -> Result<(), Failure> {
        let state = &self.state;
        let load = || {
            let mut loader = Loader::new(state.head())?;
            state
                .session_rows()
                .try_for_each(|row| loader.session(row))?;
            state.scope_rows().try_for_each(|row| loader.scope(row))?;
            state.spent_rows().try_for_each(|row| loader.spent(row))?;
            state.wait_rows().try_for_each(|row| loader.wait(row))?;
            state.record_rows().try_for_each(|row| loader.record(row))?;
            loader.finish()
        };
        match load() {
            Ok(loaded) if loaded == self.state && loaded.hash() == self.state.hash() => {
                self.not_written.merge(self.state.take_changes());
                // Goes on with the loaded one: a difference that equality does not see shows later.
                self.state = loaded;
                self.state.track_changes();
                Ok(())
            }
            Ok(_) | Err(_) => Err(Failure::Rows),
        }
    }

    /// Now and then one fails: the next one writes its changes too.
    fn checkpoint(&mut self) -> Result<(), Failure> {
        self.not_written.merge(self.state.take_changes());
        if self.random.one_in(4) {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.not_written);
        self.shadow.follow(&self.state, &changes);
        if self.shadow == Shadow::of(&self.state) {
            Ok(())
        } else {
            Err(Failure::Changes)
        }
    }

    fn check_promises(&self) -> Result<(), Failure> {
        unique_and_rising(&self.answered)?;
        unique_and_rising(&self.answered_ever)?;
        unique_and_rising(&self.applied_ever)?;
        committed_before_seen(&self.answered_ever, &self.committed_ever)?;
        exactly_one(&self.answered)?;
        provenance(&self.committed, &self.entries)?;
        first_come_first_served(&self.events)?;
        Ok(())
    }
}

/// A burnt epoch as a grant to nobody: no real grant may have it.
fn burnt(
    state: &State,
    scope: Scope,
    epoch: epoch_core::Epoch,
    position: Position,
    tick: u64,
) -> Acquired {
    Acquired {
        scope,
        incarnation: state.incarnation(),
        epoch,
        session: SessionId {
            open_id: OpenId(Uuid::nil()),
            index: position.index,
            offset: position.offset,
        },
        request_id: RequestId::new(EPOCH_EXCLUSIVE_MAX - 1).ok(),
        sent: tick,
        returned: tick,
    }
}
