//! Watches: what happens to grants, told to those who asked, from a bounded ring of the latest
//! events. Every node has one, since every node applies the log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoch_core::{Cursor, Epoch, Scope};
use epoch_machine::{GrantEvent, GrantEventKind};
use tokio::sync::watch;

/// Events kept at most: some 20 MB, and seconds of the busiest cluster.
const EVENTS_MAX: usize = if cfg!(test) { 8 } else { 100_000 };
/// Events handed out at once at most.
const BATCH_MAX: usize = 512;
/// And so many bytes of names: a connection that is not read holds an answer or some.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// What a watch is of.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    /// One scope.
    Scope(Scope),
    /// All that begin with this text; every one when it is empty.
    Prefix(String),
}

impl Of {
    fn has(&self, event: &GrantEvent) -> bool {
        match self {
            Self::Scope(scope) => *event.scope == *scope.as_str(),
            Self::Prefix(prefix) => event.scope.starts_with(prefix.as_str()),
        }
    }
}

/// The events after a cursor are gone, or were never known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the events after this cursor are gone: the oldest that is known comes after {oldest}")]
pub(crate) struct Compacted {
    oldest: Cursor,
}

/// The latest events of grants, and who waits for more.
#[derive(Debug, Clone)]
pub(crate) struct Watches {
    ring: Arc<Mutex<Ring>>,
    /// The place of the latest event, or of what is not known one by one.
    latest: watch::Sender<Cursor>,
}

#[derive(Debug, Default)]
struct Ring {
    /// In order of their cursors.
    events: VecDeque<Arc<GrantEvent>>,
    /// Everything after it is among the events.
    before: Cursor,
    /// The log index up to which everything is known.
    applied: u64,
}

impl Default for Watches {
    fn default() -> Self {
        let (latest, _) = watch::channel(Cursor::default());
        Self {
            ring: Arc::default(),
            latest,
        }
    }
}

impl Watches {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry at `index` brought these about, in order.
    pub(crate) fn publish(&self, index: u64, events: Vec<GrantEvent>) {
        let mut ring = self.ring();
        ring.applied = index;
        let latest = events.last().map(|event| event.cursor);
        for event in events {
            ring.events.push_back(Arc::new(event));
            if ring.events.len() > EVENTS_MAX
                && let Some(gone) = ring.events.pop_front()
            {
                ring.before = gone.cursor;
            }
        }
        drop(ring);
        // What brought nothing about wakes nobody.
        if let Some(latest) = latest {
            self.latest.send_replace(latest);
        }
    }

    /// Nothing is known of what happened up to `index`.
    pub(crate) fn skip_to(&self, index: u64) {
        let mut ring = self.ring();
        ring.events.clear();
        ring.before = end_of(index);
        ring.applied = index;
        drop(ring);
        self.latest.send_replace(end_of(index));
    }

    /// Whether the entry at `index` revoked this epoch, as far as that is still known.
    pub(crate) fn has_revoked(&self, scope: &Scope, epoch: Epoch, index: u64) -> bool {
        let ring = self.ring();
        let from = ring
            .events
            .partition_point(|event| event.cursor.index < index);
        let of_entry = ring.events.range(from..);
        of_entry
            .take_while(|event| event.cursor.index == index)
            .any(|event| {
                event.kind == GrantEventKind::Revoked
                    && event.epoch == epoch
                    && *event.scope == *scope.as_str()
            })
    }

    /// Begins to watch right after a cursor, or from now on.
    pub(crate) fn watch(&self, of: Of, after: Option<Cursor>) -> Watch {
        let after = after.unwrap_or_else(|| end_of(self.ring().applied));
        Watch {
            watches: self.clone(),
            latest: self.latest.subscribe(),
            of,
            after,
        }
    }
}

/// After everything that the entry at `index` brought about.
fn end_of(index: u64) -> Cursor {
    Cursor {
        index,
        offset: u32::MAX,
    }
}

/// One watch. It keeps nothing but its place: a slow one reads on in the ring, or finds its place
/// gone.
#[derive(Debug)]
pub(crate) struct Watch {
    watches: Watches,
    latest: watch::Receiver<Cursor>,
    of: Of,
    after: Cursor,
}

/// What a watch has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// In order; none when nothing has happened to what is watched.
    pub(crate) events: Vec<Arc<GrantEvent>>,
    /// Everything up to there has been said.
    pub(crate) cursor: Cursor,
    /// There may be more already.
    pub(crate) more: bool,
    /// The watch began after a cursor that this node's log has not come to.
    pub(crate) ahead: bool,
}

impl Watch {
    /// What has happened since it last said something; without waiting.
    pub(crate) fn say(&mut self) -> Result<Said, Compacted> {
        let ring = self.watches.ring();
        if self.after < ring.before {
            return Err(Compacted {
                oldest: ring.before,
            });
        }
        let from = ring
            .events
            .partition_point(|event| event.cursor <= self.after);
        let mut said = Said {
            events: Vec::new(),
            // This node may be behind the one that gave the cursor.
            cursor: end_of(ring.applied).max(self.after),
            more: false,
            ahead: self.after.index > ring.applied,
        };
        let mut bytes = 0;
        for event in ring.events.range(from..) {
            if let Some(last) = said.events.last()
                && (said.events.len() == BATCH_MAX || bytes >= BATCH_BYTES_MAX)
            {
                said.cursor = last.cursor;
                said.more = true;
                break;
            }
            if self.of.has(event) {
                bytes += name_bytes(event);
                said.events.push(Arc::clone(event));
            }
        }
        drop(ring);
        self.after = said.cursor;
        Ok(said)
    }

    /// Returns once something has happened that [`Watch::say`] has not spoken of.
    pub(crate) async fn more(&mut self) {
        let after = self.after;
        // The sender lives as long as the watches do.
        let more = self.latest.wait_for(|latest| *latest > after);
        drop(more.await);
    }
}

fn name_bytes(event: &GrantEvent) -> usize {
    let holder = event.who.as_ref().map(|(holder, _)| holder.as_str().len());
    event.scope.len() + holder.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use epoch_core::Epoch;
    use epoch_machine::GrantEventKind;

    use super::*;

    fn event(scope: &str, index: u64, offset: u32) -> GrantEvent {
        GrantEvent {
            cursor: Cursor { index, offset },
            time_ms: 1,
            kind: GrantEventKind::Granted,
            scope: scope.into(),
            epoch: Epoch::new(index).unwrap(),
            ended: None,
            request_id: None,
            who: None,
        }
    }

    fn all() -> Of {
        Of::Prefix(String::new())
    }

    fn said(watch: &mut Watch) -> Vec<(u64, u32)> {
        let said = watch.say().unwrap();
        let cursors = said.events.iter().map(|event| event.cursor);
        cursors.map(|at| (at.index, at.offset)).collect()
    }

    #[test]
    fn each_event_is_said_once_and_in_order() {
        let watches = Watches::default();
        watches.skip_to(3);
        let mut watch = watches.watch(all(), None);
        assert_eq!(said(&mut watch), []);
        watches.publish(4, vec![event("a", 4, 1), event("b", 4, 2)]);
        watches.publish(5, vec![]);
        watches.publish(6, vec![event("a", 6, 1)]);
        assert_eq!(said(&mut watch), [(4, 1), (4, 2), (6, 1)]);
        assert_eq!(said(&mut watch), []);
    }

    #[test]
    fn a_watch_goes_on_after_a_cursor_also_within_an_entry() {
        let watches = Watches::default();
        watches.publish(4, vec![event("a", 4, 1), event("a", 4, 2)]);
        watches.publish(5, vec![event("a", 5, 1)]);
        let after = |index, offset| watches.watch(all(), Some(Cursor { index, offset }));
        assert_eq!(said(&mut after(4, 1)), [(4, 2), (5, 1)]);
        assert_eq!(said(&mut after(4, u32::MAX)), [(5, 1)]);
        assert_eq!(said(&mut after(5, 1)), []);
        // Given by a node that is further.
        let mut ahead = after(7, 1);
        assert_eq!(said(&mut ahead), []);
        watches.publish(7, vec![event("a", 7, 1), event("a", 7, 2)]);
        assert_eq!(said(&mut ahead), [(7, 2)]);
    }

    #[test]
    fn a_watch_is_of_one_scope_or_of_a_prefix() {
        let watches = Watches::default();
        let names = ["a", "a/b", "b"];
        let events = (1..)
            .zip(names)
            .map(|(offset, name)| event(name, 4, offset));
        watches.publish(4, events.collect());
        let first = Some(Cursor::default());
        let scope = Of::Scope(Scope::parse("a").unwrap());
        assert_eq!(said(&mut watches.watch(scope, first)), [(4, 1)]);
        let prefix = Of::Prefix("a".to_owned());
        assert_eq!(said(&mut watches.watch(prefix, first)), [(4, 1), (4, 2)]);
    }

    #[test]
    fn a_place_that_is_gone_is_said_to_be() {
        let watches = Watches::default();
        let mut slow = watches.watch(all(), None);
        for index in 1..=9 {
            watches.publish(index, vec![event("a", index, 1)]);
        }
        let first = Cursor {
            index: 1,
            offset: 1,
        };
        assert_eq!(slow.say(), Err(Compacted { oldest: first }));
        let mut watch = watches.watch(all(), Some(first));
        assert_eq!(said(&mut watch).len(), EVENTS_MAX);
        watches.skip_to(20);
        assert!(watches.watch(all(), Some(first)).say().is_err());
        assert_eq!(said(&mut watches.watch(all(), Some(end_of(20)))), []);
    }

    #[test]
    fn a_watch_that_is_ahead_of_the_log_is_told_apart() {
        let watches = Watches::default();
        watches.skip_to(3);
        assert!(!watches.watch(all(), None).say().unwrap().ahead);
        let mut ahead = watches.watch(all(), Some(end_of(4)));
        assert!(ahead.say().unwrap().ahead);
        watches.publish(4, vec![]);
        assert!(!ahead.say().unwrap().ahead);
    }

    #[tokio::test]
    async fn a_watch_is_woken_by_what_comes() {
        let watches = Watches::default();
        let mut watch = watches.watch(all(), None);
        watch.say().unwrap();
        watches.publish(1, vec![event("a", 1, 1)]);
        watch.more().await;
        assert_eq!(said(&mut watch), [(1, 1)]);
    }
}
