use super::machine::{Machine, refused};
use crate::outcome::{Outcome, Refusal};
use crate::state::SPENT_IDS_KEPT;

#[test]
fn the_highest_1024_spent_ids_are_kept_and_older_ones_are_too_old() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    machine.checked = false;
    let kept = u64::from(SPENT_IDS_KEPT);
    for id in 1..=kept + 10 {
        let grant = machine.acquire("a", session, id);
        machine.release("a", session, grant.epoch);
    }
    machine.checked = true;
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().spent, usize::try_from(kept).unwrap());
    assert_eq!(machine.state.session(&session).unwrap().forgotten, 10);
    for id in [1, 5, 10] {
        for name in ["a", "b"] {
            let outcome = machine.try_acquire(name, session, id);
            assert_eq!(
                outcome,
                refused(Refusal::RequestIdTooOld { forgotten: 10 }),
                "{id}"
            );
        }
    }
    for id in [11, kept, kept + 10] {
        let outcome = machine.try_acquire("a", session, id);
        assert!(
            matches!(outcome, Outcome::Refused(Refusal::Superseded { .. })),
            "{outcome:?}"
        );
        let other_scope = machine.try_acquire("b", session, id);
        assert_eq!(other_scope, refused(Refusal::RequestIdReused), "{id}");
    }
    machine.acquire("a", session, kept + 11);
}

#[test]
fn the_id_of_a_current_grant_is_never_forgotten() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let held = machine.acquire("held", session, 1);
    machine.checked = false;
    for id in 2..=u64::from(SPENT_IDS_KEPT) + 100 {
        let grant = machine.acquire("a", session, id);
        machine.release("a", session, grant.epoch);
    }
    machine.checked = true;
    assert!(machine.state.session(&session).unwrap().forgotten > 1);
    let again = machine.try_acquire("held", session, 1);
    assert_eq!(
        again,
        Outcome::Granted {
            grant: held.clone(),
            new: false
        }
    );
    let other_scope = machine.try_acquire("b", session, 1);
    assert_eq!(other_scope, refused(Refusal::RequestIdReused));

    // Once it ends, it is the lowest of the spent ones, and goes at once.
    machine.release("held", session, held.epoch);
    let outcome = machine.try_acquire("held", session, 1);
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::RequestIdTooOld { .. })),
        "{outcome:?}"
    );
}

#[test]
fn an_id_below_the_spent_ones_can_be_new_while_none_is_forgotten() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 100);
    machine.release("a", session, grant.epoch);
    assert!(matches!(
        machine.try_acquire("a", session, 5),
        Outcome::Granted { new: true, .. }
    ));
}
