//! Which operations fail, and which one is the process's last.

use std::io;

/// What a disk reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is full: `ENOSPC`.
    Full,
    /// It cannot be read or written: `EIO`.
    Broken,
}

/// How long a planned fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One operation fails.
    Once,
    /// So do all that follow it.
    Forever,
}

impl Fault {
    fn to_error(self) -> io::Error {
        const ENOSPC: i32 = 28;
        const EIO: i32 = 5;
        io::Error::from_raw_os_error(match self {
            Self::Full => ENOSPC,
            Self::Broken => EIO,
        })
    }
}

/// What becomes of an operation.
pub(super) enum Verdict {
    Go,
    Fail(io::Error),
    /// It may still be done, but nobody hears of it.
    Die(io::Error),
}

/// The plan, and how far it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) operations: u64,
    pub(super) is_dead: bool,
    /// The number of the first operation to fail.
    fail: Option<(u64, Fault, Repeat)>,
    crash: Option<u64>,
    skip_every: u64,
    syncs: u64,
}

impl Faults {
    pub(super) fn fail_at(&mut self, count: u64, fault: Fault, repeat: Repeat) {
        self.fail = Some((self.operations.saturating_add(count), fault, repeat));
    }

    pub(super) fn crash_at(&mut self, count: u64) {
        self.crash = Some(self.operations.saturating_add(count));
    }

    pub(super) fn skip_syncs(&mut self, every: u64) {
        self.skip_every = every;
        self.syncs = 0;
    }

    /// What the next process finds: an honest disk, or one that lies as before.
    pub(super) fn after_restart(&self) -> Self {
        Self {
            skip_every: self.skip_every,
            syncs: self.syncs,
            ..Self::default()
        }
    }

    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.is_dead { Err(dead()) } else { Ok(()) }
    }

    /// Counts one more operation.
    pub(super) fn next(&mut self) -> io::Result<Verdict> {
        self.check_alive()?;
        self.operations += 1;
        if self.crash.is_some_and(|number| number <= self.operations) {
            self.is_dead = true;
            return Ok(Verdict::Die(dead()));
        }
        Ok(match self.fail {
            Some((number, fault, repeat)) if number <= self.operations => {
                if repeat == Repeat::Once {
                    self.fail = None;
                }
                Verdict::Fail(fault.to_error())
            }
            Some(_) | None => Verdict::Go,
        })
    }

    /// Counts one more sync; whether it is one that does nothing.
    pub(super) fn lie(&mut self) -> bool {
        self.syncs += 1;
        self.skip_every != 0 && self.syncs.is_multiple_of(self.skip_every)
    }
}

fn dead() -> io::Error {
    io::Error::other("the process has ended")
}
