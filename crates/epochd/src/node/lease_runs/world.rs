//! Time, the network between client and nodes, and what happens when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epoch_core::{Reason, SessionId};
use epoch_machine::{State, Ttl};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::cluster::{Node, Step};
use super::history::History;
use super::weather::{CutKind, Direction, Pause, Weather};
use super::{Plant, RUN_MS};

/// True time. The runtime's clock is the client's `Instant`; what the client is suspended for is
/// added to it.
pub(super) struct Time {
    begun: Instant,
    suspended_ms: AtomicU64,
}

impl Time {
    /// Milliseconds of the run.
    pub(super) fn now_ms(&self) -> u64 {
        self.awake_ms() + self.suspended_ms.load(Ordering::Relaxed)
    }

    /// Without those in which the client was suspended.
    pub(super) fn awake_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap()
    }

    pub(super) fn at(&self, ms: u64) -> Instant {
        let awake_ms = ms.saturating_sub(self.suspended_ms.load(Ordering::Relaxed));
        self.begun + Duration::from_millis(awake_ms)
    }

    /// Sets the time while the runtime's clock stands still.
    fn set(&self, ms: u64) {
        self.suspended_ms
            .store(ms - self.awake_ms(), Ordering::Relaxed);
    }
}

/// What a client asks of a node.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// Begins a stream of keepalives.
    Stream,
    Open {
        open_id: String,
        ttl: Ttl,
        stall_limit: Option<Ttl>,
    },
    KeepAlive {
        id: SessionId,
        progress: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Served {
    Stream,
    Opened(SessionId, Ttl),
    Renewed(Ttl),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum NotServed {
    Refused(Reason),
    /// The connection broke.
    Broken,
}

/// What a client gets, with the node that leads as the answering one knows.
pub(super) struct Answer {
    pub(super) result: Result<Served, NotServed>,
    pub(super) leader: Option<usize>,
}

type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A request on its way.
pub(super) struct Call {
    /// The node that the client asked, and the one that deals with it.
    via: usize,
    pub(super) node: usize,
    sent_ms: u64,
    /// When it arrived at the leader.
    pub(super) arrived_ms: u64,
    pub(super) ask: Ask,
    reply: Reply,
}

pub(super) struct World {
    pub(super) weather: Weather,
    pub(super) plant: Plant,
    pub(super) random: StdRng,
    pub(super) now_ms: u64,
    /// By time, and then in the order in which they were planned.
    steps: BTreeMap<(u64, u64), Step>,
    planned: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) state: State,
    /// Whom a quorum follows.
    pub(super) leading: Option<epoch_machine::Leadership>,
    pub(super) log_index: u64,
    pub(super) open_ids: BTreeMap<String, epoch_core::OpenId>,
    pub(super) history: History,
}

impl World {
    pub(super) fn new(mut random: StdRng, weather: Weather, plant: Plant) -> Self {
        let nodes = (0..weather.nodes)
            .map(|_| Node::boot(&mut random))
            .collect();
        let mut world = Self {
            weather,
            plant,
            random,
            now_ms: 0,
            steps: BTreeMap::new(),
            planned: 0,
            nodes,
            state: super::cluster::empty(),
            leading: None,
            log_index: 0,
            open_ids: BTreeMap::new(),
            history: History::default(),
        };
        world.begin();
        world
    }

    pub(super) fn draw(&mut self, up_to: u64) -> u64 {
        self.random.random_range(0..=up_to)
    }

    /// In a storm, now and then.
    pub(super) fn rarely(&mut self) -> bool {
        self.one_in(self.weather.one_in)
    }

    fn one_in(&mut self, count: Option<u64>) -> bool {
        count.is_some_and(|count| self.draw(count - 1) == 0)
    }

    pub(super) fn plan(&mut self, in_ms: u64, step: Step) {
        self.plan_at(self.now_ms + in_ms, step);
    }

    pub(super) fn plan_at(&mut self, at_ms: u64, step: Step) {
        self.planned += 1;
        self.steps.insert((at_ms, self.planned), step);
    }

    fn next_ms(&self) -> u64 {
        self.steps
            .first_key_value()
            .map_or(RUN_MS, |((ms, _), _)| *ms)
    }

    /// Does what has been planned until now.
    fn run(&mut self, now_ms: u64) {
        while self.next_ms() <= now_ms
            && let Some(((at_ms, _), step)) = self.steps.pop_first()
        {
            self.now_ms = self.now_ms.max(at_ms);
            self.step(step);
        }
        self.now_ms = now_ms;
    }

    /// The client is paused for as long; all others go on.
    fn pause(&mut self, pause: Pause, time: &Time) {
        let suspended_ms = time.suspended_ms.load(Ordering::Relaxed);
        self.history.pauses.push(pause);
        while self.next_ms() <= pause.until_ms {
            let at_ms = self.next_ms().max(self.now_ms);
            time.set(at_ms);
            self.run(at_ms);
        }
        time.set(pause.until_ms);
        self.run(pause.until_ms);
        if !pause.suspended {
            time.suspended_ms.store(suspended_ms, Ordering::Relaxed);
        }
    }

    /// When what is sent now arrives; the error is the time of the loss, if anybody hears of it.
    fn transit(&mut self, node: usize, direction: Direction) -> Result<u64, Option<u64>> {
        let (min_ms, max_ms) = (self.weather.delay_ms_min, self.weather.delay_ms_max);
        let mut arrives_ms = self.now_ms + min_ms + self.draw(max_ms - min_ms);
        if direction == Direction::ToClient && self.one_in(self.weather.late_one_in) {
            arrives_ms += self.draw(3_000);
        }
        if self.rarely() {
            if self.draw(1) == 0 {
                return Err(None);
            }
            arrives_ms += self.draw(5_000);
        }
        let mut result = Ok(arrives_ms);
        for cut in self.weather.cuts.iter().filter(|cut| cut.node == node) {
            let hit = cut.from_ms <= arrives_ms && self.now_ms < cut.until_ms;
            if !hit || cut.direction.is_some_and(|only| only != direction) {
                continue;
            }
            result = match (cut.kind, result) {
                (CutKind::Breaks, _) => return Err(Some(self.now_ms.max(cut.from_ms) + 1)),
                (CutKind::Loses, _) | (CutKind::Holds, Err(_)) => Err(None),
                (CutKind::Holds, Ok(held_ms)) => Ok(held_ms.max(cut.until_ms + 1)),
            };
        }
        result
    }

    /// The client sends a request to a node.
    fn send(&mut self, node: usize, ask: Ask, reply: Reply) {
        let call = Call {
            via: node,
            node,
            sent_ms: self.now_ms,
            arrived_ms: 0,
            ask,
            reply,
        };
        match self.transit(node, Direction::ToNode) {
            Ok(arrives_ms) => self.plan_at(arrives_ms, Step::Arrive(call)),
            Err(Some(at_ms)) => self.plan_at(at_ms, broken(call)),
            Err(None) => {}
        }
    }

    /// The answer leaves the node.
    pub(super) fn reply(&mut self, call: Call, result: Result<Served, Reason>) {
        let answer = Answer {
            result: result.map_err(NotServed::Refused),
            leader: self
                .serving()
                .and_then(|leader| leader.node.try_into().ok()),
        };
        match self.transit(call.via, Direction::ToClient) {
            Ok(arrives_ms) => self.plan_at(arrives_ms, Step::Deliver(call, answer)),
            Err(Some(at_ms)) => self.plan_at(at_ms, broken(call)),
            Err(None) => {}
        }
    }

    /// The answer gets to the client.
    pub(super) fn deliver(&mut self, call: Call, answer: Answer) {
        if let (Ask::KeepAlive { id, .. }, Ok(_)) = (&call.ask, &answer.result) {
            self.history.acknowledged(*id, call.sent_ms, self.now_ms);
        }
        (call.reply)(answer);
    }
}

fn broken(call: Call) -> Step {
    let result = Err(NotServed::Broken);
    Step::Deliver(
        call,
        Answer {
            result,
            leader: None,
        },
    )
}

/// The world and its clockwork.
pub(super) struct Shared {
    pub(super) time: Arc<Time>,
    world: Mutex<World>,
    asked: Notify,
    ended: Notify,
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self {
            time: Arc::new(Time {
                begun: Instant::now(),
                suspended_ms: AtomicU64::new(0),
            }),
            world: Mutex::new(world),
            asked: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.world.lock().unwrap())
    }

    /// A request leaves the client.
    pub(super) fn send(&self, node: usize, ask: Ask, reply: impl FnOnce(Answer) + Send + 'static) {
        self.with(|world| {
            world.run(self.time.now_ms());
            world.send(node, ask, Box::new(reply));
        });
        self.asked.notify_one();
    }

    /// Moves the world along with the runtime's clock, until the run ends.
    pub(super) async fn drive(self: Arc<Self>) {
        let pauses = self.with(|world| world.weather.pauses.clone());
        let mut pauses = pauses.into_iter().peekable();
        loop {
            let now_ms = self.time.now_ms();
            let next_ms = self.with(|world| {
                world.run(now_ms);
                world.next_ms()
            });
            if now_ms >= RUN_MS {
                self.ended.notify_one();
                return;
            }
            if let Some(pause) = pauses.next_if(|pause| pause.from_ms <= now_ms) {
                self.with(|world| world.pause(pause, &self.time));
                if !pause.suspended {
                    tokio::time::advance(Duration::from_millis(pause.until_ms - now_ms)).await;
                }
                continue;
            }
            let pause_ms = pauses.peek().map_or(RUN_MS, |pause| pause.from_ms);
            let wake = self.time.at(next_ms.min(pause_ms).min(RUN_MS));
            tokio::select! {
                biased;
                () = self.asked.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }
}
