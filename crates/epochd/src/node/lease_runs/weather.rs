//! What goes wrong in a run.

use std::time::Duration;

use epoch_client::OpenOptions;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::RUN_MS;
use super::cluster::CHECK_MS;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A bit of everything, but never for long, and two cuts at most: no session may be lost. (A
    /// client that three attempts in a row get no answer for has no time for a fourth.)
    Calm,
    /// Nodes are cut off from the client.
    Cuts,
    /// Leaders are deposed, and it takes time to elect the next.
    Elections,
    /// The client's process or machine is paused.
    Pauses,
    /// The cluster refuses to renew: the work stalls, or somebody closes the session.
    Refusals,
    /// Answers are late, each for itself, and nodes stop hearing the client.
    Late,
    /// Nothing, but the nodes are far away: no session may be lost at round trips of up to a third
    /// of its TTL.
    Far,
    /// All of it, and nodes pause, messages get lost or late, and the log fails.
    Storm,
}

impl Kind {
    /// Whether no session may be lost in it.
    pub(super) fn keeps_all(self) -> bool {
        matches!(self, Self::Calm | Self::Far)
    }
}

/// How a cut shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutKind {
    /// Messages are lost.
    Loses,
    /// Messages arrive after its end.
    Holds,
    /// Connections break.
    Breaks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToNode,
    ToClient,
}

/// A time in which one node and the client do not reach each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) node: usize,
    pub(super) kind: CutKind,
    /// Both when absent.
    pub(super) direction: Option<Direction>,
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
}

impl Cut {
    fn deaf(self) -> Self {
        Self {
            kind: CutKind::Loses,
            direction: Some(Direction::ToNode),
            ..self
        }
    }
}

/// A time in which the client does not run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    /// The machine is suspended, and timers with it; else only the process is stopped.
    pub(super) suspended: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) nodes: usize,
    /// Nodes without the lead pass keepalives on; else they refuse them.
    pub(super) forwards: bool,
    pub(super) delay_ms_min: u64,
    pub(super) delay_ms_max: u64,
    pub(super) cuts: Vec<Cut>,
    /// Of the client, in order.
    pub(super) pauses: Vec<Pause>,
    pub(super) election_ms_max: u64,
    pub(super) reign_ms_min: u64,
    pub(super) node_pause_ms_max: u64,
    /// How long it takes until a proposal is committed.
    pub(super) log_ms_max: u64,
    /// In a storm, one in so many messages is late or lost, checks fail, and so do proposals.
    pub(super) one_in: Option<u64>,
    /// One in so many answers is late.
    pub(super) late_one_in: Option<u64>,
    /// Somebody closes one of the sessions.
    pub(super) close_ms: Option<u64>,
}

impl Weather {
    pub(super) fn draw(random: &mut StdRng) -> Self {
        let kind = match random.random_range(0..10) {
            0 => Kind::Calm,
            1 => Kind::Cuts,
            2 => Kind::Elections,
            3 => Kind::Pauses,
            4 => Kind::Refusals,
            5 => Kind::Late,
            6 => Kind::Far,
            _ => Kind::Storm,
        };
        let nodes = random.random_range(2..=3);
        let is = |one| kind == one || kind == Kind::Storm;
        let calm = kind == Kind::Calm;
        let cuts = match (calm, is(Kind::Cuts)) {
            (true, _) => cuts(random, nodes, 2, 800),
            (_, true) => cuts(random, nodes, 8, 8_000),
            _ if kind == Kind::Late => cuts(random, nodes, 8, 8_000)
                .into_iter()
                .map(Cut::deaf)
                .collect(),
            _ => Vec::new(),
        };
        let pauses = match (calm, is(Kind::Pauses)) {
            (true, _) => pauses(random, 2, 400),
            (_, true) => pauses(random, 4, 9_000),
            _ => Vec::new(),
        };
        let changes = is(Kind::Elections);
        let delay_ms_min = match kind {
            Kind::Far => random.random_range(20..400),
            _ => 0,
        };
        Self {
            kind,
            nodes,
            forwards: random.random_range(0..2) == 0,
            delay_ms_min,
            delay_ms_max: match kind {
                Kind::Storm => random.random_range(1..500),
                Kind::Far => delay_ms_min + 10,
                _ => random.random_range(1..30),
            },
            cuts,
            pauses,
            election_ms_max: if changes {
                random.random_range(100..4_000)
            } else {
                500
            },
            reign_ms_min: match (calm, changes) {
                (true, _) => 4_000,
                (_, true) => random.random_range(100..5_000),
                _ => RUN_MS,
            },
            node_pause_ms_max: match kind {
                Kind::Calm => 400,
                Kind::Storm => random.random_range(1..6_000),
                Kind::Cuts
                | Kind::Elections
                | Kind::Pauses
                | Kind::Refusals
                | Kind::Late
                | Kind::Far => 0,
            },
            log_ms_max: if kind == Kind::Storm { 600 } else { 20 },
            late_one_in: (kind == Kind::Late).then(|| random.random_range(2..6)),
            one_in: (kind == Kind::Storm).then(|| random.random_range(3..20)),
            close_ms: (is(Kind::Refusals) && random.random_range(0..2) == 0)
                .then(|| random.random_range(3_000..RUN_MS)),
        }
    }

    /// How long a keepalive takes at most with nothing failing: both ways, by way of a follower, and
    /// the leadership check.
    fn round_trip_ms_max(&self) -> u64 {
        2 * self.delay_ms_max + 20 + CHECK_MS
    }

    /// When the client begins at the earliest: nodes that are only far away have a leader by then.
    pub(super) fn begin_ms(&self) -> u64 {
        if self.kind == Kind::Far { 1_000 } else { 0 }
    }

    /// How many sessions the client has.
    pub(super) fn sessions(&self, random: &mut StdRng) -> u64 {
        match self.kind {
            Kind::Late => random.random_range(4..=6),
            _ => random.random_range(1..=3),
        }
    }

    /// How a session is opened, and until when its work gets on.
    pub(super) fn session(&self, random: &mut StdRng) -> (OpenOptions, u64) {
        let ttl_ms = match self.kind {
            Kind::Calm | Kind::Late => random.random_range(4_000..8_000),
            // Where nodes do not pass it on, an Open takes one round trip more.
            Kind::Far if self.forwards => (3 * self.round_trip_ms_max()).max(1_000),
            Kind::Far => (4 * self.round_trip_ms_max()).max(1_000),
            _ => random.random_range(1_000..8_000),
        };
        let options = OpenOptions::new(Duration::from_millis(ttl_ms));
        let until_ms = random.random_range(0..RUN_MS);
        match self.kind {
            Kind::Refusals | Kind::Storm if random.random_range(0..3) == 0 => {
                let limit_ms = random.random_range(1_000..4_000);
                (
                    options.with_stall_limit(Duration::from_millis(limit_ms)),
                    until_ms,
                )
            }
            _ => (options, 0),
        }
    }
}

fn cuts(random: &mut StdRng, nodes: usize, count: u64, longest_ms: u64) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for _ in 0..random.random_range(0..=count) {
        let from_ms = random.random_range(0..RUN_MS);
        let all = random.random_range(0..2) == 0;
        let one = random.random_range(0..nodes);
        let cut = Cut {
            node: one,
            kind: match random.random_range(0..3) {
                0 => CutKind::Loses,
                1 => CutKind::Holds,
                _ => CutKind::Breaks,
            },
            direction: match random.random_range(0..4) {
                0 => Some(Direction::ToNode),
                1 => Some(Direction::ToClient),
                _ => None,
            },
            from_ms,
            until_ms: from_ms + random.random_range(100..=longest_ms),
        };
        cuts.extend(
            (0..nodes)
                .filter(|node| all || *node == one)
                .map(|node| Cut { node, ..cut }),
        );
    }
    cuts
}

fn pauses(random: &mut StdRng, count: u64, longest_ms: u64) -> Vec<Pause> {
    let mut pauses = Vec::new();
    let mut from_ms = 0;
    for _ in 0..count {
        from_ms += random.random_range(500..RUN_MS / count);
        let until_ms = from_ms + random.random_range(50..=longest_ms);
        pauses.push(Pause {
            from_ms,
            until_ms,
            suspended: random.random_range(0..2) == 0,
        });
        from_ms = until_ms;
    }
    pauses
}
