use epoch_core::{OpenId, SessionId};
use uuid::Uuid;

use super::machine::{Machine, WALL_MS, epoch, first_epoch, refused, scope};
use super::run::without_audit;
use crate::outcome::{Outcome, Refusal};

const RELEASED: Outcome = Outcome::Released { released: true };
const RELEASED_BEFORE: Outcome = Outcome::Released { released: false };

#[test]
fn a_release_frees_the_scope_and_again_is_no_error() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    assert_eq!(machine.release("a", session, grant.epoch), RELEASED);
    assert_eq!(machine.state.scope(&scope("a"), 1).held, None);
    assert_eq!(machine.release("a", session, grant.epoch), RELEASED_BEFORE);
    // The same once the row is forgotten.
    machine.wall_ms += 1;
    assert_eq!(machine.release("a", session, grant.epoch), RELEASED_BEFORE);
    assert_eq!(machine.state.counts().rows, 0);
}

#[test]
fn each_refusal_of_a_release_changes_nothing() {
    let mut machine = Machine::new();
    let (session, other) = (machine.open(1), machine.open(2));
    let first = machine.acquire("a", session, 1);
    machine.release("a", session, first.epoch);
    let current = machine.acquire("a", other, 1).epoch;
    let above = epoch(current.get() + 1);
    let forged = SessionId {
        open_id: OpenId(Uuid::from_u128(99)),
        ..other
    };
    let not_yet = first_epoch(WALL_MS);
    let cases = [
        (
            "a",
            session,
            first.epoch,
            Refusal::Superseded {
                epoch: Some(current),
            },
        ),
        (
            "a",
            session,
            current,
            Refusal::NotTheHolder { epoch: current },
        ),
        ("a", other, above, Refusal::EpochUnknown { epoch: above }),
        ("a", forged, current, Refusal::SessionExpired),
        (
            "never",
            session,
            not_yet,
            Refusal::EpochUnknown { epoch: not_yet },
        ),
    ];
    let before = machine.state.clone();
    for (name, session, number, refusal) in cases {
        assert_eq!(
            machine.release(name, session, number),
            refused(refusal),
            "{refusal}"
        );
        let certified = machine.state.current_grant(&scope(name), &session, number);
        assert_eq!(certified, Err(refusal));
        assert_eq!(machine.state, before, "{refusal}");
    }
}

#[test]
fn an_ended_grant_cannot_be_certified() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    machine.release("a", session, grant.epoch);
    let certified = |machine: &Machine| {
        machine
            .state
            .current_grant(&scope("a"), &session, grant.epoch)
    };
    assert_eq!(
        certified(&machine),
        Err(Refusal::Superseded { epoch: None })
    );
    machine.wall_ms += 1;
    machine.apply(Vec::new());
    assert_eq!(
        certified(&machine),
        Err(Refusal::Superseded { epoch: None })
    );
}

#[test]
fn a_revoke_burns_an_epoch_that_nobody_holds() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    let burnt = epoch(grant.epoch.get() + 1);
    let revoked = machine.revoke("a", Some(grant.epoch));
    let expected = Outcome::Revoked {
        scope: scope("a"),
        epoch: burnt,
        position: machine.position(),
        ended: true,
    };
    assert_eq!(revoked, expected);
    assert_eq!(machine.state.scope(&scope("a"), 1).held, None);
    let superseded = refused(Refusal::Superseded { epoch: Some(burnt) });
    assert_eq!(machine.release("a", session, grant.epoch), superseded);
    assert_eq!(machine.try_acquire("a", session, 1), superseded);
    assert_eq!(
        machine.acquire("a", session, 2).epoch.get(),
        burnt.get() + 1
    );
}

#[test]
fn a_revoke_of_a_scope_without_a_grant_burns_one_too() {
    let mut machine = Machine::new();
    let mut burnt = Vec::new();
    for _ in 0..3 {
        let Outcome::Revoked {
            epoch,
            ended: false,
            ..
        } = machine.revoke("a", None)
        else {
            panic!("not revoked");
        };
        burnt.push(epoch.get() - (WALL_MS << 10));
    }
    assert_eq!(burnt, [1, 2, 3]);
}

#[test]
fn each_refusal_of_a_revoke_changes_nothing_but_the_audit_records() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let first = machine.acquire("a", session, 1).epoch;
    machine.release("a", session, first);
    let current = machine.acquire("a", session, 2).epoch;
    let free = machine.acquire("free", session, 3).epoch;
    machine.release("free", session, free);
    let above = epoch(current.get() + 1);
    let past = epoch(WALL_MS << 10);
    let cases = [
        (
            "a",
            first,
            Refusal::Superseded {
                epoch: Some(current),
            },
        ),
        ("a", above, Refusal::EpochUnknown { epoch: above }),
        ("free", free, Refusal::Superseded { epoch: None }),
        ("never", above, Refusal::EpochUnknown { epoch: above }),
        ("never", past, Refusal::Superseded { epoch: None }),
    ];
    let before = without_audit(&machine.state);
    for (name, number, refusal) in cases {
        assert_eq!(
            machine.revoke(name, Some(number)),
            refused(refusal),
            "{name} {refusal}"
        );
        assert_eq!(without_audit(&machine.state), before, "{name} {refusal}");
    }
}
