use std::sync::Arc;

use epoch_core::{Epoch, SessionId};

use super::machine::{Machine, epoch, refused, scope, terms};
use crate::command::SessionKey;
use crate::outcome::{Outcome, Refusal};
use crate::state::GRANTS_MAX;

const ENDED: Outcome = Outcome::DelayEnded { ended: true };
const NOT_ENDED: Outcome = Outcome::DelayEnded { ended: false };

/// `a`, lost by expiry and in its delay, at the epoch; and another session.
fn delayed() -> (Machine, Epoch, SessionId) {
    let mut machine = Machine::new();
    let (session, other) = (machine.open(1), machine.open(2));
    machine.acquire_on(terms(5_000, ""), "a", session, 1);
    let lost = machine.granted(session, 1).unwrap();
    machine.expire(session);
    (machine, lost, other)
}

#[test]
fn a_scope_that_is_lost_by_expiry_is_kept_from_all_until_its_delay_ends() {
    let (mut machine, lost, other) = delayed();
    assert_eq!(
        machine.told(),
        [
            "4.1 expired: a 0+1 session-1.0",
            "delay begun: a 0+1 for 5s",
            "session-1.0 expired",
        ]
    );
    let state = machine.state.scope(&scope("a"), 1);
    assert_eq!((state.held, state.delayed), (None, true));
    // However late it gets: only the leader's clock ends it.
    machine.wall_ms += 3_600_000;
    let refusal = refused(Refusal::LockDelayed { epoch: lost });
    assert_eq!(machine.try_acquire("a", other, 1), refusal);
    assert_eq!(machine.end_delay("a", lost), ENDED);
    assert_eq!(machine.told(), ["delay ended: a"]);
    assert_eq!(machine.state.counts().rows, 0);
    assert!(machine.acquire("a", other, 1).epoch > lost);
}

#[test]
fn the_first_that_waits_gets_a_scope_when_its_delay_ends() {
    let mut machine = Machine::new();
    let (session, early, late) = (machine.open(1), machine.open(2), machine.open(3));
    machine.acquire_on(terms(5_000, ""), "a", session, 1);
    let lost = machine.granted(session, 1).unwrap();
    machine.wait("a", early, 1);
    machine.expire(session);
    assert_eq!(machine.granted(early, 1), None);
    assert_eq!(machine.wait("a", late, 1), Outcome::Waiting);
    assert_eq!(machine.end_delay("a", lost), ENDED);
    assert_eq!(
        machine.told(),
        [
            "delay ended: a",
            "wait granted: a session-2.0 id=1",
            "8.1 granted: a 0+2 session-2.0 id=1",
        ]
    );
    assert_eq!(machine.granted(late, 1), None);
}

#[test]
fn only_expiry_begins_a_delay() {
    let ends: [fn(&mut Machine, SessionId, Epoch); 3] = [
        |machine, session, epoch| {
            machine.release("a", session, epoch);
        },
        |machine, session, _| {
            machine.close(session);
        },
        |machine, _, _| {
            machine.revoke("a", None);
        },
    ];
    for end in ends {
        let mut machine = Machine::new();
        let (session, other) = (machine.open(1), machine.open(2));
        machine.acquire_on(terms(5_000, ""), "a", session, 1);
        let epoch = machine.granted(session, 1).unwrap();
        end(&mut machine, session, epoch);
        assert_eq!(machine.state.delay("a"), None);
        machine.acquire("a", other, 1);
    }
}

#[test]
fn a_delay_is_of_the_grant_that_asked_for_it() {
    let mut machine = Machine::new();
    let (first, second, third) = (machine.open(1), machine.open(2), machine.open(3));
    // Reissued on other terms: none.
    machine.acquire_on(terms(5_000, ""), "a", first, 1);
    machine.reissue("a", first, 2);
    // Given on: it goes along.
    machine.acquire_on(terms(5_000, ""), "b", first, 3);
    let given = machine.granted(first, 3).unwrap();
    machine.transfer("b", first, given, second);
    machine.expire(first);
    assert_eq!(machine.state.delays().count(), 0);
    machine.acquire("a", third, 1);
    machine.expire(second);
    let delays: Vec<_> = machine.state.delays().collect();
    assert_eq!(delays, [(Arc::from("b"), terms(5_000, "").lock_delay)]);
}

#[test]
fn the_end_of_another_delay_ends_nothing() {
    let (mut machine, lost, other) = delayed();
    let before = machine.state.clone();
    assert_eq!(machine.end_delay("a", epoch(lost.get() + 1)), NOT_ENDED);
    assert_eq!(machine.end_delay("b", lost), NOT_ENDED);
    assert_eq!(machine.state, before);
    machine.end_delay("a", lost);
    assert_eq!(machine.end_delay("a", lost), NOT_ENDED);
    // A late one does not end the grant that followed.
    let grant = machine.acquire("a", other, 1);
    assert_eq!(machine.end_delay("a", lost), NOT_ENDED);
    assert_eq!(machine.end_delay("a", grant.epoch), NOT_ENDED);
    assert_eq!(machine.granted(other, 1), Some(grant.epoch));
}

#[test]
fn a_revoke_ends_a_delay_and_hands_the_scope_over() {
    let (mut machine, lost, other) = delayed();
    machine.wait("a", other, 1);
    machine.revoke("a", None);
    assert_eq!(
        machine.told(),
        [
            "6.1 revoked: a 0+2",
            "delay ended: a",
            "wait granted: a session-2.0 id=1",
            "6.2 granted: a 0+3 session-2.0 id=1",
        ]
    );
    assert_eq!(machine.end_delay("a", lost), NOT_ENDED);
    let named = machine.revoke("a", Some(lost));
    assert!(matches!(
        named,
        Outcome::Refused(Refusal::Superseded { epoch: Some(_) })
    ));
}

#[test]
fn a_delayed_scope_is_not_forgotten_and_its_lost_epoch_is_ended() {
    let (mut machine, lost, other) = delayed();
    machine.wall_ms += 10;
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().rows, 1);
    let current = machine.state.current_grant(&scope("a"), &other, lost);
    assert_eq!(current, Err(Refusal::Superseded { epoch: None }));
    let revoked = machine.revoke("a", Some(lost));
    assert_eq!(revoked, refused(Refusal::Superseded { epoch: None }));
    let given = machine.transfer("a", other, lost, other);
    assert_eq!(given, refused(Refusal::Superseded { epoch: None }));
}

#[test]
fn a_delayed_scope_keeps_its_place_among_the_grants() {
    let (mut machine, lost, other) = delayed();
    machine.wait("a", other, 1);
    machine.checked = false;
    let filler = SessionKey {
        index: 1_000,
        offset: 0,
    };
    // With the delayed scope, one grant fewer is left.
    let names = (1..GRANTS_MAX).map(|n| (filler, None, Arc::from(n.to_string())));
    machine.state.bound.extend(names);
    let limit = refused(Refusal::GrantLimit);
    assert_eq!(machine.try_acquire("b", other, 2), limit);
    assert_eq!(machine.acquire_many(&["b"], other, 2), limit);
    machine.end_delay("a", lost);
    assert!(machine.granted(other, 1).is_some());
    assert_eq!(machine.state.counts().grants, GRANTS_MAX);
}
