use epoch_core::EPOCH_EXCLUSIVE_MAX;

use super::machine::{Machine, epoch, refused, scope, terms};
use crate::command::{SCOPES_MAX, Scopes, ScopesError};
use crate::outcome::{Outcome, Refusal};
use crate::rows::Row;

fn refused_many(name: &str, refusal: Refusal) -> Outcome {
    Outcome::RefusedMany {
        scope: scope(name),
        refusal,
    }
}

#[test]
fn all_scopes_are_granted_at_once_in_the_callers_order() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let outcome = machine.acquire_many(&["c", "a", "b"], session, 5);
    let Outcome::GrantedMany { grants, new: true } = &outcome else {
        panic!("{outcome:?}")
    };
    let told: Vec<_> = grants
        .iter()
        .map(|grant| (grant.scope.as_str(), grant.request_id.unwrap().get()))
        .collect();
    assert_eq!(told, [("c", 5), ("a", 6), ("b", 7)]);
    assert_eq!(
        machine.told(),
        [
            "2.1 granted: c 0+1 session-1.0 id=5",
            "2.2 granted: a 0+1 session-1.0 id=6",
            "2.3 granted: b 0+1 session-1.0 id=7",
        ]
    );
    // Again, and one by one, they are the same grants.
    let again = machine.acquire_many(&["c", "a", "b"], session, 5);
    let same = Outcome::GrantedMany {
        grants: grants.clone(),
        new: false,
    };
    assert_eq!((again, machine.events.len()), (same, 0));
    assert_eq!(machine.acquire("a", session, 6), grants[1]);
}

#[test]
fn one_that_cannot_be_taken_is_named_and_none_is_taken() {
    let mut machine = Machine::new();
    let (session, other) = (machine.open(1), machine.open(2));
    let held = machine.acquire("held", other, 1).epoch;
    let own = machine.acquire("own", session, 1).epoch;
    machine.wait("held", session, 2);
    let third = machine.open(3);
    machine.acquire_on(terms(5_000, ""), "late", third, 1);
    machine.expire(third);
    let late = machine.state.delay("late").unwrap().1;
    let before = machine.state.clone();
    for (session, name, refusal) in [
        (other, "own", Refusal::ScopeHeld { epoch: own }),
        (other, "held", Refusal::AlreadyHeld { epoch: held }),
        (session, "held", Refusal::AlreadyWaiting),
        (session, "late", Refusal::LockDelayed { epoch: late }),
    ] {
        let outcome = machine.acquire_many(&["x", name, "y"], session, 50);
        assert_eq!(outcome, refused_many(name, refusal));
        assert_eq!((&machine.state, machine.events.len()), (&before, 0));
    }
    // No id was used up by it.
    machine.acquire_many(&["x", "y"], session, 50);
}

#[test]
fn its_ids_are_known_or_new_all_together() {
    let mut machine = Machine::new();
    let (session, other) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", session, 5);
    machine.acquire("b", other, 1);
    machine.wait("b", session, 7);
    let before = machine.state.clone();
    let reused = refused(Refusal::RequestIdReused);
    for (names, first) in [
        // The first is known, the second new.
        (["a", "x"], 5),
        // The other way round.
        (["x", "a"], 4),
        // Known for another scope.
        (["x", "y"], 5),
        // It waits.
        (["x", "b"], 6),
    ] {
        let outcome = machine.acquire_many(&names, session, first);
        assert_eq!(outcome, reused, "{names:?}");
        assert_eq!(machine.state, before);
    }
    let outcome = machine.acquire_many(&["a"], session, 5);
    let same = Outcome::GrantedMany {
        grants: vec![grant.clone()],
        new: false,
    };
    assert_eq!(outcome, same);
    machine.acquire_many(&["x", "y"], session, 20);
    machine.release("a", session, grant.epoch);
    let x = machine.granted(session, 20).unwrap();
    machine.release("x", session, x);
    // The later time makes both rows go.
    machine.wall_ms += 1;
    let outcome = machine.acquire_many(&["x", "y"], session, 20);
    assert_eq!(outcome, refused(Refusal::Superseded { epoch: None }));
    machine.close(session);
    let gone = machine.acquire_many(&["x"], session, 90);
    assert_eq!(gone, refused(Refusal::SessionExpired));
}

#[test]
fn a_scope_without_epochs_left_is_named() {
    let mut machine = Machine::new();
    machine.wall_ms = (1 << 43) - 1;
    let (session, last) = (machine.open(1), epoch(EPOCH_EXCLUSIVE_MAX - 1));
    machine.state.put_row(&"a".into(), Row::free(last));
    let before = machine.state.counts();
    let outcome = machine.acquire_many(&["b", "a"], session, 1);
    assert_eq!(outcome, refused_many("a", Refusal::EpochExhausted));
    assert_eq!(machine.state.counts(), before);
}

#[test]
fn its_ids_stay_below_2_pow_53() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let last = EPOCH_EXCLUSIVE_MAX - 1;
    let over = machine.acquire_many(&["a", "b"], session, last);
    assert_eq!(over, refused(Refusal::RequestIdsOver));
    let outcome = machine.acquire_many(&["a", "b"], session, last - 1);
    assert!(matches!(outcome, Outcome::GrantedMany { new: true, .. }));
}

#[test]
fn from_1_to_64_scopes_can_be_taken_each_once() {
    let named = |count: usize| {
        (0..count)
            .map(|n| scope(&n.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(Scopes::new(named(0)), Err(ScopesError::Count(0)));
    let over = SCOPES_MAX + 1;
    assert_eq!(Scopes::new(named(over)), Err(ScopesError::Count(over)));
    assert_eq!(Scopes::new(named(SCOPES_MAX)).unwrap().iter().len(), 64);
    let twice = vec![scope("b"), scope("a"), scope("b")];
    assert_eq!(Scopes::new(twice), Err(ScopesError::Twice("b".to_owned())));
}
