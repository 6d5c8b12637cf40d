//! What a large checkpoint costs.
#![expect(clippy::disallowed_methods, reason = "measures time")]

use std::time::Instant;

use epoch_core::{Holder, OpenId, RequestId, Scope, SessionId};
use epoch_machine::{Batch, Command, Leadership, Outcome, Ttl};

use super::*;
use crate::testing::{apply_batch, number_from_env};
use crate::{RealFs, SplitMix, snapshot};

const SESSIONS: u64 = 1_000;
const BATCH: u64 = 1_000;

struct Large {
    state: State,
    sessions: Vec<SessionId>,
    index: u64,
    requests: u64,
}

impl Large {
    /// Scopes of 64 bytes, all held.
    fn new(scopes: u64) -> Self {
        let mut large = Self {
            state: fresh_state(),
            sessions: Vec::new(),
            index: 0,
            requests: 0,
        };
        let opens = (0..SESSIONS).map(|number| Command::Open {
            open_id: OpenId(Uuid::from_u128(u128::from(number))),
            holder: Holder::parse(&format!("agent-{number}")).unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
        });
        for outcome in large.apply(opens.collect()) {
            if let Outcome::Opened { session, .. } = outcome {
                large.sessions.push(session);
            }
        }
        for from in (0..scopes).step_by(usize::try_from(BATCH).unwrap()) {
            let numbers = from..scopes.min(from + BATCH);
            let commands = numbers.map(|number| large.acquire(number)).collect();
            large.apply(commands);
        }
        assert_eq!(large.state.counts().grants as u64, scopes);
        large.state.track_changes();
        large
    }

    fn acquire(&mut self, number: u64) -> Command {
        self.requests += 1;
        let session = self.requests % SESSIONS;
        Command::Acquire {
            scope: scope(number),
            session: self.sessions[usize::try_from(session).unwrap()],
            request_id: RequestId::new(self.requests).unwrap(),
        }
    }

    fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        self.index += 1;
        let batch = Batch {
            leadership: Leadership { term: 1, node: 1 },
            wall_ms: 1_700_000_000_000 + self.index,
            commands,
        };
        apply_batch(&mut self.state, self.index, &batch)
    }

    /// Hands `count` random scopes to other holders.
    fn change(&mut self, random: &mut SplitMix, scopes: u64, count: u64) {
        for _ in 0..count / BATCH {
            let commands = (0..BATCH).flat_map(|_| {
                let number = random.below(scopes);
                let revoke = Command::Revoke {
                    scope: scope(number),
                    epoch: None,
                };
                [revoke, self.acquire(number)]
            });
            let commands = commands.collect();
            self.apply(commands);
        }
    }
}

fn scope(number: u64) -> Scope {
    let hashed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Scope::parse(&format!("tenant/{hashed:016x}/{number:040}")).unwrap()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn save(checkpoint: &mut Checkpoint, large: &mut Large, since: u64, base: Base) -> Duration {
    let changes = large.state.take_changes();
    let meta = meta(large.index);
    let began = Instant::now();
    let saved = checkpoint
        .save(
            &large.state,
            &meta,
            Some(since),
            &changes,
            Some(base),
            &mut || (),
        )
        .unwrap();
    assert_ne!(saved, Saved::Nothing);
    began.elapsed()
}

/// Prints what a checkpoint of `EPOCH_SCOPES` held scopes costs, on the disk of `TMPDIR`: in
/// `EPOCH_CHAINS` chains, each of saves of `EPOCH_ROWS` random scopes each until `EPOCH_CHANGED`
/// have changed. With `EPOCH_FOLDER`, the folder stays there, and later runs only load it, in a
/// process whose memory nothing else has used; with `EPOCH_LOAD` = snapshot, only the snapshot.
#[test]
#[ignore = "measures: run it in release, by name"]
fn a_large_checkpoint_costs() {
    let scopes = number_from_env("EPOCH_SCOPES", 1_000_000);
    let rows = number_from_env("EPOCH_ROWS", 10_000);
    let changed = number_from_env("EPOCH_CHANGED", 500_000);
    let chains = number_from_env("EPOCH_CHAINS", 3);
    let temporary = tempfile::tempdir().unwrap();
    let root = std::env::var_os("EPOCH_FOLDER")
        .map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let folder = root.join("checkpoint");
    if folder.exists() {
        return print_load(&root);
    }
    let mut large = Large::new(scopes);
    let snapshots = Snapshots::open(RealFs::shared(), &root.join("snapshots")).unwrap();
    let mut checkpoint = open(&folder);
    let mut random = SplitMix::new(1);
    // Until no more spent request ids are kept, so that the state stays as large as it is.
    large.change(
        &mut random,
        scopes,
        number_from_env("EPOCH_WARM", scopes * 2),
    );
    let before = resident_bytes();
    println!("{:?}, {} MiB resident", large.state.counts(), mib(before));
    for chain in 1..=chains {
        let began = Instant::now();
        let written = snapshots.write(&large.state, &meta(large.index), &mut || ());
        let written = written.unwrap();
        println!(
            "snapshot {chain}: {:?}, {} MiB of rows",
            began.elapsed(),
            mib(written.plain_bytes)
        );
        let base = Base::from(&written.file.meta);
        drop(large.state.take_changes());
        let (mut total, mut slowest) = (Duration::ZERO, Duration::ZERO);
        let saves = u32::try_from(changed / rows).unwrap();
        for number in 1..=saves {
            let since = large.index;
            large.change(&mut random, scopes, rows);
            let took = save(&mut checkpoint, &mut large, since, base);
            total += took;
            slowest = slowest.max(took);
            if number == 1 || number == saves {
                println!(
                    "chain {chain}, save {number} of {rows} scopes: {took:?}; so far mean {:?}, \
                     slowest {slowest:?}, file {} MiB, {} MiB more resident, {} chunks",
                    total / number,
                    mib(folder::db_bytes(&folder)),
                    mib(resident_bytes().saturating_sub(before)),
                    checkpoint.held.clone().unwrap().chunks.count(),
                );
            }
        }
    }
    let resident = resident_bytes();
    drop(checkpoint);
    println!(
        "{} MiB less resident without it",
        mib(resident.saturating_sub(resident_bytes()))
    );
    print_load(&root);
}

/// Loads the checkpoint, or only its snapshot if `EPOCH_LOAD` says so.
fn print_load(root: &Path) {
    let began = Instant::now();
    let snapshots = Snapshots::open(RealFs::shared(), &root.join("snapshots")).unwrap();
    let newest = snapshots.newest().unwrap();
    println!("snapshots verified in {:?}", began.elapsed());
    let before = resident_bytes();
    let began = Instant::now();
    let snapshot = std::env::var("EPOCH_LOAD").is_ok_and(|what| what == "snapshot");
    let (state, _checkpoint) = if snapshot {
        (snapshot::load(&RealFs, &newest).unwrap().0, None)
    } else {
        let mut checkpoint = open(&root.join("checkpoint"));
        println!("opened in {:?}", began.elapsed());
        let loaded = checkpoint.load(&RealFs, Some(&newest)).unwrap().unwrap();
        (loaded.unwrap().0, Some(checkpoint))
    };
    println!(
        "loaded in {:?}; {} MiB more resident, {} MiB at most; {:?}",
        began.elapsed(),
        mib(resident_bytes().saturating_sub(before)),
        mib(resident_bytes_max().saturating_sub(before)),
        state.counts()
    );
}

fn resident_bytes_max() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}
