//! First come, first served.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use epoch_core::RequestId;

use super::Violation;
use crate::command::SessionKey;
use crate::event::{Event, GrantEventKind, WaitEnd};

type Queue = VecDeque<(SessionKey, RequestId)>;

/// Waits for one scope are granted in the order in which they began; only a transfer goes before
/// the queue.
///
/// `events` are those of one stretch of the log, from its beginning.
///
/// # Errors
/// The first wait that was granted before another that had begun earlier.
pub fn first_come_first_served<'a>(
    events: impl IntoIterator<Item = &'a Event>,
) -> Result<(), Violation> {
    let mut queues: BTreeMap<Arc<str>, Queue> = BTreeMap::new();
    let mut events = events.into_iter().peekable();
    while let Some(event) = events.next() {
        match event {
            Event::WaitBegun {
                scope,
                session,
                request_id,
                ..
            } => queues
                .entry(Arc::clone(scope))
                .or_default()
                .push_back((*session, *request_id)),
            Event::WaitEnded {
                scope,
                session,
                request_id,
                end,
            } => {
                let queue = queues.entry(Arc::clone(scope)).or_default();
                let id = (*session, *request_id);
                let first = queue.front().copied();
                let transferred = matches!(events.peek(), Some(Event::Grant(grant))
                    if grant.kind == GrantEventKind::Transferred && grant.scope == *scope);
                if *end == WaitEnd::Granted && !transferred && first != Some(id) {
                    return Err(Violation::OutOfTurn {
                        scope: scope.to_string(),
                        granted: id,
                        first,
                    });
                }
                queue.retain(|other| *other != id);
            }
            Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::Grant(_)
            | Event::DelayBegun { .. }
            | Event::DelayEnded { .. } => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Wait;

    fn begun(index: u64) -> Event {
        Event::WaitBegun {
            scope: "a".into(),
            session: SessionKey { index, offset: 0 },
            request_id: RequestId::FIRST,
            wait: Wait::from_ms(1).unwrap(),
        }
    }

    fn ended(index: u64, end: WaitEnd) -> Event {
        Event::WaitEnded {
            scope: "a".into(),
            session: SessionKey { index, offset: 0 },
            request_id: RequestId::FIRST,
            end,
        }
    }

    #[test]
    fn a_wait_that_is_granted_out_of_turn_is_found() {
        let good = [
            begun(1),
            begun(2),
            begun(3),
            ended(2, WaitEnd::Cancelled),
            ended(1, WaitEnd::Granted),
            ended(3, WaitEnd::Granted),
        ];
        assert_eq!(first_come_first_served(&good), Ok(()));
        let bad = [begun(1), begun(2), ended(2, WaitEnd::Granted)];
        assert!(matches!(
            first_come_first_served(&bad),
            Err(Violation::OutOfTurn { .. })
        ));
    }
}
