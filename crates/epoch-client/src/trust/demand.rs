//! Fetches that certificates ask for: how many ask at once, and how soon again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Counts fetches, and hands out at most one on demand in so much time.
#[derive(Debug)]
pub(super) struct Demand {
    cool_down: Duration,
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Fetches that have begun, on demand or not.
    begun: u64,
    /// The last one on demand: its number, and when it was asked for.
    last: Option<(u64, Instant)>,
}

impl Demand {
    pub(super) fn new(cool_down: Duration) -> Self {
        Self {
            cool_down,
            state: Mutex::new(State::default()),
            wanted: Notify::new(),
        }
    }

    /// The number of the fetch to wait for: one that begins from now on, or the last one that was
    /// asked for, which may have ended, where that was a moment ago.
    pub(super) fn fetch(&self) -> u64 {
        let mut state = self.state();
        match state.last {
            Some((number, asked)) if asked.elapsed() < self.cool_down => number,
            Some(_) | None => {
                let number = state.begun + 1;
                state.last = Some((number, Instant::now()));
                self.wanted.notify_one();
                number
            }
        }
    }

    /// Returns once a fetch is asked for that has not begun.
    pub(super) async fn asked(&self) {
        loop {
            self.wanted.notified().await;
            let state = self.state();
            if state.last.is_some_and(|(number, _)| number > state.begun) {
                return;
            }
        }
    }

    /// A fetch begins: its number, and whether it was asked for.
    pub(super) fn begin(&self) -> (u64, bool) {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        (number, state.last.is_some_and(|(asked, _)| asked == number))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every state of it is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
