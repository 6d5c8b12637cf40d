//! The real client and the real leases through a bad network, in simulated time.
//!
//! A session's loss is told no later than a TTL after the last acknowledged keepalive was sent, and
//! before the cluster grants its scope to another; and no session is lost while keepalives get
//! through. Client, gRPC, leases and state machine are the real ones; the network, elections, the
//! log's quorum and all clocks are simulated. `EPOCH_SEED` and `EPOCH_RUNS` choose the runs.

mod cluster;
mod history;
mod service;
mod weather;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use epoch_client::{Client, Clock, Connector, OpenOptions, Options};
use epoch_proto::v1::session_service_server::SessionServiceServer;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use history::History;
use service::{Service, address};
use weather::{Kind, Weather};
use world::{Shared, World};

/// How long a run lasts, in simulated time.
const RUN_MS: u64 = 25_000;
/// Runs by default: about ten seconds in a debug build.
const RUNS: u64 = 1_000;

/// A bug that the runs must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// The leader counts from before a keepalive arrived.
    ServerCountsEarly,
    /// A new leader does not give the full TTL.
    HastyLeader,
    /// A leader acknowledges without asking a quorum whether it still leads.
    StaleLeader,
    /// The client's clock is slow.
    SlowClock,
    /// The client's clock stands still while the machine is suspended.
    StoppingClock,
}

/// What the runs have met, so that they are known to show something.
#[derive(Debug, Default)]
struct Coverage {
    sessions: u32,
    elections: u32,
    handed_on: u32,
    /// Handed on while the client was paused: it would have known, had it been asked.
    while_paused: u32,
    /// Runs by what goes wrong in them, and those with a loss.
    runs: BTreeMap<Kind, (u32, u32)>,
}

/// One run: everything in it follows from its seed.
fn happened(seed: u64, plant: Plant) -> (Kind, History) {
    // The client's pauses are drawn from it.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let weather = Weather::draw(&mut random);
    let kind = weather.kind;
    (kind, runtime.block_on(simulate(random, weather, plant)))
}

fn run(seed: u64, plant: Plant, coverage: &mut Coverage) -> Result<(), String> {
    let (kind, history) = happened(seed, plant);
    let losses = history.check(kind)?;
    coverage.sessions += history.held();
    coverage.elections += history.elections;
    coverage.handed_on += history.handed_on;
    coverage.while_paused += history.unable;
    let (runs, lossy) = coverage.runs.entry(kind).or_default();
    *runs += 1;
    *lossy += u32::from(losses > 0);
    Ok(())
}

async fn simulate(mut random: StdRng, weather: Weather, plant: Plant) -> History {
    let nodes = weather.nodes;
    let sessions: Vec<_> = (0..weather.sessions(&mut random))
        .map(|number| {
            let begin_ms = weather.begin_ms() + number * random.random_range(0..2_000);
            (begin_ms, weather.session(&mut random))
        })
        .collect();
    let world = World::new(random, weather, plant);
    let shared = Arc::new(Shared::new(world));
    let mut listeners = Vec::new();
    for node in 0..nodes {
        let (sender, connections) = mpsc::unbounded_channel();
        listeners.push(sender);
        let shared = Arc::clone(&shared);
        let service = SessionServiceServer::new(Service { shared, node });
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(UnboundedReceiverStream::new(connections)));
    }
    tokio::spawn(Arc::clone(&shared).drive());
    let client = client(&shared, listeners, plant);
    for (begin_ms, (options, works_until_ms)) in sessions {
        let hold = hold(client.clone(), Arc::clone(&shared), options, works_until_ms);
        let begin = shared.time.at(begin_ms);
        tokio::spawn(async move {
            tokio::time::sleep_until(begin).await;
            hold.await;
        });
    }
    shared.ended().await;
    shared.with(|world| std::mem::take(&mut world.history))
}

type Listener = mpsc::UnboundedSender<std::io::Result<tokio::io::DuplexStream>>;

fn client(shared: &Arc<Shared>, listeners: Vec<Listener>, plant: Plant) -> Client {
    let nodes = listeners.len();
    let connector = Connector::new(move |uri| {
        let host = uri.host().and_then(|host| host.strip_prefix("node-"));
        let node: usize = host.and_then(|number| number.parse().ok()).unwrap();
        let (near, far) = tokio::io::duplex(1 << 20);
        let connected = listeners[node].send(Ok(far));
        async move {
            connected.map_err(std::io::Error::other)?;
            Ok(near)
        }
    });
    let time = Arc::clone(&shared.time);
    let clock = Clock::given(move || match plant {
        Plant::SlowClock => time.now_ms() * 9 / 10,
        Plant::StoppingClock => time.awake_ms(),
        Plant::None | Plant::ServerCountsEarly | Plant::HastyLeader | Plant::StaleLeader => {
            time.now_ms()
        }
    });
    let options = Options {
        clock,
        connector: Some(connector),
        ..Options::default()
    };
    let endpoints = (0..nodes).map(|node| address(node).parse().unwrap());
    Client::connect(endpoints, options).unwrap()
}

/// Opens a session and holds it until it is lost; the work in it gets on until `works_until_ms`.
async fn hold(client: Client, shared: Arc<Shared>, options: OpenOptions, works_until_ms: u64) {
    let asked_ms = shared.time.now_ms();
    let holder = "agent".parse().unwrap();
    // One that could not be opened in time holds nothing.
    let Ok(session) = client.open_session_with(&holder, options).await else {
        return;
    };
    shared.with(|world| world.history.opened(&session, asked_ms));
    let work = async {
        while shared.time.now_ms() < works_until_ms {
            session.progress();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        () = session.lost() => {}
        () = work => {}
    }
    let now_ms = shared.time.now_ms();
    let loss = session.loss().unwrap();
    shared.with(|world| world.history.lost(session.id(), now_ms, loss));
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn a_loss_is_told_within_a_ttl_of_the_last_sending_and_before_another_is_granted() {
    let first = setting("EPOCH_SEED").unwrap_or_else(rand::random);
    let count = setting("EPOCH_RUNS").unwrap_or(RUNS);
    let mut coverage = Coverage::default();
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        if let Err(why) = run(seed, Plant::None, &mut coverage) {
            eprintln!("again with EPOCH_SEED={seed} EPOCH_RUNS=1");
            panic!("seed {seed}: {why}");
        }
    }
    eprintln!("{coverage:?}");
    if count >= RUNS {
        let count = u32::try_from(count).unwrap();
        assert!(coverage.sessions > count, "{coverage:?}");
        assert!(coverage.elections > count, "{coverage:?}");
        assert!(coverage.handed_on > count / 10, "{coverage:?}");
        assert!(coverage.while_paused > 0, "{coverage:?}");
        for (kind, (_, lossy)) in &coverage.runs {
            assert_eq!(kind.keeps_all(), *lossy == 0, "{kind:?}: {coverage:?}");
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    let handed_on = "before the loss was told";
    for (plant, broken) in [
        (Plant::ServerCountsEarly, handed_on),
        (Plant::HastyLeader, handed_on),
        (Plant::StaleLeader, handed_on),
        (Plant::StoppingClock, handed_on),
        (Plant::SlowClock, handed_on),
        (Plant::SlowClock, "not lost by"),
    ] {
        let mut coverage = Coverage::default();
        let found = (0..RUNS).find(|seed| {
            let ended = run(*seed, plant, &mut coverage);
            ended.is_err_and(|why| why.contains(broken))
        });
        eprintln!("{plant:?}: {broken}: seed {found:?}");
        assert!(found.is_some(), "{plant:?}: {broken}");
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    for seed in 0..20 {
        let told = || happened(seed, Plant::None).1.told();
        assert_eq!(told(), told(), "seed {seed}");
    }
}
