use super::machine::{Machine, acquire, refused, request_id, scope, terms};
use crate::command::{Command, SessionKey};
use crate::outcome::{Outcome, Refusal};
use crate::terms::Wait;

const CANCELLED: Outcome = Outcome::WaitCancelled {
    cancelled: true,
    granted: None,
};
const NOT_CANCELLED: Outcome = Outcome::WaitCancelled {
    cancelled: false,
    granted: None,
};

#[test]
fn an_acquire_that_waits_gets_the_scope_when_it_is_released() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    assert_eq!(machine.wait("a", second, 7), Outcome::Waiting);
    assert_eq!(machine.told(), ["wait begun: a session-2.0 id=7 for 30s"]);
    assert_eq!(machine.granted(second, 7), None);
    machine.wall_ms += 3;
    machine.release("a", first, grant.epoch);
    assert_eq!(
        machine.told(),
        [
            "5.1 released: a 0+1 session-1.0",
            "wait granted: a session-2.0 id=7",
            "5.2 granted: a 3+1 session-2.0 id=7",
        ]
    );
    let position = machine.position();
    let grant = machine.acquire("a", second, 7);
    assert_eq!((grant.session, grant.position), (second, position));
}

#[test]
fn a_wait_for_a_free_scope_is_no_wait() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let outcome = machine.wait("a", session, 1);
    assert!(matches!(outcome, Outcome::Granted { new: true, .. }));
    assert_eq!(machine.state.counts().waits, 0);
}

#[test]
fn a_retry_while_it_waits_keeps_its_place_and_changes_nothing() {
    let mut machine = Machine::new();
    let (first, second, third) = (machine.open(1), machine.open(2), machine.open(3));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    machine.wait("a", third, 7);
    let before = machine.state.clone();
    // Whatever it asks of waiting now, also nothing.
    for wait_ms in [30_000, 1, 0] {
        let outcome = machine.one(acquire("a", second, 7, wait_ms));
        assert_eq!((outcome, machine.events.len()), (Outcome::Waiting, 0));
    }
    assert_eq!(machine.state, before);
    for (name, on) in [
        ("b", terms(0, "")),
        ("a", terms(5, "")),
        ("a", terms(0, "x")),
    ] {
        let outcome = machine.acquire_on(on, name, second, 7);
        assert_eq!(outcome, refused(Refusal::RequestIdReused));
    }
    assert_eq!(machine.state, before);
    machine.release("a", first, grant.epoch);
    assert!(machine.granted(second, 7).is_some());
}

#[test]
fn a_session_waits_for_a_scope_once_and_never_for_its_own() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let epoch = machine.acquire("a", first, 1).epoch;
    machine.wait("a", second, 7);
    let before = machine.state.clone();
    let twice = machine.wait("a", second, 8);
    assert_eq!(twice, refused(Refusal::AlreadyWaiting));
    let own = machine.wait("a", first, 8);
    assert_eq!(own, refused(Refusal::AlreadyHeld { epoch }));
    assert_eq!(machine.state, before);
}

#[test]
fn a_retry_after_the_grant_is_the_same_grant_whatever_brought_it_about() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    machine.release("a", first, grant.epoch);
    let granted = machine.granted(second, 7).unwrap();
    for wait_ms in [30_000, 0] {
        let outcome = machine.one(acquire("a", second, 7, wait_ms));
        assert!(
            matches!(&outcome, Outcome::Granted { grant, new: false } if grant.epoch == granted),
            "{outcome:?}"
        );
    }
    let reused = machine.acquire_on(terms(0, "x"), "a", second, 7);
    assert_eq!(reused, refused(Refusal::RequestIdReused));
    machine.wall_ms += 1;
    machine.release("a", second, granted);
    let ended = machine.wait("a", second, 7);
    assert_eq!(ended, refused(Refusal::Superseded { epoch: None }));
}

#[test]
fn a_wait_that_has_ended_without_a_grant_never_begins_again() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    assert_eq!(
        machine.end_wait(second, 7),
        Outcome::WaitEnded { ended: true }
    );
    assert_eq!(machine.told(), ["wait expired: a session-2.0 id=7"]);
    machine.wait("a", second, 8);
    assert_eq!(machine.cancel_wait("a", second, 8), CANCELLED);
    assert_eq!(machine.told(), ["wait cancelled: a session-2.0 id=8"]);

    // Not while the scope is held, nor once it is free.
    for _ in 0..2 {
        let expired = machine.wait("a", second, 7);
        assert_eq!(expired, refused(Refusal::WaitExpired));
        let cancelled = machine.wait("a", second, 8);
        assert_eq!(cancelled, refused(Refusal::WaitCancelled));
        let elsewhere = machine.wait("b", second, 7);
        assert_eq!(elsewhere, refused(Refusal::RequestIdReused));
        machine.release("a", first, grant.epoch);
    }
    assert_eq!(machine.state.counts().grants, 0);
    // Ending either again finds nothing.
    let before = machine.state.clone();
    for id in [7, 8, 9] {
        let ended = machine.end_wait(second, id);
        assert_eq!(ended, Outcome::WaitEnded { ended: false });
    }
    assert_eq!(machine.cancel_wait("a", second, 7), NOT_CANCELLED);
    assert_eq!(machine.cancel_wait("a", second, 8), NOT_CANCELLED);
    assert_eq!(machine.state, before);
}

#[test]
fn a_cancel_that_comes_before_its_acquire_is_remembered() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    assert_eq!(machine.cancel_wait("a", session, 5), NOT_CANCELLED);
    assert_eq!(machine.state.counts().spent, 1);
    for wait_ms in [30_000, 0] {
        let late = machine.one(acquire("a", session, 5, wait_ms));
        assert_eq!(late, refused(Refusal::WaitCancelled));
    }
    let elsewhere = machine.cancel_wait("b", session, 5);
    assert_eq!(elsewhere, refused(Refusal::RequestIdReused));
    machine.acquire("a", session, 6);
}

#[test]
fn a_cancel_that_comes_after_the_grant_names_its_epoch() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    machine.release("a", first, grant.epoch);
    let before = machine.state.clone();
    let granted = machine.granted(second, 7);
    let outcome = machine.cancel_wait("a", second, 7);
    let not_any_more = Outcome::WaitCancelled {
        cancelled: false,
        granted,
    };
    assert!(granted.is_some());
    assert_eq!((outcome, &machine.state), (not_any_more, &before));
    let elsewhere = machine.cancel_wait("b", second, 7);
    assert_eq!(elsewhere, refused(Refusal::RequestIdReused));
}

#[test]
fn a_cancel_of_another_scope_or_session_ends_no_wait() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    let before = machine.state.clone();
    let elsewhere = machine.cancel_wait("b", second, 7);
    assert_eq!(elsewhere, refused(Refusal::RequestIdReused));
    machine.close(first);
    let closed = machine.cancel_wait("a", first, 7);
    assert_eq!(closed, refused(Refusal::SessionExpired));
    let nowhere = machine.end_wait(first, 7);
    assert_eq!(nowhere, Outcome::WaitEnded { ended: false });
    assert_eq!(before.counts().waits, 1);
}

#[test]
fn waits_are_listed_with_how_long_they_may_take() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    let wait = Wait::from_ms(30_000).unwrap();
    let waits: Vec<_> = machine.state.waits().collect();
    let key = SessionKey::from(&second);
    assert_eq!(waits, [(key, request_id(7), wait)]);
    assert_eq!(machine.state.wait(key, request_id(7)), Some(scope("a")));
    assert_eq!(machine.state.wait(key, request_id(8)), None);
}

#[test]
fn in_the_last_year_a_scope_is_not_handed_over_and_its_waits_can_end() {
    let mut machine = Machine::new();
    machine.wall_ms = (1 << 43) - 1;
    let (first, second, third) = (machine.open(1), machine.open(2), machine.open(3));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 7);
    machine.wait("a", third, 7);
    machine.wall_ms += 1;
    machine.release("a", first, grant.epoch);
    assert_eq!((machine.state.counts().waits, machine.events.len()), (2, 1));
    let exhausted = refused(Refusal::EpochExhausted);
    assert_eq!(machine.try_acquire("a", first, 2), exhausted);
    let reissued = machine.one(Command::Revoke {
        scope: scope("a"),
        epoch: None,
        by: None,
    });
    assert_eq!(reissued, exhausted);
    assert_eq!(machine.wait("a", second, 7), Outcome::Waiting);
    assert_eq!(
        machine.end_wait(second, 7),
        Outcome::WaitEnded { ended: true }
    );
    assert_eq!(machine.cancel_wait("a", third, 7), CANCELLED);
}
