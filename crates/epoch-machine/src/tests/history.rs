//! What the random run keeps of everything that happened, for the promises to judge.

use std::collections::BTreeMap;

use epoch_core::{EPOCH_EXCLUSIVE_MAX, OpenId, RequestId, Scope, SessionId};
use uuid::Uuid;

use crate::command::{Command, Entry};
use crate::event::{Event, GrantEvent, GrantEventKind};
use crate::outcome::Grant;
use crate::promise::{
    Acquired, AppliedEntry, Committed, Violation, committed_before_seen, exactly_one,
    first_come_first_served, provenance, unique_and_rising,
};
use crate::state::State;

/// A request of an acquire.
type Request = (SessionId, Option<RequestId>, Scope);

/// Lengths to go back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    committed: usize,
    answered: usize,
    entries: usize,
    events: usize,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// Counts everything that happens, for sent and returned.
    tick: u64,
    /// When each acquire was sent for the first time.
    first_sent: BTreeMap<Request, u64>,
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
    events: Vec<Event>,
}

impl History {
    /// When it was sent.
    pub(super) fn sent(&mut self, command: &Command) -> u64 {
        self.tick += 1;
        for request in requests(command) {
            self.first_sent.entry(request).or_insert(self.tick);
        }
        self.tick
    }

    /// Every grant is told as an event, whatever brought it about.
    pub(super) fn applied(
        &mut self,
        state: &State,
        entry: Entry,
        commands: usize,
        events: Vec<Event>,
    ) {
        let commands = u32::try_from(commands).unwrap();
        self.entries.push(AppliedEntry { entry, commands });
        for event in &events {
            if let Event::Grant(grant) = event {
                self.grant(state, grant);
            }
        }
        self.events.extend(events);
        self.tick += 1;
    }

    fn grant(&mut self, state: &State, event: &GrantEvent) {
        self.tick += 1;
        let scope = Scope::parse(&event.scope).unwrap();
        let (session, request_id) = match (event.kind, &event.who) {
            (GrantEventKind::Granted | GrantEventKind::Transferred, Some((_, session))) => {
                (*session, event.request_id)
            }
            // A burnt epoch as a grant to nobody: no real grant may have it.
            (GrantEventKind::Revoked, _) => (
                SessionId {
                    open_id: OpenId(Uuid::nil()),
                    index: event.cursor.index,
                    offset: event.cursor.offset,
                },
                RequestId::new(EPOCH_EXCLUSIVE_MAX - 1).ok(),
            ),
            _ => return,
        };
        let record = Acquired {
            scope,
            incarnation: state.incarnation(),
            epoch: event.epoch,
            session,
            request_id,
            sent: self.tick,
            returned: self.tick,
        };
        if event.kind != GrantEventKind::Revoked {
            self.commit(state, &record);
        }
        self.applied_ever.push(record);
    }

    fn commit(&mut self, state: &State, record: &Acquired) {
        let held = state.scope(&record.scope, 0).held;
        let current = held.filter(|held| held.epoch == record.epoch);
        // One that has ended in the same entry says no more where it stands.
        let position = current.map_or(
            epoch_core::Position {
                group: 0,
                term: 0,
                leader: 0,
                index: 0,
                offset: 0,
            },
            |held| held.position,
        );
        let committed = Committed {
            scope: record.scope.clone(),
            incarnation: record.incarnation,
            epoch: record.epoch,
            session: record.session,
            request_id: record.request_id,
            position,
        };
        if position.term > 0 {
            self.committed.push(committed.clone());
        }
        self.committed_ever.push(committed);
    }

    /// A grant that was answered. An answer that its caller missed counts for where it stands.
    pub(super) fn granted(&mut self, state: &State, sent: u64, grant: &Grant, missed: bool) {
        let incarnation = state.incarnation();
        // Of an earlier entry, it may be of an earlier leadership too: it stands where it stood.
        self.committed.push(Committed::new(grant, incarnation));
        if missed {
            return;
        }
        self.tick += 1;
        let record = Acquired::new(grant, incarnation, sent, self.tick);
        let request = (record.session, record.request_id, record.scope.clone());
        let first_sent = self.first_sent.get(&request).copied().unwrap_or(sent);
        self.answered_ever.push(Acquired {
            sent: first_sent,
            ..record.clone()
        });
        self.answered.push(record);
    }

    pub(super) fn lengths(&self) -> Lengths {
        Lengths {
            committed: self.committed.len(),
            answered: self.answered.len(),
            entries: self.entries.len(),
            events: self.events.len(),
        }
    }

    /// What happened since is undone.
    pub(super) fn roll_back(&mut self, lengths: Lengths) {
        self.committed.truncate(lengths.committed);
        self.answered.truncate(lengths.answered);
        self.entries.truncate(lengths.entries);
        self.events.truncate(lengths.events);
    }

    /// The latest time that was given in an epoch, of all lives.
    pub(super) fn highest_ms(&self) -> u64 {
        let times = self.applied_ever.iter();
        let highest = times.map(|record| record.epoch.get() >> 10).max();
        highest.unwrap_or(0)
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        unique_and_rising(&self.answered)?;
        unique_and_rising(&self.answered_ever)?;
        unique_and_rising(&self.applied_ever)?;
        committed_before_seen(&self.answered_ever, &self.committed_ever)?;
        exactly_one(&self.answered)?;
        provenance(&self.committed, &self.entries)?;
        first_come_first_served(&self.events)
    }
}

fn requests(command: &Command) -> Vec<Request> {
    match command {
        Command::Acquire {
            scope,
            session,
            request_id,
            ..
        } => vec![(*session, Some(*request_id), scope.clone())],
        Command::AcquireMany {
            scopes,
            session,
            request_id,
            ..
        } => (request_id.get()..)
            .zip(scopes.iter())
            .map(|(id, scope)| (*session, RequestId::new(id).ok(), scope.clone()))
            .collect(),
        _ => Vec::new(),
    }
}
