//! The signals that ask this process to end.

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;

/// The signals that ask this process to end. `run` passes them on to its command instead; a wait
/// and a watch end in order.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    quit: unix::Signal,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn install() -> Result<Self, Failure> {
        let install = |kind| {
            unix::signal(kind).map_err(|error| {
                Failure::local(format!("cannot catch signals: {error}"), "try again")
            })
        };
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
            hangup: install(SignalKind::hangup())?,
            quit: install(SignalKind::quit())?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::INT,
            Some(()) = self.terminate.recv() => Signal::TERM,
            Some(()) = self.hangup.recv() => Signal::HUP,
            Some(()) = self.quit.recv() => Signal::QUIT,
            else => std::future::pending().await,
        }
    }
}
