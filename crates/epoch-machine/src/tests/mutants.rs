//! Bugs planted around `apply`: each must be found by the random run, or the run proves nothing.

use epoch_core::{Epoch, RequestId};

use super::promises::Failure;
use super::run::{Apply, Run};
use crate::apply::apply;
use crate::command::{Batch, Entry};
use crate::outcome::{Applied, ForeignLeadership, Outcome, Refusal};
use crate::promise::Violation;
use crate::rows::Row;
use crate::state::State;

type Outcomes = Result<Applied, ForeignLeadership>;

pub(super) fn found(planted: Apply) -> Failure {
    (1..=200)
        .find_map(|seed| Run::new(seed, planted).steps(2_000).err())
        .expect("the planted bug was not found")
}

/// As [`found`], where operators do most.
pub(super) fn found_with_operators(planted: Apply) -> Failure {
    (1..=200)
        .find_map(|seed| Run::with_busy_operators(seed, planted).steps(500).err())
        .expect("the planted bug was not found")
}

fn gives_the_last_epoch_again(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let outcomes = apply(state, entry, batch)?;
    // Free rows remember one less than was given.
    let free: Vec<_> = state.free.iter().cloned().collect();
    for (epoch, name) in free {
        if let Ok(lower) = Epoch::new(epoch.get() - 1) {
            state.free.remove(&(epoch, name.clone()));
            state.free.insert((lower, name.clone()));
            state.rows.put_scope(name, Row::free(lower));
        }
    }
    Ok(outcomes)
}

#[test]
fn an_epoch_given_again_is_found() {
    let failure = found(gives_the_last_epoch_again);
    let Failure::Promise(violation) = failure else {
        panic!("{failure}")
    };
    assert!(
        matches!(
            violation,
            Violation::Twice { .. } | Violation::NotRising { .. }
        ),
        "{violation}"
    );
}

fn takes_batches_of_any_leadership(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    apply(
        state,
        entry,
        &Batch {
            leadership: entry.leadership,
            ..batch.clone()
        },
    )
}

#[test]
fn a_batch_of_another_leadership_that_takes_effect_is_found() {
    let failure = found(takes_batches_of_any_leadership);
    assert!(matches!(failure, Failure::Foreign(_)), "{failure}");
}

fn drops_free_rows_too_early(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let outcomes = apply(state, entry, batch)?;
    for (_, name) in std::mem::take(&mut state.free) {
        state.rows.remove_scope(&name);
    }
    Ok(outcomes)
}

#[test]
fn a_row_dropped_too_early_is_found() {
    let failure = found(drops_free_rows_too_early);
    let Failure::Promise(violation) = failure else {
        panic!("{failure}")
    };
    assert!(
        matches!(
            violation,
            Violation::Twice { .. } | Violation::NotRising { .. }
        ),
        "{violation}"
    );
}

fn follows_a_clock_that_steps_back(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let outcomes = apply(state, entry, batch)?;
    state.now_ms = batch.wall_ms;
    Ok(outcomes)
}

#[test]
fn time_that_is_lowered_is_found() {
    let failure = found(follows_a_clock_that_steps_back);
    assert!(matches!(failure, Failure::Time), "{failure}");
}

fn leaves_time_out(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    apply(
        state,
        entry,
        &Batch {
            wall_ms: 1,
            ..batch.clone()
        },
    )
}

#[test]
fn epochs_without_time_do_not_survive_a_rollback() {
    let failure = found(leaves_time_out);
    let Failure::Promise(violation) = failure else {
        panic!("{failure}")
    };
    assert!(
        matches!(
            violation,
            Violation::Twice { .. } | Violation::NotRising { .. }
        ),
        "{violation}"
    );
}

fn forgets_spent_ids(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let outcomes = apply(state, entry, batch)?;
    let ids: Vec<_> = state.rows.spent().keys().copied().collect();
    for id in ids {
        state.rows.remove_spent(id);
    }
    Ok(outcomes)
}

#[test]
fn a_second_epoch_for_one_request_id_is_found() {
    let failure = found(forgets_spent_ids);
    assert!(
        matches!(failure, Failure::Promise(Violation::MoreThanOne { .. })),
        "{failure}"
    );
}

fn names_the_entry_before(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let mut outcomes = apply(state, entry, batch)?;
    for outcome in &mut outcomes.outcomes {
        if let Outcome::Granted { grant, .. } = outcome {
            grant.position.index -= 1;
        }
    }
    Ok(outcomes)
}

#[test]
fn a_wrong_position_is_found() {
    let failure = found(names_the_entry_before);
    let Failure::Promise(violation) = failure else {
        panic!("{failure}")
    };
    assert!(
        matches!(
            violation,
            Violation::NoSuchPosition { .. } | Violation::SharedPosition { .. }
        ),
        "{violation}"
    );
}

fn answers_what_it_did_not_do(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let mut outcomes = apply(state, entry, batch)?;
    for outcome in &mut outcomes.outcomes {
        if let Outcome::Granted { grant, new: false } = outcome {
            let other = grant.request_id.map_or(0, RequestId::get) + 1_000_000;
            grant.request_id = RequestId::new(other).ok();
        }
    }
    Ok(outcomes)
}

#[test]
fn an_answer_that_is_not_in_the_log_is_found() {
    let failure = found(answers_what_it_did_not_do);
    let Failure::Promise(violation) = failure else {
        panic!("{failure}")
    };
    assert!(
        matches!(
            violation,
            Violation::NotCommitted { .. } | Violation::Twice { .. }
        ),
        "{violation}"
    );
}

fn leaves_a_request_id_behind(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let bound = state.bound.clone();
    let outcomes = apply(state, entry, batch)?;
    if let Some(id) = bound.iter().find(|id| !state.bound.contains(*id)) {
        state.bound.insert(id.clone());
    }
    Ok(outcomes)
}

#[test]
fn parts_that_disagree_are_found() {
    let failure = found(leaves_a_request_id_behind);
    assert!(
        matches!(failure, Failure::Promise(Violation::Inconsistent(_))),
        "{failure}"
    );
}

fn changes_something_on_a_refusal(state: &mut State, entry: Entry, batch: &Batch) -> Outcomes {
    let outcomes = apply(state, entry, batch)?;
    if outcomes
        .outcomes
        .iter()
        .any(|outcome| matches!(outcome, Outcome::Refused(_)))
    {
        state.now_ms += 1;
    }
    Ok(outcomes)
}

#[test]
fn a_refusal_that_changes_something_is_found() {
    let failure = found(changes_something_on_a_refusal);
    assert!(matches!(failure, Failure::Refused(_)), "{failure}");
}

fn opened(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Opened { new: true, .. })
}

fn closed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Closed { closed: true, .. })
}

fn granted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Granted { new: true, .. })
}

fn released(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Released { released: true })
}

fn waits(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Waiting)
}

fn waits_no_more(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::WaitCancelled {
            cancelled: true,
            ..
        }
    )
}

fn transferred(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Transferred { new: true, .. })
}

fn written(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::RecordWritten {
            had_effect: true,
            replayed: false,
            ..
        }
    )
}

fn undelayed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::DelayEnded { ended: true })
}

fn permitted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::PermissionGranted)
}

fn forbidden(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::PermissionRevoked { revoked: true })
}

fn token_added(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::TokenAdded { new: true })
}

fn token_removed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::TokenRemoved { removed: true })
}

fn limited(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::LimitsSet)
}

fn bundle_put(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::BundlePut)
}

fn key_offered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::KeyOffered)
}

fn keys_wanted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::RotationWanted { .. })
}

fn key_retired(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::KeyRetired { retired: true })
}

fn statement_put(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::StatementPut)
}

/// Of a command whose only effect is its audit record.
fn audited(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(Refusal::FirstOperator))
}

/// The batch's changes do not reach the hash when there is an outcome of the kind.
fn unhashed(
    state: &mut State,
    entry: Entry,
    batch: &Batch,
    kind: fn(&Outcome) -> bool,
) -> Outcomes {
    let before = state.clone();
    let outcomes = apply(state, entry, batch)?;
    if outcomes.outcomes.iter().any(kind) {
        state.rows.forget_hash_since(&before.rows);
    }
    Ok(outcomes)
}

#[test]
fn a_change_that_the_hash_does_not_see_is_found() {
    let bugs: [Apply; 9] = [
        |state, entry, batch| unhashed(state, entry, batch, opened),
        |state, entry, batch| unhashed(state, entry, batch, closed),
        |state, entry, batch| unhashed(state, entry, batch, granted),
        |state, entry, batch| unhashed(state, entry, batch, released),
        |state, entry, batch| unhashed(state, entry, batch, waits),
        |state, entry, batch| unhashed(state, entry, batch, waits_no_more),
        |state, entry, batch| unhashed(state, entry, batch, transferred),
        |state, entry, batch| unhashed(state, entry, batch, written),
        |state, entry, batch| unhashed(state, entry, batch, undelayed),
    ];
    for bug in bugs {
        let failure = found(bug);
        assert!(matches!(failure, Failure::Hash), "{failure}");
    }
    let bugs: [Apply; 11] = [
        |state, entry, batch| unhashed(state, entry, batch, permitted),
        |state, entry, batch| unhashed(state, entry, batch, forbidden),
        |state, entry, batch| unhashed(state, entry, batch, token_added),
        |state, entry, batch| unhashed(state, entry, batch, token_removed),
        |state, entry, batch| unhashed(state, entry, batch, limited),
        |state, entry, batch| unhashed(state, entry, batch, bundle_put),
        |state, entry, batch| unhashed(state, entry, batch, key_offered),
        |state, entry, batch| unhashed(state, entry, batch, keys_wanted),
        |state, entry, batch| unhashed(state, entry, batch, key_retired),
        |state, entry, batch| unhashed(state, entry, batch, statement_put),
        |state, entry, batch| unhashed(state, entry, batch, audited),
    ];
    for bug in bugs {
        let failure = found_with_operators(bug);
        assert!(matches!(failure, Failure::Hash), "{failure}");
    }
}

/// The batch's changes are not recorded when there is an outcome of the kind.
fn unrecorded(
    state: &mut State,
    entry: Entry,
    batch: &Batch,
    kind: fn(&Outcome) -> bool,
) -> Outcomes {
    let before = state.clone();
    let outcomes = apply(state, entry, batch)?;
    if outcomes.outcomes.iter().any(kind) {
        state.rows.forget_changes_since(&before.rows);
    }
    Ok(outcomes)
}

#[test]
fn a_change_that_is_not_recorded_is_found() {
    let bugs: [Apply; 9] = [
        |state, entry, batch| unrecorded(state, entry, batch, opened),
        |state, entry, batch| unrecorded(state, entry, batch, closed),
        |state, entry, batch| unrecorded(state, entry, batch, granted),
        |state, entry, batch| unrecorded(state, entry, batch, released),
        |state, entry, batch| unrecorded(state, entry, batch, waits),
        |state, entry, batch| unrecorded(state, entry, batch, waits_no_more),
        |state, entry, batch| unrecorded(state, entry, batch, transferred),
        |state, entry, batch| unrecorded(state, entry, batch, written),
        |state, entry, batch| unrecorded(state, entry, batch, undelayed),
    ];
    for bug in bugs {
        let failure = found(bug);
        assert!(matches!(failure, Failure::Changes), "{failure}");
    }
    let bugs: [Apply; 11] = [
        |state, entry, batch| unrecorded(state, entry, batch, permitted),
        |state, entry, batch| unrecorded(state, entry, batch, forbidden),
        |state, entry, batch| unrecorded(state, entry, batch, token_added),
        |state, entry, batch| unrecorded(state, entry, batch, token_removed),
        |state, entry, batch| unrecorded(state, entry, batch, limited),
        |state, entry, batch| unrecorded(state, entry, batch, bundle_put),
        |state, entry, batch| unrecorded(state, entry, batch, key_offered),
        |state, entry, batch| unrecorded(state, entry, batch, keys_wanted),
        |state, entry, batch| unrecorded(state, entry, batch, key_retired),
        |state, entry, batch| unrecorded(state, entry, batch, statement_put),
        |state, entry, batch| unrecorded(state, entry, batch, audited),
    ];
    for bug in bugs {
        let failure = found_with_operators(bug);
        assert!(matches!(failure, Failure::Changes), "{failure}");
    }
}
