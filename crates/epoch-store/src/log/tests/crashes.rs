//! Random calls on a simulated disk, with a crash or a failing operation every few of them: what was
//! acknowledged is there afterwards, and a call that was not is there whole or not at all.
//!
//! `EPOCH_CRASHES` sets how many crashes, `EPOCH_SEED` the seed; a failure names the one to replay.

use super::model::{Model, Operation};
use super::*;
use crate::{Fault, Repeat, SplitMix};

/// Crashes of one log before the next is begun.
const CRASHES_PER_LOG: u64 = 12;
/// About 20 s without optimisation.
const CRASHES: u64 = 50_000;
/// Every life of a process ends after so many calls, if it comes that far.
const CALLS_MAX: u64 = 40;

/// How the log sees the disk.
type Mount = fn(&SimFs) -> Arc<dyn FileSystem>;

/// A log that lives through crashes.
struct Life {
    fs: SimFs,
    mount: Mount,
    random: SplitMix,
    options: LogOptions,
    /// What the log may hold when it is next opened.
    outcomes: Vec<Model>,
}

impl Life {
    fn new(seed: u64, mount: Mount) -> Self {
        let mut random = SplitMix::new(seed);
        let options = LogOptions {
            segment_bytes_max: (4 << 10) << random.below(4),
            cache_bytes_max: random.below(3) << 11,
        };
        Self {
            fs: SimFs::new(random.bits()),
            mount,
            random,
            options,
            outcomes: vec![Model::default()],
        }
    }

    /// One life of the process, and its end. The error says what is wrong.
    fn live(&mut self) -> Result<(), String> {
        self.plan_end();
        match Log::open((self.mount)(&self.fs), folder(), self.options) {
            Ok(log) => self.work(log)?,
            // Whatever state it was in before, it still is.
            Err(OpenError::Io { .. } | OpenError::Locked(LockError::Io { .. })) => {}
            Err(refused) => return Err(refused.to_string()),
        }
        self.fs = if self.random.below(3) == 0 {
            self.fs.restart_process()
        } else {
            self.fs.restart(self.random.bits())
        };
        Ok(())
    }

    fn plan_end(&mut self) {
        // While opening, or later.
        let most = if self.random.coin() { 10 } else { 60 };
        let at = 1 + self.random.below(most);
        match self.random.below(6) {
            0 | 1 => self.fs.fail_at(at, Fault::Broken, Repeat::Once),
            2 => self.fs.fail_at(at, Fault::Full, Repeat::Once),
            _ => self.fs.crash_at(at),
        }
    }

    fn work(&mut self, mut log: Log) -> Result<(), String> {
        let mut model = Model::find(&self.outcomes, &log)?.clone();
        for _ in 0..CALLS_MAX {
            let operation = self.operation();
            match model.run(&operation, &mut log) {
                Ok(()) => model.apply(&operation),
                Err(_) => {
                    self.outcomes = model.after_crash_during(&operation);
                    return Ok(());
                }
            }
        }
        self.outcomes = model.after_crash_during(&Operation::Reopen);
        Ok(())
    }

    fn operation(&mut self) -> Operation {
        let random = &mut self.random;
        match random.below(20) {
            0..9 => {
                let count = 1 + random.below(4);
                let lens = (0..count).map(|_| {
                    let most = [40, 600, 1_500, 9_000];
                    let most = most[usize::from(random.bits().to_le_bytes()[0] % 4)];
                    usize::try_from(random.below(most)).unwrap()
                });
                Operation::Append(lens.collect())
            }
            9..11 => Operation::Vote(random.bits().to_le_bytes()[0]),
            11..13 => Operation::Truncate {
                back: random.below(6),
            },
            13..15 => Operation::Purge {
                back: random.below(9),
            },
            15 => Operation::PurgeBeyond {
                by: random.below(3),
            },
            16 => Operation::Committed(random.bits().to_le_bytes()[0]),
            17 => Operation::SyncMark,
            _ => Operation::Fill,
        }
    }
}

/// Crashes logs one after the other. Returns after how many crashes something was found, and what.
fn crash_logs(seed: u64, crashes: u64, mount: Mount, plant: fn(&SimFs)) -> Option<(u64, String)> {
    let mut crashed = 0;
    for seed in seed.. {
        let mut life = Life::new(seed, mount);
        plant(&life.fs);
        for _ in 0..CRASHES_PER_LOG {
            if crashed == crashes {
                return None;
            }
            crashed += 1;
            if let Err(wrong) = life.live() {
                return Some((crashed, format!("EPOCH_SEED={seed}: {wrong}")));
            }
        }
    }
    None
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

#[test]
fn nothing_acknowledged_is_lost_in_any_crash() {
    let (seed, crashes) = (
        from_env("EPOCH_SEED", 1),
        from_env("EPOCH_CRASHES", CRASHES),
    );
    eprintln!("EPOCH_SEED={seed} EPOCH_CRASHES={crashes}");
    let found = crash_logs(seed, crashes, SimFs::shared, |_| {});
    assert_eq!(found, None);
}

/// A bug must be found within this many crashes.
const PLANTED_CRASHES: u64 = 3_000;

fn assert_found(mount: Mount, plant: fn(&SimFs)) {
    let found = crash_logs(1, PLANTED_CRASHES, mount, plant);
    assert!(found.is_some(), "not found in {PLANTED_CRASHES} crashes");
}

#[test]
fn a_disk_that_skips_one_sync_in_fifty_is_found_out() {
    assert_found(SimFs::shared, |fs| fs.skip_syncs(50));
}

#[test]
fn an_acknowledgement_before_the_flush_is_found_out() {
    let early: Mount = |fs| {
        let waiting: Mutex<Option<Arc<dyn File>>> = Mutex::default();
        SyncedBy::over(fs.clone(), move |file| {
            let before = waiting.lock().unwrap().replace(Arc::clone(file));
            before.map_or(Ok(()), |file| file.sync_data())
        })
    };
    assert_found(early, |_| {});
}

#[test]
fn a_torn_tail_taken_for_data_is_found_out() {
    format::BELIEVES_TORN_FRAMES.set(true);
    assert_found(SimFs::shared, |_| {});
}

#[test]
fn a_torn_tail_left_where_it_is_is_found_out() {
    prepare::LEAVES_TORN_TAILS.set(true);
    assert_found(SimFs::shared, |_| {});
}
