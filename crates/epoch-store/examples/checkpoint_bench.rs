//! What a checkpoint costs, in time, memory and disk: scopes of 64 bytes, all held, then a
//! snapshot and a chain of saves, three times. Where the folder exists it is only loaded, in a
//! process whose memory nothing else has used: the snapshot alone with `snapshot` at the end.
//!
//!     cargo run --release -p epoch-store --example checkpoint_bench -- FOLDER SCOPES
//!     cargo run --release -p epoch-store --example checkpoint_bench -- FOLDER SCOPES snapshot

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use epoch_core::{ClusterId, Holder, Incarnation, OpenId, RequestId, Scope, SessionId};
use epoch_machine::{
    Batch, Command, Entry, Leadership, Outcome, SPENT_IDS_KEPT, State, Terms, Ttl, Wait, apply,
};
use epoch_store::RealFs;
use epoch_store::checkpoint::{Base, Checkpoint};
use epoch_store::snapshot::{self, SnapshotMeta, Snapshots};
use uuid::Uuid;

type Failure = Box<dyn Error>;

const SESSIONS: u64 = 1_000;
const BATCH: u64 = 1_000;
const CHAINS: u64 = 3;
/// Scopes that change between two saves.
const SAVE_SCOPES: u64 = 10_000;

struct Large {
    state: State,
    sessions: Vec<SessionId>,
    scopes: u64,
    index: u64,
    requests: u64,
}

impl Large {
    fn new(scopes: u64) -> Result<Self, Failure> {
        let mut large = Self {
            state: fresh(),
            sessions: Vec::new(),
            scopes,
            index: 0,
            requests: 0,
        };
        let opens = (0..SESSIONS).map(|number| {
            Ok(Command::Open {
                open_id: OpenId(Uuid::from_u128(u128::from(number))),
                holder: Holder::parse(&format!("agent-{number}"))?,
                ttl: Ttl::from_ms(10_000)?,
                stall_limit: None,
                principal: None,
                holder_key: None,
            })
        });
        let opens = opens.collect::<Result<_, Failure>>()?;
        for outcome in large.apply(opens)? {
            if let Outcome::Opened { session, .. } = outcome {
                large.sessions.push(session);
            }
        }
        for from in (0..scopes).step_by(usize::try_from(BATCH)?) {
            let numbers = from..scopes.min(from + BATCH);
            let commands = numbers.map(|number| large.acquire(number));
            let commands = commands.collect::<Result<_, _>>()?;
            large.apply(commands)?;
        }
        large.state.track_changes();
        Ok(large)
    }

    fn acquire(&mut self, number: u64) -> Result<Command, Failure> {
        self.requests += 1;
        let session = usize::try_from(self.requests % SESSIONS)?;
        Ok(Command::Acquire {
            scope: scope(number)?,
            session: self.sessions[session],
            request_id: RequestId::new(self.requests)?,
            terms: Terms::default(),
            wait: Wait::default(),
            reissue: false,
        })
    }

    fn apply(&mut self, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        self.index += 1;
        let leadership = Leadership { term: 1, node: 1 };
        let batch = Batch {
            leadership,
            wall_ms: 1_700_000_000_000 + self.index,
            commands,
        };
        let index = self.index;
        let entry = Entry { leadership, index };
        Ok(apply(&mut self.state, entry, &batch)?.outcomes)
    }

    /// Hands `count` scopes, from all over, to other holders.
    fn change(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count / BATCH {
            let mut commands = Vec::new();
            for _ in 0..BATCH {
                let number = spread(self.requests) % self.scopes;
                commands.push(Command::Revoke {
                    scope: scope(number)?,
                    epoch: None,
                    by: None,
                });
                commands.push(self.acquire(number)?);
            }
            self.apply(commands)?;
        }
        Ok(())
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            index: self.index,
            term: 1,
            opaque: Bytes::from_static(b"membership"),
        }
    }
}

fn fresh() -> State {
    let (cluster, incarnation) = (Uuid::from_u128(1), Uuid::from_u128(2));
    State::new(ClusterId(cluster), Incarnation(incarnation), 0)
}

/// Another number for each, in no order.
fn spread(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

fn scope(number: u64) -> Result<Scope, Failure> {
    Ok(Scope::parse(&format!(
        "tenant/{:016x}/{number:040}",
        spread(number)
    ))?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the machine does not sleep during a benchmark"
)]
fn now() -> Instant {
    Instant::now()
}

/// A field of this process's status, in MiB.
fn memory_mib(field: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.ok_or("no such field in status")?;
    Ok(kib.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
}

fn folder_mib(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes >> 20)
}

fn write(folder: &Path, scopes: u64) -> Result<(), Failure> {
    let mut large = Large::new(scopes)?;
    // Until every session has as many spent request ids as are kept, so that the state stays as large as it is.
    large.change(SESSIONS * u64::from(SPENT_IDS_KEPT + 100))?;
    let snapshots = Snapshots::open(RealFs::shared(), &folder.join("snapshots"))?;
    let table = folder.join("checkpoint");
    let mut checkpoint = Checkpoint::open(&table, &fresh())?.0;
    let before = memory_mib("VmRSS")?;
    println!("{:?}, {before} MiB resident", large.state.counts());
    for chain in 1..=CHAINS {
        let begun = now();
        let written = snapshots.write(&large.state, &large.meta(), &mut || ())?;
        println!(
            "snapshot {chain}: {:?}, {} MiB of rows",
            begun.elapsed(),
            written.plain_bytes >> 20
        );
        let base = Base::from(&written.file.meta);
        drop(large.state.take_changes());
        let (mut total, mut slowest, mut saves) = (Duration::ZERO, Duration::ZERO, 0);
        while u64::from(saves) * SAVE_SCOPES < scopes / 2 {
            let since = large.index;
            large.change(SAVE_SCOPES)?;
            let changes = large.state.take_changes();
            let (meta, begun) = (large.meta(), now());
            let state = &large.state;
            checkpoint.save(state, &meta, Some(since), &changes, Some(base), &mut || ())?;
            let taken = begun.elapsed();
            total += taken;
            slowest = slowest.max(taken);
            saves += 1;
        }
        println!(
            "chain {chain}: {saves} saves of {SAVE_SCOPES} scopes, mean {:?}, slowest {slowest:?}, \
             {} MiB on disk, {} MiB more resident",
            total / saves.max(1),
            folder_mib(&table)?,
            memory_mib("VmRSS")?.saturating_sub(before),
        );
    }
    Ok(())
}

fn load(folder: &Path, only_snapshot: bool) -> Result<(), Failure> {
    let begun = now();
    let snapshots = Snapshots::open(RealFs::shared(), &folder.join("snapshots"))?;
    let newest = snapshots.newest().ok_or("no snapshot")?;
    println!("snapshots verified in {:?}", begun.elapsed());
    let (before, begun) = (memory_mib("VmRSS")?, now());
    let (state, checkpoint) = if only_snapshot {
        (snapshot::load(&RealFs, &newest)?.0, None)
    } else {
        let mut checkpoint = Checkpoint::open(&folder.join("checkpoint"), &fresh())?.0;
        let loaded = checkpoint.load(&RealFs, Some(&newest))??;
        (loaded.ok_or("no checkpoint")?.0, Some(checkpoint))
    };
    println!(
        "loaded in {:?}; {} MiB more resident, {} MiB at most; {:?}",
        begun.elapsed(),
        memory_mib("VmRSS")?.saturating_sub(before),
        memory_mib("VmHWM")?.saturating_sub(before),
        state.counts()
    );
    drop(checkpoint);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (folder, scopes, only_snapshot) = match &arguments[..] {
        [folder, scopes] => (Path::new(folder), scopes.parse()?, false),
        [folder, scopes, what] if what == "snapshot" => (Path::new(folder), scopes.parse()?, true),
        _ => return Err("usage: checkpoint_bench FOLDER SCOPES [snapshot]".into()),
    };
    if folder.exists() {
        return load(folder, only_snapshot);
    }
    std::fs::create_dir_all(folder)?;
    write(folder, scopes)
}
