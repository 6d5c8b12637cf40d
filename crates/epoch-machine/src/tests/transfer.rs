use epoch_core::{OpenId, SessionId};
use uuid::Uuid;

use super::machine::{Machine, acquire, epoch, refused, scope, terms};
use crate::outcome::{Outcome, Refusal};

#[test]
fn a_transfer_gives_the_next_epoch_to_the_session_that_is_named() {
    let mut machine = Machine::new();
    let (from, to) = (machine.open(1), machine.open(2));
    machine.acquire_on(terms(0, "run 7"), "a", from, 1);
    let epoch = machine.granted(from, 1).unwrap();
    let outcome = machine.transfer("a", from, epoch, to);
    let Outcome::Transferred { epoch: next, new } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((next.get(), new), (epoch.get() + 1, true));
    assert_eq!(
        machine.told(),
        ["4.1 transferred: a 0+2 session-2.0, ended 0+1"]
    );
    let grant = machine.state.current_grant(&scope("a"), &to, next).unwrap();
    assert_eq!((grant.session, grant.request_id), (to, None));
    // What the first holder asked for goes along.
    assert_eq!(grant.terms, terms(0, "run 7"));
    let superseded = refused(Refusal::Superseded { epoch: Some(next) });
    assert_eq!(machine.release("a", from, epoch), superseded);
    assert_eq!(
        machine.acquire_on(terms(0, "run 7"), "a", from, 1),
        superseded
    );
}

#[test]
fn a_transfer_again_is_the_same_one_while_its_grant_lasts() {
    let mut machine = Machine::new();
    let (from, to, third) = (machine.open(1), machine.open(2), machine.open(3));
    let first = machine.acquire("a", from, 1).epoch;
    machine.transfer("a", from, first, to);
    let (second, before) = (epoch(first.get() + 1), machine.state.clone());
    let again = machine.transfer("a", from, first, to);
    let same = Outcome::Transferred {
        epoch: second,
        new: false,
    };
    assert_eq!((again, machine.events.len()), (same, 0));
    let superseded = refused(Refusal::Superseded {
        epoch: Some(second),
    });
    // To another, or by another, it is not the same.
    assert_eq!(machine.transfer("a", from, first, third), superseded);
    assert_eq!(machine.transfer("a", third, first, to), superseded);
    assert_eq!(machine.state, before);

    // There and back again: each of them is told of its own only.
    machine.transfer("a", to, second, from);
    let third_epoch = epoch(second.get() + 1);
    let superseded = refused(Refusal::Superseded {
        epoch: Some(third_epoch),
    });
    assert_eq!(machine.transfer("a", from, first, to), superseded);
    let back = machine.transfer("a", to, second, from);
    let same = Outcome::Transferred {
        epoch: third_epoch,
        new: false,
    };
    assert_eq!(back, same);
}

#[test]
fn a_transfer_goes_before_the_queue_and_answers_the_targets_own_wait() {
    let mut machine = Machine::new();
    let (from, first, to) = (machine.open(1), machine.open(2), machine.open(3));
    let grant = machine.acquire("a", from, 1);
    machine.wait("a", first, 7);
    machine.wait("a", to, 8);
    machine.transfer("a", from, grant.epoch, to);
    assert_eq!(
        machine.told(),
        [
            "wait granted: a session-3.0 id=8",
            "7.1 transferred: a 0+2 session-3.0 id=8, ended 0+1",
        ]
    );
    // A retry of the wait finds the grant, and so does one of the transfer.
    let again = machine.one(acquire("a", to, 8, 30_000));
    assert!(matches!(again, Outcome::Granted { new: false, .. }));
    let again = machine.transfer("a", from, grant.epoch, to);
    assert!(matches!(again, Outcome::Transferred { new: false, .. }));
    let epoch = machine.granted(to, 8).unwrap();
    machine.release("a", to, epoch);
    assert!(machine.granted(first, 7).is_some());
}

#[test]
fn a_transferred_grant_is_released_reissued_and_ended_like_any_other() {
    let ends: [fn(&mut Machine, SessionId); 3] = [
        |machine, session| {
            machine.close(session);
        },
        |machine, session| {
            let second = machine.reissue("a", session, 5);
            assert!(matches!(second, Outcome::Granted { new: true, .. }));
            let epoch = machine.granted(session, 5).unwrap();
            machine.release("a", session, epoch);
        },
        |machine, session| {
            let held = machine.state.scope(&scope("a"), 0).held.unwrap();
            machine.release("a", session, held.epoch);
        },
    ];
    for end in ends {
        let mut machine = Machine::new();
        let (from, to) = (machine.open(1), machine.open(2));
        let grant = machine.acquire("a", from, 1);
        machine.transfer("a", from, grant.epoch, to);
        let held = machine.try_acquire("a", to, 9);
        assert!(matches!(
            held,
            Outcome::Refused(Refusal::AlreadyHeld { .. })
        ));
        end(&mut machine, to);
        assert_eq!(machine.state.counts().grants, 0);
        machine.acquire("a", from, 2);
    }
}

#[test]
fn each_refusal_of_a_transfer_changes_nothing() {
    let mut machine = Machine::new();
    let (from, to, gone) = (machine.open(1), machine.open(2), machine.open(3));
    machine.close(gone);
    let grant = machine.acquire("a", from, 1).epoch;
    let above = epoch(grant.get() + 1);
    let forged = SessionId {
        open_id: OpenId(Uuid::from_u128(99)),
        ..to
    };
    let before = machine.state.clone();
    for (session, number, target, refusal) in [
        (from, grant, gone, Refusal::TargetExpired),
        (from, grant, forged, Refusal::TargetExpired),
        (from, grant, from, Refusal::TargetIsSelf),
        (gone, grant, to, Refusal::SessionExpired),
        (to, grant, from, Refusal::NotTheHolder { epoch: grant }),
        (from, above, to, Refusal::EpochUnknown { epoch: above }),
    ] {
        let outcome = machine.transfer("a", session, number, target);
        assert_eq!(outcome, refused(refusal));
        assert_eq!((&machine.state, machine.events.len()), (&before, 0));
    }
}

#[test]
fn in_the_last_year_nothing_is_transferred_or_reissued() {
    let mut machine = Machine::new();
    machine.wall_ms = (1 << 43) - 1;
    let (from, to) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", from, 1);
    machine.wait("a", to, 1);
    machine.wall_ms += 1;
    machine.apply(Vec::new());
    let before = machine.state.clone();
    let exhausted = refused(Refusal::EpochExhausted);
    assert_eq!(machine.transfer("a", from, grant.epoch, to), exhausted);
    assert_eq!(machine.reissue("a", from, 2), exhausted);
    assert_eq!(machine.state, before);
    // What is held stays held, and can be given back.
    let outcome = machine.release("a", from, grant.epoch);
    assert_eq!(outcome, Outcome::Released { released: true });
}

#[test]
fn a_reissue_takes_the_next_epoch_and_spends_the_id_before() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    // Of a free scope, it is an acquire.
    machine.reissue("a", session, 1);
    assert_eq!(machine.told(), ["2.1 granted: a 0+1 session-1.0 id=1"]);
    machine.reissue("a", session, 2);
    assert_eq!(
        machine.told(),
        ["3.1 granted: a 0+2 session-1.0 id=2, ended 0+1"]
    );
    let grant = machine.acquire("a", session, 2);
    let again = machine.reissue("a", session, 2);
    let same = Outcome::Granted {
        grant: grant.clone(),
        new: false,
    };
    assert_eq!(again, same);
    let ended = machine.reissue("a", session, 1);
    let superseded = refused(Refusal::Superseded {
        epoch: Some(grant.epoch),
    });
    assert_eq!(ended, superseded);
    // Another's is not reissued.
    let other = machine.open(2);
    let held = refused(Refusal::ScopeHeld { epoch: grant.epoch });
    assert_eq!(machine.reissue("a", other, 1), held);
}
