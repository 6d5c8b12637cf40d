//! A cluster as far as sessions see it: the real leases and state machine, and around them a
//! leader that changes, nodes that pause, and a log that takes its time.

use std::time::Duration;

use epoch_core::{ClusterId, Holder, Incarnation, OpenId, Reason, RequestId, Scope, SessionId};
use epoch_machine::{
    Applied, Batch, Command, Entry, Event, GrantEventKind, Leadership, Outcome, SessionKey, State,
    Terms, Ttl, Wait, apply,
};
use rand::RngExt as _;
use rand::rngs::StdRng;
use uuid::Uuid;

use super::Plant;
use super::history::DRIFT_PPM_MAX;
use super::world::{Answer, Ask, Call, Served, World};
use crate::node::leases::{Leases, RenewError, Renewal};

/// As in the leader's clockwork.
const TICK_MS: u64 = 50;
const GAP_MAX: Duration = Duration::from_millis(250);
/// Keepalives share leadership checks so far apart at most.
pub(super) const CHECK_MS: u64 = 100;
/// By so much a planted leader counts too early.
const TOO_EARLY: Duration = Duration::from_millis(700);
const DAY_MS: u64 = 24 * 3_600 * 1_000;

pub(super) struct Node {
    leases: Leases,
    serving: Option<Leadership>,
    paused_until_ms: u64,
    /// Each machine was booted at another time, and its clock has a speed of its own.
    booted_ms: u64,
    drift_ppm: u64,
}

impl Node {
    pub(super) fn boot(random: &mut StdRng) -> Self {
        Self {
            leases: Leases::default(),
            serving: None,
            paused_until_ms: 0,
            booted_ms: random.random_range(10_000..10_000_000),
            drift_ppm: random.random_range(0..=DRIFT_PPM_MAX),
        }
    }
}

/// The state of a cluster without sessions.
pub(super) fn empty() -> State {
    let cluster = ClusterId(Uuid::from_u128(1));
    State::new(cluster, Incarnation(Uuid::from_u128(2)), 0)
}

/// Something that happens at a time.
pub(super) enum Step {
    Elect(u64),
    Depose(Leadership),
    /// A node does something, once it is not paused.
    At(usize, Act),
    /// A quorum answers a leadership check for a keepalive that had arrived.
    Check(Call, Leadership, Duration),
    /// A proposal is committed, or not.
    Open(Call, Leadership, Duration),
    Expire(Leadership, Vec<SessionKey>),
    /// Somebody closes a session.
    Close,
    Arrive(Call),
    Deliver(Call, Answer),
}

pub(super) enum Act {
    TakeUp(Leadership),
    GiveUp(Leadership),
    Pause,
    Tick,
    Note(Vec<Event>),
    Told(Leadership, Vec<SessionKey>, bool),
    Serve(Call),
    Renew(Call, Leadership, Duration, bool),
    Opened(Call, SessionId, Leadership, Duration),
}

impl World {
    /// Whoever waits for the scopes is there from the beginning.
    pub(super) fn begin(&mut self) {
        self.leading = Some(Leadership { term: 0, node: 0 });
        self.commit(
            Leadership { term: 0, node: 0 },
            open(OpenId(Uuid::from_u128(3)), DAY_MS, None),
        );
        self.leading = None;
        self.plan(0, Step::Elect(1));
        for node in 0..self.nodes.len() {
            self.plan(TICK_MS, Step::At(node, Act::Tick));
            if self.weather.node_pause_ms_max > 0 {
                let in_ms = self.draw(20_000);
                self.plan(in_ms, Step::At(node, Act::Pause));
            }
        }
        if let Some(close_ms) = self.weather.close_ms {
            self.plan_at(close_ms, Step::Close);
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Elect(term) => self.elect(term),
            Step::Depose(leadership) => self.depose(leadership),
            Step::At(node, act) => match self.nodes[node].paused_until_ms {
                until_ms if until_ms > self.now_ms => self.plan_at(until_ms, Step::At(node, act)),
                _ => self.act(node, act),
            },
            Step::Check(call, leadership, arrived) => {
                let confirmed = self.leading == Some(leadership) && !self.rarely();
                let confirmed = confirmed || self.plant == Plant::StaleLeader;
                let act = Act::Renew(call, leadership, arrived, confirmed);
                self.plan(0, Step::At(index(leadership), act));
            }
            Step::Open(call, leadership, arrived) => self.open(call, leadership, arrived),
            Step::Expire(leadership, sessions) => self.expire(leadership, sessions),
            Step::Close => self.close(),
            Step::Arrive(call) => self.step(Step::At(call.node, Act::Serve(call))),
            Step::Deliver(call, answer) => self.deliver(call, answer),
        }
    }

    fn act(&mut self, node: usize, act: Act) {
        let now = self.clock(node);
        match act {
            Act::TakeUp(leadership) => self.take_up(leadership, now),
            Act::GiveUp(leadership) => {
                let node = &mut self.nodes[node];
                if node.serving == Some(leadership) {
                    node.serving = None;
                    node.leases.end();
                }
            }
            Act::Pause => {
                let pause_ms = self.draw(self.weather.node_pause_ms_max);
                self.nodes[node].paused_until_ms = self.now_ms + pause_ms;
                let in_ms = self.draw(20_000);
                self.plan(in_ms, Step::At(node, Act::Pause));
            }
            Act::Tick => self.tick(node, now),
            Act::Note(events) => {
                let leases = &mut self.nodes[node].leases;
                events.iter().for_each(|event| leases.note(event, now));
            }
            Act::Told(leadership, sessions, done) => {
                let leases = &mut self.nodes[node].leases;
                match done {
                    true => sessions.into_iter().for_each(|one| leases.ended(one)),
                    false => leases.expire_failed(leadership, &sessions),
                }
            }
            Act::Serve(call) => self.serve(node, call, now),
            Act::Renew(call, leadership, arrived, confirmed) => {
                let Ask::KeepAlive { id, progress } = call.ask else {
                    return;
                };
                let renewed = match confirmed {
                    true => self.renew(node, (id, progress), leadership, arrived, call.arrived_ms),
                    false => Err(Reason::NoQuorum),
                };
                self.reply(call, renewed.map(Served::Renewed));
            }
            Act::Opened(call, id, leadership, arrived) => {
                let asked = (id, None);
                let renewed = self.renew(node, asked, leadership, arrived, call.arrived_ms);
                self.reply(call, renewed.map(|ttl| Served::Opened(id, ttl)));
            }
        }
    }

    /// A node's lease clock.
    fn clock(&self, node: usize) -> Duration {
        let node = &self.nodes[node];
        let micros = (node.booted_ms + self.now_ms) * 1_000;
        Duration::from_micros(micros + self.now_ms * node.drift_ppm / 1_000)
    }

    fn elect(&mut self, term: u64) {
        let nodes = u64::try_from(self.nodes.len()).unwrap();
        let node = self.draw(nodes - 1);
        let leadership = Leadership { term, node };
        self.leading = Some(leadership);
        self.history.elections += 1;
        let in_ms = self.draw(50);
        self.plan(in_ms, Step::At(index(leadership), Act::TakeUp(leadership)));
        let reign_ms = self.weather.reign_ms_min + self.draw(15_000);
        self.plan(reign_ms, Step::Depose(leadership));
    }

    /// It takes the leader a while to learn of it, often longer than the election of the next.
    fn depose(&mut self, leadership: Leadership) {
        self.leading = None;
        let in_ms = self.draw(self.weather.election_ms_max);
        self.plan(in_ms, Step::Elect(leadership.term + 1));
        let in_ms = self.draw(3 * self.weather.election_ms_max);
        self.plan(in_ms, Step::At(index(leadership), Act::GiveUp(leadership)));
    }

    fn take_up(&mut self, leadership: Leadership, now: Duration) {
        if self.commit(leadership, Vec::new()).is_none() {
            return;
        }
        let hasty = self.plant == Plant::HastyLeader;
        let given = |ttl: Ttl| match hasty {
            true => Ttl::from_ms((ttl.ms() / 3).max(1_000)).unwrap(),
            false => ttl,
        };
        let sessions = self.state.sessions();
        let sessions = sessions.map(|(key, session)| (key, given(session.ttl)));
        let node = &mut self.nodes[index(leadership)];
        node.leases.begin(leadership, now, sessions);
        node.serving = Some(leadership);
    }

    fn tick(&mut self, node: usize, now: Duration) {
        self.plan(TICK_MS, Step::At(node, Act::Tick));
        let Some(leadership) = self.nodes[node].serving else {
            return;
        };
        let due = self.nodes[node].leases.tick(now, GAP_MAX);
        if !due.is_empty() {
            let in_ms = self.draw(self.weather.log_ms_max);
            self.plan(in_ms, Step::Expire(leadership, due));
        }
    }

    /// Puts a batch into the log of whoever leads: void unless that is who proposed it.
    fn commit(&mut self, leadership: Leadership, commands: Vec<Command>) -> Option<Applied> {
        let entry = Entry {
            leadership: self.leading?,
            index: self.log_index + 1,
        };
        let batch = Batch {
            leadership,
            wall_ms: 1_800_000_000_000 + self.now_ms,
            commands,
        };
        let applied = apply(&mut self.state, entry, &batch).ok()?;
        self.log_index = entry.index;
        for event in &applied.events {
            if let Event::Grant(grant) = event
                && grant.kind == GrantEventKind::Granted
                && let Some((_, id)) = &grant.who
            {
                self.history.granted(&grant.scope, *id, self.now_ms);
            }
        }
        for node in 0..self.nodes.len() {
            let events = applied.events.clone();
            self.plan(1, Step::At(node, Act::Note(events)));
        }
        Some(applied)
    }

    /// Proposes expiries, under the leadership whose leases ran out.
    fn expire(&mut self, leadership: Leadership, sessions: Vec<SessionKey>) {
        let (fails, is_told) = (self.rarely(), !self.rarely());
        let expire = |session: &SessionKey| Command::Expire { session: *session };
        let commands = sessions.iter().map(expire).collect();
        let done = !fails && self.commit(leadership, commands).is_some();
        let in_ms = self.draw(20);
        let told = Act::Told(leadership, sessions, done && is_told);
        self.plan(in_ms, Step::At(index(leadership), told));
    }

    /// Somebody who knows the id of a session closes it.
    fn close(&mut self) {
        let Some((leadership, id)) = self.leading.zip(self.history.any()) else {
            return;
        };
        self.history.closed(id);
        self.commit(leadership, vec![Command::Close { session: id }]);
    }

    /// A session, and at once a scope for it that another waits for.
    fn open(&mut self, call: Call, leadership: Leadership, arrived: Duration) {
        let Ask::Open {
            open_id,
            ttl,
            stall_limit,
        } = &call.ask
        else {
            return;
        };
        // Not the client's random one, so that a run depends on its seed alone.
        let number = u64::try_from(self.open_ids.len()).unwrap() + 1;
        let drawn = Uuid::from_u64_pair(number * 7_919, number);
        let open_id = *self
            .open_ids
            .entry(open_id.clone())
            .or_insert(OpenId(drawn));
        let commands = open(open_id, ttl.ms(), stall_limit.map(|limit| limit.ms()));
        let applied = self.commit(leadership, commands);
        let outcome = applied.and_then(|applied| applied.outcomes.into_iter().next());
        let Some(Outcome::Opened {
            session, ttl, new, ..
        }) = outcome
        else {
            return self.reply(call, Err(Reason::NoQuorum));
        };
        if new {
            let rival = OpenId(Uuid::from_u128(3));
            let rival = SessionKey {
                index: 1,
                offset: 0,
            }
            .with(rival);
            let scope = format!("tasks/{}", session.index);
            self.history.holds(session, &scope, ttl.ms(), self.now_ms);
            let commands = vec![
                acquire(&scope, session, 1, 0),
                acquire(&scope, rival, session.index, DAY_MS),
            ];
            self.commit(leadership, commands);
        }
        // After the node has taken note of it.
        let opened = Act::Opened(call, session, leadership, arrived);
        self.plan(1, Step::At(index(leadership), opened));
    }

    /// A request has arrived at a node.
    fn serve(&mut self, node: usize, mut call: Call, now: Duration) {
        if let Ask::Stream = call.ask {
            return self.reply(call, Ok(Served::Stream));
        }
        let Some(leadership) = self.nodes[node].serving else {
            return match self.serving().map(index) {
                Some(leader) if self.weather.forwards => {
                    call.node = leader;
                    let in_ms = self.draw(20);
                    self.plan(in_ms, Step::Arrive(call));
                }
                Some(_) | None => self.reply(call, Err(Reason::NoLeader)),
            };
        };
        call.arrived_ms = self.now_ms;
        match call.ask {
            Ask::KeepAlive { .. } => {
                let in_ms = self.draw(CHECK_MS);
                self.plan(in_ms, Step::Check(call, leadership, now));
            }
            Ask::Open { .. } | Ask::Stream => {
                let in_ms = self.draw(self.weather.log_ms_max);
                self.plan(in_ms, Step::Open(call, leadership, now));
            }
        }
    }

    /// As the API does it.
    fn renew(
        &mut self,
        node: usize,
        (id, progress): (SessionId, Option<u64>),
        leadership: Leadership,
        arrived: Duration,
        arrived_ms: u64,
    ) -> Result<Ttl, Reason> {
        let state = self.state.session(&id).ok_or(Reason::SessionExpired)?;
        let early = match self.plant {
            Plant::ServerCountsEarly => TOO_EARLY,
            _ => Duration::ZERO,
        };
        let renewal = Renewal {
            ttl: state.ttl,
            stall_limit: state.stall_limit,
            progress,
            arrived: arrived - early,
        };
        let leases = &mut self.nodes[node].leases;
        match leases.renew(leadership, SessionKey::from(&id), renewal) {
            Ok(()) => {
                self.history.renewed(id, arrived_ms);
                Ok(renewal.ttl)
            }
            Err(RenewError::NotLeader) => Err(Reason::NoLeader),
            Err(RenewError::Expiring) => Err(Reason::NoQuorum),
            Err(RenewError::Stalled) => Err(Reason::SessionStalled),
        }
    }

    /// Who serves and leads, as every node knows.
    pub(super) fn serving(&self) -> Option<Leadership> {
        let leading = self.leading?;
        let serving = self.nodes[index(leading)].serving;
        serving.filter(|serving| *serving == leading)
    }
}

/// Nodes count from 0 in these runs.
fn index(leadership: Leadership) -> usize {
    usize::try_from(leadership.node).unwrap()
}

fn open(open_id: OpenId, ttl_ms: u64, stall_limit_ms: Option<u64>) -> Vec<Command> {
    let ttl = |ms| Ttl::from_ms(ms).unwrap();
    vec![Command::Open {
        open_id,
        holder: "agent".parse::<Holder>().unwrap(),
        ttl: ttl(ttl_ms),
        stall_limit: stall_limit_ms.map(ttl),
        principal: None,
        holder_key: None,
    }]
}

fn acquire(scope: &str, session: SessionId, request_id: u64, wait_ms: u64) -> Command {
    Command::Acquire {
        scope: scope.parse::<Scope>().unwrap(),
        session,
        request_id: RequestId::new(request_id).unwrap(),
        terms: Terms::default(),
        wait: Wait::from_ms(wait_ms).unwrap(),
        reissue: false,
    }
}
