//! Things that are due at some time of the leader's, by `CLOCK_BOOTTIME`. Held in memory: a new
//! leader begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Due ones in one batch at most.
pub(crate) const DUE_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Duration,
    /// What is due is under way, and cannot be called back.
    ending: bool,
}

/// Things that are due at some time.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    all: BTreeMap<K, Deadline>,
    /// By time, without those whose end is under way.
    due: BTreeSet<(Duration, K)>,
    last_tick: Duration,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            due: BTreeSet::new(),
            last_tick: Duration::ZERO,
        }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    /// Begins anew at `now`, with nothing.
    pub(crate) fn begin(&mut self, now: Duration) {
        *self = Self {
            last_tick: now,
            ..Self::default()
        };
    }

    /// When it is due, and whether it is ending.
    pub(crate) fn get(&self, key: &K) -> Option<(Duration, bool)> {
        let deadline = self.all.get(key)?;
        Some((deadline.at, deadline.ending))
    }

    /// Makes it due at `at`, whatever it was before.
    pub(crate) fn set(&mut self, key: K, at: Duration) {
        self.remove(&key);
        let ending = false;
        self.all.insert(key.clone(), Deadline { at, ending });
        self.due.insert((at, key));
    }

    /// What was due has ended. Should it have been made due anew meanwhile, that stands.
    pub(crate) fn ended(&mut self, key: &K) {
        if self.all.get(key).is_some_and(|deadline| deadline.ending) {
            self.remove(key);
        }
    }

    /// Those from `first` on, in order.
    pub(crate) fn from(&self, first: &K) -> impl Iterator<Item = &K> {
        self.all.range(first..).map(|(key, _)| key)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((key, deadline)) = self.all.remove_entry(key) {
            self.due.remove(&(deadline.at, key));
        }
    }

    /// Those that are due at `now`; they are ending from here on. A gap of more than `gap_max`
    /// since the last call means that this process was paused: nobody could do anything about them
    /// in it, so it is added to every deadline first. How long it was.
    pub(crate) fn tick(&mut self, now: Duration, gap_max: Duration) -> (Vec<K>, Option<Duration>) {
        let gap = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        let paused = (gap > gap_max).then_some(gap);
        if let Some(gap) = paused {
            self.extend(gap);
        }
        let mut due = Vec::new();
        while due.len() < DUE_MAX
            && let Some((at, key)) = self.due.pop_first()
        {
            if at > now {
                self.due.insert((at, key));
                break;
            }
            if let Some(deadline) = self.all.get_mut(&key) {
                deadline.ending = true;
            }
            due.push(key);
        }
        (due, paused)
    }

    /// What was due did not take effect: it is due again at once. It stays ending, since it may
    /// still take effect.
    pub(crate) fn failed(&mut self, keys: &[K]) {
        for key in keys {
            if let Some(deadline) = self.all.get(key) {
                self.due.insert((deadline.at, key.clone()));
            }
        }
    }

    fn extend(&mut self, gap: Duration) {
        for deadline in self.all.values_mut() {
            deadline.at += gap;
        }
        let due = std::mem::take(&mut self.due);
        self.due = due.into_iter().map(|(at, key)| (at + gap, key)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP_MAX: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn two() -> Deadlines<&'static str> {
        let mut deadlines = Deadlines::default();
        deadlines.begin(ms(0));
        deadlines.set("late", ms(300));
        deadlines.set("early", ms(100));
        deadlines
    }

    #[test]
    fn what_is_due_comes_once_and_in_order() {
        let mut deadlines = two();
        assert_eq!(deadlines.tick(ms(99), GAP_MAX).0, [""; 0]);
        assert_eq!(deadlines.tick(ms(400), GAP_MAX).0, ["early", "late"]);
        assert_eq!(deadlines.get(&"early"), Some((ms(100), true)));
        assert_eq!(deadlines.tick(ms(500), GAP_MAX).0, [""; 0]);
        deadlines.failed(&["early"]);
        assert_eq!(deadlines.tick(ms(600), GAP_MAX).0, ["early"]);
    }

    #[test]
    fn what_is_set_again_is_due_at_the_new_time_only() {
        let mut deadlines = two();
        deadlines.set("early", ms(350));
        assert_eq!(deadlines.tick(ms(300), GAP_MAX).0, ["late"]);
        deadlines.remove(&"early");
        assert_eq!(deadlines.tick(ms(400), GAP_MAX).0, [""; 0]);
    }

    #[test]
    fn what_was_made_due_anew_while_its_end_was_under_way_stands() {
        let mut deadlines = two();
        assert_eq!(deadlines.tick(ms(400), GAP_MAX).0, ["early", "late"]);
        deadlines.set("early", ms(600));
        deadlines.ended(&"early");
        deadlines.ended(&"late");
        assert_eq!(deadlines.get(&"late"), None);
        assert_eq!(deadlines.tick(ms(600), GAP_MAX).0, ["early"]);
    }

    #[test]
    fn a_pause_is_added_to_every_deadline() {
        let mut deadlines = two();
        assert_eq!(
            deadlines.tick(ms(10_000), GAP_MAX),
            (vec![], Some(ms(10_000)))
        );
        assert_eq!(deadlines.tick(ms(10_100), GAP_MAX).0, ["early"]);
    }

    #[test]
    fn an_end_that_failed_is_tried_again_after_a_pause() {
        let mut deadlines = two();
        assert_eq!(deadlines.tick(ms(100), GAP_MAX).0, ["early"]);
        deadlines.failed(&["early"]);
        assert_eq!(deadlines.tick(ms(10_000), GAP_MAX).0, ["early"]);
    }
}
