//! What applying the log brings about, on its way to those who act on it.

use epoch_machine::Event;
use tokio::sync::mpsc;

use crate::watch::Watches;

/// Where the apply loop, which never waits, tells what happened.
#[derive(Debug, Clone)]
pub(crate) struct Happenings {
    /// For the leader's leases and timers, with the log index. Unbounded; drained all the time, also
    /// without a leadership.
    timers: mpsc::UnboundedSender<(u64, Event)>,
    watches: Watches,
}

impl Happenings {
    pub(crate) fn new(watches: Watches) -> (Self, mpsc::UnboundedReceiver<(u64, Event)>) {
        let (timers, events) = mpsc::unbounded_channel();
        (Self { timers, watches }, events)
    }

    /// Everything that the entry at `index` brought about, in order.
    pub(super) fn tell(&self, index: u64, events: Vec<Event>) {
        let mut grants = Vec::new();
        for event in events {
            match event {
                Event::Grant(grant) => grants.push(grant),
                other => {
                    // The keeper of the timers is gone only when the node stops.
                    drop(self.timers.send((index, other)));
                }
            }
        }
        self.watches.publish(index, grants);
    }

    /// The state goes on from a snapshot that was taken at `index`: what happened up to there is
    /// not known one by one.
    pub(super) fn skip_to(&self, index: u64) {
        self.watches.skip_to(index);
    }
}
