//! How long a flush of the log takes, next to the least a disk can do: overwriting 512 bytes of a
//! file that is filled already, and `fdatasync`. And next to a log whose file grows, for want of a
//! filler. By turns in one run, so that all see the same disk.
//!
//!     cargo run --release -p epoch-store --example flush_bench -- FOLDER COUNT

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use epoch_store::{File, FileSystem, Log, LogOptions, RealFs};
use hdrhistogram::Histogram;

type Failure = Box<dyn Error>;

const ENTRY_BYTES: usize = 200;
const SECTOR: usize = 512;
/// The logs and the bare file take turns of this many flushes.
const TURN: u64 = 100;
/// Flushes before measuring begins, so that the filler is ahead.
const WARM_UP: u64 = 500;
/// Between two looks of the filler, as in a node.
const FILL_INTERVAL: Duration = Duration::from_millis(10);
const MARK_INTERVAL: Duration = Duration::from_secs(1);

/// Times of one kind of flush.
struct Times {
    latencies: Histogram<u64>,
    cpu: Duration,
}

impl Times {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            latencies: Histogram::new(3)?,
            cpu: Duration::ZERO,
        })
    }

    /// Runs and times a turn of flushes.
    fn turn(&mut self, mut flush: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let cpu_before = cpu_time()?;
        for _ in 0..TURN {
            let begun = now();
            flush()?;
            let taken = now().duration_since(begun).as_nanos();
            self.latencies.record(u64::try_from(taken)?)?;
        }
        self.cpu += cpu_time()?.saturating_sub(cpu_before);
        Ok(())
    }

    fn micros(&self, quantile: f64) -> f64 {
        Duration::from_nanos(self.latencies.value_at_quantile(quantile)).as_secs_f64() * 1e6
    }

    fn print(&self, name: &str) {
        let flushes = u32::try_from(self.latencies.len())
            .unwrap_or(u32::MAX)
            .max(1);
        println!(
            "{name:<12} p50 {:7.1} us  p99 {:7.1} us  cpu {:5.1} us a flush",
            self.micros(0.5),
            self.micros(0.99),
            (self.cpu / flushes).as_secs_f64() * 1e6,
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the machine does not sleep during a benchmark"
)]
fn now() -> Instant {
    Instant::now()
}

/// Processor time of this thread, in user and kernel.
fn cpu_time() -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().ok_or("no time in schedstat")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// A file whose blocks are all written, and where the next overwrite goes.
struct Bare {
    file: Arc<dyn File>,
    next: u64,
    len: u64,
}

impl Bare {
    fn create(path: &Path, len: u64) -> Result<Self, Failure> {
        let file = RealFs.create(path)?;
        let zeros = vec![0; 1 << 20];
        let mut filled = 0;
        while filled < len {
            file.write_at(&zeros, filled)?;
            filled += zeros.len() as u64;
        }
        file.sync_all()?;
        Ok(Self { file, next: 0, len })
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.file.write_at(&[1; SECTOR], self.next)?;
        self.file.sync_data()?;
        self.next = (self.next + SECTOR as u64) % self.len;
        Ok(())
    }
}

struct Appender {
    log: Log,
    next: u64,
}

impl Appender {
    fn open(folder: &Path) -> Result<Self, Failure> {
        let log = Log::open(RealFs::shared(), folder, LogOptions::default())?;
        Ok(Self { log, next: 0 })
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let entry = Bytes::from_static(&[7; ENTRY_BYTES]);
        self.log.append(&[(self.next, entry)])?;
        self.next += 1;
        Ok(())
    }
}

fn measure(folder: &Path, count: u64) -> Result<(), Failure> {
    let mut filled = Appender::open(&folder.join("filled"))?;
    let mut growing = Appender::open(&folder.join("growing"))?;
    let mut bare = Bare::create(&folder.join("bare"), 64 << 20)?;
    let (filler, marks) = (filled.log.zero_filler(), filled.log.mark_syncer());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if !filler.fill().unwrap_or(false) {
                    thread::sleep(FILL_INTERVAL);
                }
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) && marks.sync().is_ok() {
                thread::sleep(MARK_INTERVAL);
            }
        });
        let result = take_turns(&mut filled, &mut growing, &mut bare, count);
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

fn take_turns(
    filled: &mut Appender,
    growing: &mut Appender,
    bare: &mut Bare,
    count: u64,
) -> Result<(), Failure> {
    for _ in 0..WARM_UP {
        filled.flush()?;
        growing.flush()?;
        bare.flush()?;
    }
    let (mut log, mut grown, mut least) = (Times::new()?, Times::new()?, Times::new()?);
    for _ in 0..count.div_ceil(TURN) {
        log.turn(|| filled.flush())?;
        least.turn(|| bare.flush())?;
        grown.turn(|| growing.flush())?;
    }
    log.print("log");
    least.print("bare file");
    grown.print("growing log");
    let to_least = |times: &Times| times.micros(0.5) / least.micros(0.5);
    println!(
        "p50 of the bare file's: log {:.2}, growing log {:.2}",
        to_least(&log),
        to_least(&grown)
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: flush_bench FOLDER COUNT".into());
    };
    let folder = PathBuf::from(folder).join("flush_bench");
    std::fs::create_dir_all(&folder)?;
    let result = measure(&folder, count.parse()?);
    std::fs::remove_dir_all(&folder)?;
    result
}
