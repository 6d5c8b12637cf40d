//! More planted bugs, each to be found by the random run: of waits, transfers, delays, records and
//! what is told of them.

use std::sync::Arc;

use super::mutants::found;
use super::promises::Failure;
use super::run::Apply;
use crate::apply::apply;
use crate::command::{Batch, Command, Entry, SessionKey};
use crate::event::{Event, GrantEventKind, WaitEnd};
use crate::outcome::{Applied, ForeignLeadership, Outcome, Refusal};
use crate::promise::Violation;
use crate::record::{DoneIntent, Record};
use crate::rows::{Place, Row, Waiting};
use crate::state::State;

type Result = std::result::Result<Applied, ForeignLeadership>;

/// The first place of each queue and the last, with who has them.
fn ends_of_queues(state: &State) -> Vec<[(Place, Waiting); 2]> {
    let queues = state.queue_lengths.keys();
    let ends = queues.filter_map(|name| {
        let mut queue = state.queue(name);
        let clone = |(place, waiting): (&Place, &Waiting)| (place.clone(), waiting.clone());
        Some([clone(queue.next()?), clone(queue.last()?)])
    });
    ends.collect()
}

fn serves_who_came_last(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    if batch.leadership != entry.leadership {
        return Err(ForeignLeadership);
    }
    let ends = ends_of_queues(state);
    for [(first, one), (last, other)] in &ends {
        state.remove_wait(first);
        state.remove_wait(last);
        state.add_wait(first.clone(), other.clone());
        state.add_wait(last.clone(), one.clone());
    }
    let applied = apply(state, entry, batch)?;
    // Who still waits stands where it stood.
    for [(first, one), (last, other)] in ends {
        let at = |place| state.rows.waits().contains_key(place);
        let (other_waits, one_waits) = (at(&first), at(&last));
        state.remove_wait(&first);
        state.remove_wait(&last);
        if one_waits {
            state.add_wait(first, one);
        }
        if other_waits {
            state.add_wait(last, other);
        }
    }
    Ok(applied)
}

#[test]
fn a_queue_that_serves_who_came_last_is_found() {
    let failure = found(serves_who_came_last);
    assert!(
        matches!(failure, Failure::Promise(Violation::OutOfTurn { .. })),
        "{failure}"
    );
}

fn calls_a_grant_a_cancel(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for event in &mut applied.events {
        if let Event::WaitEnded { end, .. } = event
            && *end == WaitEnd::Granted
        {
            *end = WaitEnd::Cancelled;
        }
    }
    Ok(applied)
}

#[test]
fn an_event_that_says_something_else_is_found() {
    let failure = found(calls_a_grant_a_cancel);
    assert!(matches!(failure, Failure::Told(_)), "{failure}");
}

fn grants_to_the_dead(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let waits: Vec<_> = state
        .rows
        .waits()
        .iter()
        .map(|(place, waiting)| (place.clone(), waiting.clone()))
        .collect();
    let applied = apply(state, entry, batch)?;
    for event in &applied.events {
        if let Event::WaitEnded {
            session,
            request_id,
            end: WaitEnd::SessionEnded,
            ..
        } = event
        {
            let own = |(_, waiting): &&(Place, Waiting)| {
                (waiting.session, waiting.request_id) == (*session, *request_id)
            };
            if let Some((place, waiting)) = waits.iter().find(own) {
                state.add_wait(place.clone(), waiting.clone());
            }
        }
    }
    Ok(applied)
}

#[test]
fn a_dead_session_that_goes_on_waiting_is_found() {
    let failure = found(grants_to_the_dead);
    assert!(
        matches!(
            failure,
            Failure::Promise(Violation::Inconsistent(_)) | Failure::Told(_)
        ),
        "{failure}"
    );
}

fn lets_a_retry_wait_too(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let waited = state.waiting.clone();
    let applied = apply(state, entry, batch)?;
    for ((offset, command), outcome) in (0..).zip(&batch.commands).zip(&applied.outcomes) {
        if let (
            Command::Acquire {
                session,
                request_id,
                ..
            },
            Outcome::Waiting,
        ) = (command, outcome)
            && let Some(first) = waited.get(&(SessionKey::from(session), *request_id))
            && let Some(waiting) = state.rows.waits().get(first).cloned()
        {
            let place = Place {
                scope: Arc::clone(&first.scope),
                index: entry.index,
                offset,
            };
            state.add_wait(place, waiting);
        }
    }
    Ok(applied)
}

#[test]
fn a_retry_that_waits_a_second_time_is_found() {
    let failure = found(lets_a_retry_wait_too);
    assert!(
        matches!(
            failure,
            Failure::Refused(_) | Failure::Told(_) | Failure::Promise(Violation::Inconsistent(_))
        ),
        "{failure}"
    );
}

fn knows_no_delay(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for name in state.delayed.clone() {
        let row = state.rows.scopes().get(&name).cloned();
        if let Some(row) = row.filter(|_| state.queue_length(&name) == 0) {
            state.put_row(&name, Row::free(row.epoch));
            let of_it =
                |event: &Event| matches!(event, Event::DelayBegun { scope, .. } if *scope == name);
            applied.events.retain(|event| !of_it(event));
        }
    }
    Ok(applied)
}

#[test]
fn a_delay_that_is_ignored_is_found() {
    let failure = found(knows_no_delay);
    assert!(matches!(failure, Failure::Told(_)), "{failure}");
}

fn lets_the_old_holder_write(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for (command, outcome) in batch.commands.iter().zip(&mut applied.outcomes) {
        if let (
            Command::WriteRecord {
                scope,
                epoch,
                value: Some(value),
                intent: None,
                expected_revision: None,
                ..
            },
            Outcome::Refused(Refusal::Superseded { .. }),
        ) = (command, &*outcome)
        {
            let old = state.record(scope).cloned();
            let floor = old.as_ref().map_or(state.now_ms << 10, |old| old.revision);
            let record = Record {
                revision: floor + 1,
                value: Some(value.clone()),
                epoch: *epoch,
                intents: old.map_or_else(Arc::default, |old| old.intents),
            };
            state.put_record(scope.shared(), record);
            *outcome = Outcome::RecordWritten {
                revision: floor + 1,
                had_effect: true,
                replayed: false,
            };
        }
    }
    Ok(applied)
}

#[test]
fn a_write_of_an_old_holder_that_is_let_in_is_found() {
    let failure = found(lets_the_old_holder_write);
    assert!(matches!(failure, Failure::Record(_)), "{failure}");
}

fn executes_an_intent_again(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for (command, outcome) in batch.commands.iter().zip(&mut applied.outcomes) {
        if let (
            Command::WriteRecord { scope, value, .. },
            Outcome::RecordWritten {
                had_effect,
                replayed: true,
                ..
            },
        ) = (command, &*outcome)
            && let Some(mut record) = state.record(scope).cloned()
        {
            record.revision += 1;
            record.value.clone_from(value);
            let had_effect = *had_effect;
            *outcome = Outcome::RecordWritten {
                revision: record.revision,
                had_effect,
                replayed: false,
            };
            state.put_record(scope.shared(), record);
        }
    }
    Ok(applied)
}

#[test]
fn an_intent_that_is_executed_again_is_found() {
    let failure = found(executes_an_intent_again);
    assert!(matches!(failure, Failure::Record(_)), "{failure}");
}

fn forgets_an_intent(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let applied = apply(state, entry, batch)?;
    let records: Vec<_> = state.record_rows().collect();
    for row in records {
        let kept: Arc<[DoneIntent]> = row.record.intents.iter().skip(1).copied().collect();
        if !row.record.intents.is_empty() {
            let record = Record {
                intents: kept,
                ..row.record
            };
            state.put_record(row.scope.shared(), record);
        }
    }
    Ok(applied)
}

#[test]
fn an_intent_that_is_forgotten_is_found() {
    let failure = found(forgets_an_intent);
    assert!(matches!(failure, Failure::Record(_)), "{failure}");
}

fn leaves_the_digest_as_it_was(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let before = state.clone();
    let applied = apply(state, entry, batch)?;
    for event in &applied.events {
        if let Event::Grant(grant) = event
            && grant.kind == GrantEventKind::Transferred
            && let Some((_, session)) = &grant.who
            && let Some(mut row) = state.session(session).cloned()
            && let Some(old) = before.session(session)
        {
            row.digest = old.digest;
            state.rows.put_session(session.into(), row);
        }
    }
    Ok(applied)
}

#[test]
fn a_digest_that_is_not_kept_is_found() {
    let failure = found(leaves_the_digest_as_it_was);
    assert!(
        matches!(failure, Failure::Promise(Violation::Inconsistent(_))),
        "{failure}"
    );
}

fn without(state: &mut State, entry: Entry, batch: &Batch, kind: fn(&Event) -> bool) -> Result {
    let mut applied = apply(state, entry, batch)?;
    if let Some(at) = applied.events.iter().position(kind) {
        applied.events.remove(at);
    }
    Ok(applied)
}

fn twice(state: &mut State, entry: Entry, batch: &Batch, kind: fn(&Event) -> bool) -> Result {
    let mut applied = apply(state, entry, batch)?;
    if let Some(at) = applied.events.iter().position(kind) {
        applied.events.insert(at, applied.events[at].clone());
    }
    Ok(applied)
}

fn a_grant(event: &Event) -> bool {
    matches!(event, Event::Grant(_))
}

fn a_wait(event: &Event) -> bool {
    matches!(event, Event::WaitBegun { .. })
}

fn a_waits_end(event: &Event) -> bool {
    matches!(event, Event::WaitEnded { .. })
}

fn a_delay(event: &Event) -> bool {
    matches!(event, Event::DelayBegun { .. })
}

fn a_delays_end(event: &Event) -> bool {
    matches!(event, Event::DelayEnded { .. })
}

fn an_end(event: &Event) -> bool {
    matches!(event, Event::SessionEnded { .. })
}

#[test]
fn an_event_that_is_not_told_or_told_twice_is_found() {
    let bugs: [Apply; 12] = [
        |state, entry, batch| without(state, entry, batch, a_grant),
        |state, entry, batch| without(state, entry, batch, a_wait),
        |state, entry, batch| without(state, entry, batch, a_waits_end),
        |state, entry, batch| without(state, entry, batch, a_delay),
        |state, entry, batch| without(state, entry, batch, a_delays_end),
        |state, entry, batch| without(state, entry, batch, an_end),
        |state, entry, batch| twice(state, entry, batch, a_grant),
        |state, entry, batch| twice(state, entry, batch, a_wait),
        |state, entry, batch| twice(state, entry, batch, a_waits_end),
        |state, entry, batch| twice(state, entry, batch, a_delay),
        |state, entry, batch| twice(state, entry, batch, a_delays_end),
        |state, entry, batch| twice(state, entry, batch, an_end),
    ];
    for bug in bugs {
        let failure = found(bug);
        // Of a wait that begins unseen, the batch is taken for one without an effect.
        let seen = matches!(failure, Failure::Told(_) | Failure::Refused(_));
        assert!(seen, "{failure}");
    }
}
