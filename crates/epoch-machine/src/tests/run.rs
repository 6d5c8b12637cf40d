//! The machine driven by random commands, with all promises checked over what came of it.

use epoch_core::{ClusterId, Epoch, Incarnation};
use uuid::Uuid;

use super::hash::hash_of_rows;
use super::history::{History, Lengths};
use super::keys::newcomers_believe;
use super::load::reloaded;
use super::permitted::Permitted;
use super::promises::{Coverage, Failure};
use super::random::{Clients, Random};
use super::shadow::Shadow;
use super::told::Told;
use super::trusted::Trusted;
use super::writes::Writes;
use crate::admin::AdminRow;
use crate::changes::Changes;
use crate::command::{Batch, Command, Entry, Leadership};
use crate::event::{Event, GrantEventKind};
use crate::load::{ScopeRow, StandingRow};
use crate::outcome::{Applied, ForeignLeadership, Outcome};
use crate::promise::consistent;
use crate::state::State;
use crate::terms::LockDelay;

/// What is under test: `apply`, or `apply` with a bug planted around it.
pub(super) type Apply = fn(&mut State, Entry, &Batch) -> Result<Applied, ForeignLeadership>;

const WALL_MS_FIRST: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// A command on its way.
struct Proposal {
    sent: u64,
    command: Command,
}

/// What to go back to.
struct Saved {
    state: State,
    index: u64,
    lengths: Lengths,
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
    now_ms_ever: u64,
    on_the_way: Vec<Proposal>,
    history: History,
    saved: Option<Saved>,
    /// Follows the state by its changes alone.
    shadow: Shadow,
    /// Follows it by events alone.
    told: Told,
    /// Follows its records by answers alone.
    writes: Writes,
    /// Follows who may do what by answers alone.
    permitted: Permitted,
    /// Follows whose signing keys count by answers alone.
    trusted: Trusted,
    /// Of checkpoints that failed since the last one that did not.
    not_written: Changes,
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
        let mut random = Random::new(seed);
        Self {
            apply,
            clients: Clients::new(&mut random),
            random,
            replica,
            state,
            index: 0,
            leadership: Leadership { term: 1, node: 1 },
            wall_ms: WALL_MS_FIRST,
            now_ms_ever: 0,
            on_the_way: Vec::new(),
            history: History::default(),
            saved: None,
            shadow: Shadow::default(),
            told: Told::default(),
            writes: Writes::default(),
            permitted: Permitted::default(),
            trusted: Trusted::default(),
            not_written: Changes::default(),
            coverage: Coverage::default(),
        }
    }

    pub(super) fn with_busy_operators(seed: u64, apply: Apply) -> Self {
        Self {
            clients: Clients::with_busy_operators(),
            ..Self::new(seed, apply)
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
                let command = self
                    .clients
                    .command(&mut self.random, &self.state, self.wall_ms);
                let sent = self.history.sent(&command);
                self.on_the_way.push(Proposal { sent, command });
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
        self.history.check()?;
        Ok(self.coverage)
    }

    fn pass_time(&mut self) {
        let on = match self.random.below(1_000) {
            0 => 8 * DAY_MS,
            1..6 => self.random.below(3_600_000),
            6..200 => 1,
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

    fn next_entry(&mut self) -> Entry {
        self.index += 1;
        Entry {
            leadership: self.leadership,
            index: self.index,
        }
    }

    /// A batch that was queued under another leadership: nothing happens, and its callers ask
    /// again.
    fn foreign_batch(&mut self) -> Result<(), Failure> {
        let (mut batch, sent) = self.take_batch();
        batch.leadership.node += 1;
        batch.wall_ms += 1_000;
        let entry = self.next_entry();
        let before = self.state.clone();
        let result = (self.apply)(&mut self.state, entry, &batch);
        if result != Err(ForeignLeadership) || self.state != before {
            return Err(Failure::Foreign(batch));
        }
        self.coverage.count("foreign batches");
        for (sent, command) in sent.into_iter().zip(batch.commands) {
            self.on_the_way.push(Proposal { sent, command });
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<(), Failure> {
        let (batch, sent) = self.take_batch();
        let entry = self.next_entry();
        let before = self.state.clone();
        let applied = (self.apply)(&mut self.state, entry, &batch);
        let on_replica = (self.apply)(&mut self.replica, entry, &batch);
        if applied != on_replica
            || self.state.hash() != self.replica.hash()
            || (self.random.one_in(20) && self.state != self.replica)
        {
            return Err(Failure::Replicas(batch));
        }
        let Ok(applied) = applied else {
            return Err(Failure::Replicas(batch));
        };
        if self.state.now_ms() < before.now_ms() {
            return Err(Failure::Time);
        }
        self.refused_changed_nothing(&before, entry, &batch, &applied)?;
        self.trust_is_as_it_may_be(&before, &batch, &applied.outcomes)?;
        let Applied { outcomes, events } = applied;
        self.events_tell_the_truth(&before, entry, &events)?;
        let done: Vec<_> = batch.commands.into_iter().zip(outcomes).collect();
        self.permitted
            .follow(&before, &self.state, &done)
            .map_err(Failure::Permitted)?;
        if operator_actions(&before, &self.state) != Some(of_operators(&done)) {
            return Err(Failure::Audit);
        }
        self.writes
            .follow(&before, &self.state, &done, &events)
            .map_err(Failure::Record)?;

        self.now_ms_ever = self.now_ms_ever.max(self.state.now_ms());
        self.coverage.events(&events);
        self.clients.told(&events);
        self.history.applied(&self.state, entry, done.len(), events);
        for (sent, (command, outcome)) in sent.into_iter().zip(done) {
            self.coverage.outcome(&outcome);
            self.answer(sent, command, &outcome);
        }
        Ok(())
    }

    fn trust_is_as_it_may_be(
        &mut self,
        before: &State,
        batch: &Batch,
        outcomes: &[Outcome],
    ) -> Result<(), Failure> {
        let followed = self.trusted.follow(&self.state, batch, outcomes);
        followed.map_err(Failure::Trusted)?;
        let (Some(old), Some(new)) = (before.bundle(), self.state.bundle()) else {
            return Ok(());
        };
        if old == new {
            return Ok(());
        }
        if !new.names_signer(new.bundle().terms().root.id()) {
            self.coverage.count("bundles by nodes");
            let mut kids = new.bundle().keys().iter().map(|key| key.key.id());
            if kids.any(|kid| old.bundle().find(kid).is_none()) {
                self.coverage.count("keys brought in by nodes");
            }
        }
        newcomers_believe(&self.state).map_err(Failure::Trusted)
    }

    fn events_tell_the_truth(
        &mut self,
        before: &State,
        entry: Entry,
        events: &[Event],
    ) -> Result<(), Failure> {
        let followed = self.told.follow(entry, self.state.now_ms(), events);
        followed.map_err(Failure::Told)?;
        if self.told != Told::of(&self.state) {
            return Err(Failure::Told(format!("{:?} was told", self.told)));
        }
        for (at, event) in events.iter().enumerate() {
            if let Event::Grant(lost) = event
                && lost.kind == GrantEventKind::Expired
                && let Some((epoch, delay)) = delay_asked_for(before, &lost.scope)
                && epoch == lost.epoch
                && !delay.is_zero()
                && !matches!(events.get(at + 1), Some(Event::DelayBegun { .. }))
            {
                return Err(Failure::Told(format!("no delay after {lost:?}")));
            }
        }
        Ok(())
    }

    fn refused_changed_nothing(
        &mut self,
        before: &State,
        entry: Entry,
        batch: &Batch,
        applied: &Applied,
    ) -> Result<(), Failure> {
        if !applied.outcomes.iter().all(is_of_no_effect) {
            return Ok(());
        }
        // A wait that is new is told of.
        let waiting = |outcome: &Outcome| *outcome == Outcome::Waiting;
        if !applied.events.is_empty() {
            return if applied.outcomes.iter().any(waiting) {
                Ok(())
            } else {
                Err(Failure::Refused(batch.clone()))
            };
        }
        let mut expected = before.clone();
        let empty = Batch {
            commands: Vec::new(),
            ..batch.clone()
        };
        let applied_empty = (self.apply)(&mut expected, entry, &empty);
        let same = if batch.commands.iter().any(is_of_operators) {
            without_audit(&expected) == without_audit(&self.state)
        } else {
            expected == self.state
        };
        if applied_empty.is_err() || !same {
            return Err(Failure::Refused(batch.clone()));
        }
        if applied.outcomes.iter().any(waiting) {
            self.coverage.count("waiting again");
        }
        Ok(())
    }

    /// Clients learn what came of their calls, unless the answer is lost.
    fn answer(&mut self, sent: u64, command: Command, outcome: &Outcome) {
        let missed = self.random.one_in(6);
        match outcome {
            Outcome::Granted { grant, .. } => {
                self.history.granted(&self.state, sent, grant, missed);
            }
            Outcome::GrantedMany { grants, .. } => {
                for grant in grants {
                    self.history.granted(&self.state, sent, grant, missed);
                }
            }
            _ => {}
        }
        self.clients.answered(command, outcome, missed);
    }

    fn save(&mut self) {
        self.saved = Some(Saved {
            state: self.state.clone(),
            index: self.index,
            lengths: self.history.lengths(),
        });
    }

    /// All disks are rolled back, nobody is told, and clocks are sane: the next batch's time is
    /// later than any before.
    fn roll_back(&mut self) -> Result<(), Failure> {
        let Some(saved) = self.saved.take() else {
            return Ok(());
        };
        self.history.check()?;
        self.coverage.count("rollbacks");
        self.replica = saved.state.clone();
        self.state = saved.state;
        self.state.track_changes();
        self.shadow = Shadow::of(&self.state);
        self.told = Told::of(&self.state);
        self.writes = Writes::of(&self.state);
        self.permitted = Permitted::of(&self.state);
        self.trusted = Trusted::of(&self.state);
        self.not_written = Changes::default();
        self.index = saved.index;
        self.history.roll_back(saved.lengths);
        // Clocks are later than what was given, too: more than 1,024 handovers of one scope in a
        // millisecond happen here only, where time stands still at will.
        let later = self.now_ms_ever.max(self.history.highest_ms()) + 1;
        self.wall_ms = self.wall_ms.max(later);
        // The first batch carries the clock before anything else happens, as a leader's does.
        let on_the_way = std::mem::take(&mut self.on_the_way);
        self.batch()?;
        self.on_the_way = on_the_way;
        Ok(())
    }

    fn rows_out_and_in(&mut self) -> Result<(), Failure> {
        match reloaded(&self.state) {
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
}

/// The state without the records of what operators did, which are kept of refused commands too.
pub(super) fn without_audit(state: &State) -> State {
    let mut state = state.clone();
    for row in state.clone().admin_rows() {
        if matches!(row, AdminRow::Audit(_)) {
            state.rows.remove_admin(&row.key());
        }
    }
    state
}

/// How many actions of operators were recorded between two states; `None` if it makes no sense.
fn operator_actions(before: &State, after: &State) -> Option<usize> {
    let newest = |state: &State| state.audit_numbers().map_or(0, |(_, newest)| newest);
    let more = newest(after).checked_sub(newest(before))?;
    usize::try_from(more).ok()
}

fn of_operators(done: &[(Command, Outcome)]) -> usize {
    let commands = done.iter().map(|(command, _)| command);
    commands.filter(|command| is_of_operators(command)).count()
}

fn is_of_operators(command: &Command) -> bool {
    if let Command::PutBundle { bundle, .. } = command {
        return bundle.names_signer(bundle.bundle().terms().root.id());
    }
    matches!(
        command,
        Command::Revoke { .. }
            | Command::GrantPermission { .. }
            | Command::RevokePermission { .. }
            | Command::AddToken { .. }
            | Command::RemoveToken { .. }
            | Command::SetLimits { .. }
            | Command::RotateKeys { .. }
            | Command::RetireKey { .. }
            | Command::PutStatement { .. }
    )
}

/// Of a scope's current grant: its epoch, and the delay once it is lost.
fn delay_asked_for(state: &State, name: &str) -> Option<(Epoch, LockDelay)> {
    match state.scope_row(name)? {
        ScopeRow {
            epoch,
            standing: StandingRow::Held(held),
            ..
        } => Some((epoch, held.terms.lock_delay)),
        ScopeRow { .. } => None,
    }
}

/// Whether a command that came to this changed nothing, unless a wait has begun.
fn is_of_no_effect(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Refused(_)
            | Outcome::RefusedMany { .. }
            | Outcome::Waiting
            | Outcome::Granted { new: false, .. }
            | Outcome::GrantedMany { new: false, .. }
            | Outcome::Transferred { new: false, .. }
            | Outcome::RecordWritten { replayed: true, .. }
            | Outcome::WaitCancelled {
                granted: Some(_),
                ..
            }
            | Outcome::WaitEnded { ended: false }
            | Outcome::DelayEnded { ended: false }
            | Outcome::Released { released: false }
            | Outcome::PermissionRevoked { revoked: false }
            | Outcome::TokenAdded { new: false }
            | Outcome::TokenRemoved { removed: false }
            | Outcome::KeyRetired { retired: false }
            | Outcome::Closed { closed: false, .. }
            | Outcome::Expired { expired: false, .. }
    )
}
