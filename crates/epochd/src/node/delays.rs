//! The leader's side of lock delays: until when each lasts. Held in memory by the leader alone.

use std::sync::Arc;
use std::time::Duration;

use epoch_machine::{Event, LockDelay};

use super::deadlines::Deadlines;

/// Lock delays under one leadership.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    leads: bool,
    deadlines: Deadlines<Arc<str>>,
}

impl Delays {
    /// Begins a leadership at `now`: every delay lasts anew.
    pub(crate) fn begin(
        &mut self,
        now: Duration,
        delays: impl Iterator<Item = (Arc<str>, LockDelay)>,
    ) {
        self.leads = true;
        self.deadlines.begin(now);
        for (scope, delay) in delays {
            self.deadlines.set(scope, now + time_of(delay));
        }
    }

    /// Ends the leadership.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Takes note of what the log says.
    pub(crate) fn note(&mut self, event: &Event, now: Duration) {
        match event {
            Event::DelayBegun { scope, delay, .. } if self.leads => {
                self.deadlines.set(Arc::clone(scope), now + time_of(*delay));
            }
            Event::DelayEnded { scope } => self.deadlines.remove(scope),
            Event::DelayBegun { .. }
            | Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::Grant(_)
            | Event::WaitBegun { .. }
            | Event::WaitEnded { .. } => {}
        }
    }

    /// Scopes whose delay is over.
    pub(crate) fn tick(&mut self, now: Duration, gap_max: Duration) -> Vec<Arc<str>> {
        self.deadlines.tick(now, gap_max).0
    }

    /// The ends of these delays have taken effect.
    pub(crate) fn ended(&mut self, scopes: &[Arc<str>]) {
        scopes.iter().for_each(|scope| self.deadlines.ended(scope));
    }

    /// They have not.
    pub(crate) fn failed(&mut self, scopes: &[Arc<str>]) {
        self.deadlines.failed(scopes);
    }
}

fn time_of(delay: LockDelay) -> Duration {
    Duration::from_millis(delay.ms())
}
