//! How many connections a listener has, and for how long.
//!
//! A connection is *unproven* until a call on it was admitted for somebody: until then it may be a
//! stranger's, who opens many and says nothing. Of those there are only so many, and each only for
//! as long as it completes requests; one more takes the place of the one that has been silent
//! longest, so that strangers cannot lock out those who have business here.
//!
//! - [`book`]: who has a place, and who loses it. [`request`]: what a connection is used for.

mod book;
mod request;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::book::Book;
use self::request::UnderWay;
use crate::metrics::ConnectionMetrics;

/// Connections of a listener at most, where the process may have twice as many open files.
const OPEN_MAX: usize = 16_384;
/// How often silent ones are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    book: Mutex<Book>,
    metrics: ConnectionMetrics,
}

impl Connections {
    /// Of a listener that does not listen yet.
    pub(crate) fn new(metrics: ConnectionMetrics) -> Arc<Self> {
        Arc::new(Self {
            book: Mutex::new(Book::new(open_max())),
            metrics,
        })
    }

    /// The listener's name.
    pub(crate) fn listener(&self) -> &'static str {
        self.metrics.listener
    }

    /// A place for a new connection; none where all places are taken by proven ones.
    pub(crate) fn open(self: &Arc<Self>) -> Option<Held> {
        let Some(opened) = self.change(|book| book.open(Instant::now())) else {
            self.metrics.turned_away.increment(1);
            return None;
        };
        if opened.displaced {
            self.metrics.displaced.increment(1);
        }
        let place = Place {
            id: opened.id,
            connections: Arc::clone(self),
            proven: AtomicBool::new(false),
        };
        Some(Held {
            place: Arc::new(place),
            closing: opened.closing,
        })
    }

    /// Closes those that are silent for too long. Never ends.
    pub(crate) async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let closed = self.change(|book| book.close_silent(Instant::now()));
            let closed = u64::try_from(closed).unwrap_or(u64::MAX);
            self.metrics.silent.increment(closed);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of which ones are open or proven.
    fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let mut book = self.book();
        let changed = change(&mut book);
        let unproven = u32::try_from(book.unproven()).unwrap_or(u32::MAX);
        self.metrics.unproven.set(unproven);
        changed
    }
}

/// Half of the files that the process may have open: the rest is for its disk and its peers.
fn open_max() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    half.map_or(OPEN_MAX, |half| half.clamp(1, OPEN_MAX))
}

/// A connection's place, for as long as it is open.
#[derive(Debug)]
pub(crate) struct Held {
    place: Arc<Place>,
    closing: CancellationToken,
}

impl Held {
    /// What its requests know of it.
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Cancelled when the connection has to close.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let id = self.place.id;
        self.place.connections.change(|book| book.gone(id));
    }
}

/// A connection, as its requests know it.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    connections: Arc<Connections>,
    /// Spares those that are proven, which are most, the lock.
    proven: AtomicBool,
}

impl Place {
    /// Whether its caller is known.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Its caller is known: it stays open for as long as that one wants.
    pub(crate) fn prove(&self) {
        if !self.is_proven() && self.connections.change(|book| book.prove(self.id)) {
            self.proven.store(true, Ordering::Relaxed);
        }
    }

    /// A request on it begins; nothing where nobody counts them any more.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        if self.is_proven() {
            return None;
        }
        self.connections.book().begin(self.id);
        Some(UnderWay::new(Arc::clone(self)))
    }

    fn end(&self, completed: bool) {
        if !self.is_proven() {
            let now = Instant::now();
            self.connections.book().end(self.id, completed, now);
        }
    }
}
