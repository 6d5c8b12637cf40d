//! Which connections of a listener are open, and which of them have to go. It knows no clock: time
//! is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Unproven connections of a listener at most.
pub(super) const UNPROVEN_MAX: usize = 1_024;
/// How long an unproven connection may go without completing a request.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(10);
/// A new connection is given this long to say something before it counts as a silent one. Without
/// it, callers that keep all places busy with requests without an end would have every new caller
/// closed before its first call.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// The connections of one listener. Each has a number; a number that is not known any more is that
/// of a closed connection, and nothing can be done to it.
#[derive(Debug)]
pub(super) struct Book {
    open_max: usize,
    next: u64,
    proven: BTreeSet<u64>,
    unproven: BTreeMap<u64, Unproven>,
}

#[derive(Debug)]
struct Unproven {
    /// When it came, or last completed a request.
    since: Instant,
    under_way: usize,
    closing: CancellationToken,
}

impl Unproven {
    fn is_silent(&self, now: Instant, within: Duration) -> bool {
        self.under_way == 0 && now.saturating_duration_since(self.since) >= within
    }
}

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: u64,
    /// Is cancelled when it has to close.
    pub(super) closing: CancellationToken,
    /// Whether another one has to close for it.
    pub(super) displaced: bool,
}

impl Book {
    /// Of a listener with `open_max` connections at most.
    pub(super) fn new(open_max: usize) -> Self {
        Self {
            open_max,
            next: 0,
            proven: BTreeSet::new(),
            unproven: BTreeMap::new(),
        }
    }

    /// Connections that are not proven.
    pub(super) fn unproven(&self) -> usize {
        self.unproven.len()
    }

    /// Lets a new one in. Where there is no room, the unproven one that has been silent longest is
    /// closed for it; none, where all are proven.
    pub(super) fn open(&mut self, now: Instant) -> Option<Opened> {
        let open = self.unproven.len() + self.proven.len();
        let displaced = self.unproven.len() >= UNPROVEN_MAX || open >= self.open_max;
        if displaced {
            let least = self.least(now)?;
            self.close(least);
        }
        let id = self.next;
        self.next += 1;
        let closing = CancellationToken::new();
        let unproven = Unproven {
            since: now,
            under_way: 0,
            closing: closing.clone(),
        };
        self.unproven.insert(id, unproven);
        Some(Opened {
            id,
            closing,
            displaced,
        })
    }

    /// The one that is missed least: that has been silent longest or, where none is silent, whose
    /// last request was completed longest ago.
    fn least(&self, now: Instant) -> Option<u64> {
        let spared = |unproven: &Unproven| !unproven.is_silent(now, FIRST_WORD_WITHIN);
        self.unproven
            .iter()
            .min_by_key(|(_, unproven)| (spared(unproven), unproven.since))
            .map(|(id, _)| *id)
    }

    /// A request on it is under way.
    pub(super) fn begin(&mut self, id: u64) {
        if let Some(unproven) = self.unproven.get_mut(&id) {
            unproven.under_way += 1;
        }
    }

    /// A request on it is over; `completed` unless it was denied, or cut off before its answer.
    pub(super) fn end(&mut self, id: u64, completed: bool, now: Instant) {
        if let Some(unproven) = self.unproven.get_mut(&id) {
            unproven.under_way = unproven.under_way.saturating_sub(1);
            if completed {
                unproven.since = now;
            }
        }
    }

    /// Its caller is known. False when it is too late for that.
    pub(super) fn prove(&mut self, id: u64) -> bool {
        let known = self.unproven.remove(&id).is_some();
        if known {
            self.proven.insert(id);
        }
        known
    }

    /// It is not there any more.
    pub(super) fn gone(&mut self, id: u64) {
        if !self.proven.remove(&id) {
            self.unproven.remove(&id);
        }
    }

    /// Closes those that have been silent for too long; how many.
    pub(super) fn close_silent(&mut self, now: Instant) -> usize {
        let silent: Vec<_> = self
            .unproven
            .iter()
            .filter(|(_, unproven)| unproven.is_silent(now, SILENT_MAX))
            .map(|(id, _)| *id)
            .collect();
        for id in &silent {
            self.close(*id);
        }
        silent.len()
    }

    /// It counts as gone from now on; its task sees to the rest at once.
    fn close(&mut self, id: u64) {
        if let Some(unproven) = self.unproven.remove(&id) {
            unproven.closing.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 16_384;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn open(book: &mut Book, now: Instant) -> Opened {
        book.open(now).unwrap()
    }

    #[test]
    fn one_that_completes_no_request_for_ten_seconds_is_closed() {
        let begin = Instant::now();
        let mut book = Book::new(MANY);
        let silent = open(&mut book, begin);
        let used = open(&mut book, begin);
        let denied = open(&mut book, begin);
        for (connection, completed) in [(&used, true), (&denied, false)] {
            book.begin(connection.id);
            book.end(connection.id, completed, begin + seconds(5));
        }
        let just_before = begin + SILENT_MAX - Duration::from_millis(1);
        assert_eq!(book.close_silent(just_before), 0);
        assert_eq!(book.close_silent(begin + SILENT_MAX), 2);
        assert!(silent.closing.is_cancelled());
        assert!(denied.closing.is_cancelled());
        assert!(!used.closing.is_cancelled());
        assert_eq!(book.unproven(), 1);
        assert_eq!(book.close_silent(begin + seconds(15)), 1);
        assert!(used.closing.is_cancelled());
    }

    #[test]
    fn one_with_a_request_under_way_is_not_silent() {
        let begin = Instant::now();
        let mut book = Book::new(MANY);
        let busy = open(&mut book, begin);
        book.begin(busy.id);
        book.begin(busy.id);
        book.end(busy.id, true, begin + seconds(1));
        assert_eq!(book.close_silent(begin + seconds(100)), 0);
        book.end(busy.id, true, begin + seconds(100));
        assert_eq!(book.close_silent(begin + seconds(109)), 0);
        assert_eq!(book.close_silent(begin + seconds(110)), 1);
    }

    #[test]
    fn one_that_is_proven_stays_and_one_that_was_closed_cannot_be_proven() {
        let begin = Instant::now();
        let mut book = Book::new(MANY);
        let [proven, late] = [(); 2].map(|()| open(&mut book, begin));
        book.begin(proven.id);
        assert!(book.prove(proven.id));
        assert!(!book.prove(proven.id), "once is enough");
        book.end(proven.id, true, begin);
        assert_eq!(book.close_silent(begin + seconds(100)), 1);
        assert!(!proven.closing.is_cancelled());
        assert!(late.closing.is_cancelled());
        assert!(!book.prove(late.id));
        book.gone(late.id);
        book.gone(proven.id);
        assert!(book.proven.is_empty() && book.unproven.is_empty());
    }

    #[test]
    fn the_longest_silent_one_goes_when_one_more_comes_than_may_be_unproven() {
        let begin = Instant::now();
        let mut book = Book::new(MANY);
        let at = |index: usize| begin + Duration::from_millis(u64::try_from(index).unwrap());
        let first: Vec<_> = (0..UNPROVEN_MAX)
            .map(|index| open(&mut book, at(index)))
            .collect();
        assert!(first.iter().all(|opened| !opened.displaced));
        // The first has said something since, and the second is at it.
        book.begin(first[0].id);
        book.end(first[0].id, true, at(UNPROVEN_MAX));
        book.begin(first[1].id);
        let now = begin + seconds(5);
        for displaced in &first[2..] {
            assert!(!displaced.closing.is_cancelled());
            assert!(open(&mut book, now).displaced);
            assert!(displaced.closing.is_cancelled());
            assert_eq!(book.unproven(), UNPROVEN_MAX);
        }
        assert!(!first[0].closing.is_cancelled() && !first[1].closing.is_cancelled());
        // Of those that are left, silent ones go before one that is at something.
        assert!(open(&mut book, now).displaced);
        assert!(first[0].closing.is_cancelled() && !first[1].closing.is_cancelled());
    }

    #[test]
    fn a_new_one_is_not_closed_for_a_newer_while_the_others_are_busy_without_an_end() {
        let begin = Instant::now();
        let mut book = Book::new(MANY);
        let busy: Vec<_> = (1..UNPROVEN_MAX).map(|_| open(&mut book, begin)).collect();
        for opened in &busy {
            book.begin(opened.id);
        }
        let new = open(&mut book, begin + seconds(50));
        let now = begin + seconds(50) + Duration::from_millis(999);
        let newer = open(&mut book, now);
        assert!(newer.displaced && !new.closing.is_cancelled());
        assert!(busy[0].closing.is_cancelled());
        // It had its time.
        open(&mut book, begin + seconds(51));
        assert!(new.closing.is_cancelled() && !newer.closing.is_cancelled());
    }

    #[test]
    fn with_all_places_taken_an_unproven_one_goes_and_with_none_the_new_one() {
        let begin = Instant::now();
        let mut book = Book::new(3);
        let proven: Vec<_> = (0..2).map(|_| open(&mut book, begin)).collect();
        for opened in &proven {
            book.prove(opened.id);
        }
        let unproven = open(&mut book, begin);
        let last = open(&mut book, begin);
        assert!(last.displaced && unproven.closing.is_cancelled());
        book.prove(last.id);
        assert!(book.open(begin).is_none());
        // The end of one that was closed makes no room a second time.
        book.gone(unproven.id);
        assert!(book.open(begin).is_none());
        book.gone(last.id);
        assert!(!open(&mut book, begin).displaced);
    }
}
