//! The signals that this process does not leave to the system.

use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::exit::Failure;

/// Lets all signals through. A caller may have blocked some for its own threads, and that is
/// passed on: without this a `run` that is not told of its children's end would wait for ever.
///
/// Called before any thread is started: each inherits what its starter blocks.
pub(crate) fn unblock() {
    // The call fails for an unknown way to change the mask only.
    let _unknown_way = SigSet::empty().thread_set_mask();
}

/// Signals that are caught; not those that this process was started to ignore, as by `nohup` or in
/// the background of a shell. Commands that it starts ignore these too.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Those that ask this process to end. `run` passes them on to its command instead; a wait and
    /// a watch end in order.
    pub(crate) fn ending() -> Result<Self, Failure> {
        Self::catch(&[Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT])
    }

    /// Those with a meaning of the command's own, for `run`.
    pub(crate) fn of_the_command() -> Result<Self, Failure> {
        Self::catch(&[Signal::USR1, Signal::USR2])
    }

    fn catch(signals: &[Signal]) -> Result<Self, Failure> {
        // Where it is not told, none is.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let heeded = signals
            .iter()
            .filter(|signal| ignored & bit(**signal) == 0)
            .map(|signal| {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()));
                Ok((*signal, stream?))
            });
        let caught: std::io::Result<_> = heeded.collect();
        let caught = caught.map_err(|error| {
            Failure::local(format!("cannot catch signals: {error}"), "try again")
        })?;
        Ok(Self(caught))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Undoes what a signal has interrupted. `None` when that takes longer than `most`, or when one
    /// more signal comes: then this process is to end at once.
    pub(crate) async fn undo<T>(
        &mut self,
        most: Duration,
        undoing: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            undone = timeout(most, undoing) => undone.ok(),
            _signal = self.next() => None,
        }
    }
}

/// The signals that a process ignores, a bit each, by its status in `/proc`.
fn ignored(status: &str) -> u64 {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_signal_has_interrupted_is_undone_within_a_bound() {
        let most = Duration::from_secs(2);
        let mut signals = Signals::catch(&[]).unwrap();
        assert_eq!(signals.undo(most, async { 7 }).await, Some(7));
        let never = std::future::pending::<()>();
        assert_eq!(timeout(most * 2, signals.undo(most, never)).await, Ok(None));
    }

    #[tokio::test]
    async fn one_more_signal_ends_the_undoing() {
        let mut signals = Signals::catch(&[Signal::USR1]).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Signal::USR1).unwrap();
        let never = std::future::pending::<()>();
        assert_eq!(signals.undo(Duration::MAX, never).await, None);
    }

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        let mask = ignored("SigBlk:\t0000000000004000\nSigIgn:\t0000000000000003\nSigCgt:\t0\n");
        let is_ignored = |signal| mask & bit(signal) != 0;
        assert!(is_ignored(Signal::HUP) && is_ignored(Signal::INT));
        assert!(!is_ignored(Signal::QUIT) && !is_ignored(Signal::TERM));
        assert_eq!(ignored(""), 0);
    }
}
