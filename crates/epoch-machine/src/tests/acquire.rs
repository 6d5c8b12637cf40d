use epoch_core::{EPOCH_EXCLUSIVE_MAX, OpenId, SessionId};
use uuid::Uuid;

use super::machine::{Machine, WALL_MS, epoch, first_epoch, refused, scope};
use crate::apply;
use crate::command::{Batch, Command, Entry, Leadership};
use crate::outcome::{ForeignLeadership, Grant, Outcome, Refusal};
use crate::rows::Row;
use crate::terms::{Terms, Wait};

#[test]
fn a_free_scope_is_granted_with_all_that_a_certificate_says() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let outcome = machine.try_acquire("a", session, 9);
    let grant = Grant {
        scope: scope("a"),
        epoch: first_epoch(WALL_MS),
        holder: epoch_core::Holder::parse("agent").unwrap(),
        session,
        request_id: epoch_core::RequestId::new(9).ok(),
        position: machine.position(),
        terms: Terms::default(),
    };
    assert_eq!(
        outcome,
        Outcome::Granted {
            grant: grant.clone(),
            new: true
        }
    );

    let state = machine.state.scope(&scope("a"), 1).held.unwrap();
    assert_eq!((state.epoch, state.position), (grant.epoch, grant.position));
    assert_eq!(
        (state.holder, state.session),
        (grant.holder.clone(), session.hash())
    );
    let current = machine
        .state
        .current_grant(&scope("a"), &session, grant.epoch);
    assert_eq!(current, Ok(grant));
}

#[test]
fn the_same_request_again_is_the_same_grant_while_it_is_held() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    machine.wall_ms += 5_000;
    let again = machine.try_acquire("a", session, 1);
    assert_eq!(
        again,
        Outcome::Granted {
            grant: grant.clone(),
            new: false
        }
    );

    machine.release("a", session, grant.epoch);
    // The row stays for now: time has not moved since the grant, as far as the row shows.
    let ended = machine.try_acquire("a", session, 1);
    assert_eq!(ended, refused(Refusal::Superseded { epoch: None }));
}

#[test]
fn a_request_whose_grant_has_ended_names_the_epoch_that_followed() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    machine.release("a", first, grant.epoch);
    let later = machine.acquire("a", second, 1);
    assert_eq!(later.epoch.get(), grant.epoch.get() + 1);
    let ended = machine.try_acquire("a", first, 1);
    assert_eq!(
        ended,
        refused(Refusal::Superseded {
            epoch: Some(later.epoch)
        })
    );
}

#[test]
fn each_refusal_of_an_acquire_changes_nothing() {
    let mut machine = Machine::new();
    let (session, other) = (machine.open(1), machine.open(2));
    let held = machine.acquire("held", session, 1);
    let spent = machine.acquire("spent", session, 2);
    machine.release("spent", session, spent.epoch);
    let forged = SessionId {
        open_id: OpenId(Uuid::from_u128(99)),
        ..session
    };
    let nowhere = SessionId {
        index: 1_000,
        ..session
    };
    let cases = [
        ("free", forged, 5, Refusal::SessionExpired),
        ("free", nowhere, 5, Refusal::SessionExpired),
        ("held", other, 5, Refusal::ScopeHeld { epoch: held.epoch }),
        (
            "held",
            session,
            5,
            Refusal::AlreadyHeld { epoch: held.epoch },
        ),
        ("free", session, 1, Refusal::RequestIdReused),
        ("free", session, 2, Refusal::RequestIdReused),
        (
            "spent",
            session,
            2,
            Refusal::Superseded {
                epoch: Some(spent.epoch),
            },
        ),
    ];
    let before = machine.state.clone();
    for (name, session, id, refusal) in cases {
        assert_eq!(
            machine.try_acquire(name, session, id),
            refused(refusal),
            "{name} {id}"
        );
        assert_eq!(machine.state, before, "{name} {id}");
    }
    // A refused try binds no request id.
    machine.release("held", session, held.epoch);
    assert!(matches!(
        machine.try_acquire("held", other, 5),
        Outcome::Granted { new: true, .. }
    ));
}

#[test]
fn request_ids_of_two_sessions_are_apart() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    machine.acquire("a", first, 1);
    let grant = machine.acquire("b", second, 1);
    assert_eq!(grant.session, second);
}

#[test]
fn epochs_rise_in_a_batch_and_over_a_clock_that_steps_back() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let acquire = |id| Command::Acquire {
        scope: scope("a"),
        session,
        request_id: epoch_core::RequestId::new(id).unwrap(),
        terms: Terms::default(),
        wait: Wait::default(),
        reissue: false,
    };
    let release = |number| Command::Release {
        scope: scope("a"),
        session,
        epoch: number,
    };
    let first = first_epoch(WALL_MS);
    let outcomes = machine.apply(vec![acquire(1), release(first), acquire(2)]);
    let Outcome::Granted { grant, .. } = &outcomes[2] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(
        (grant.epoch.get(), grant.position.offset),
        (first.get() + 1, 2)
    );

    machine.release("a", session, grant.epoch);
    machine.wall_ms = 5;
    assert_eq!(
        machine.acquire("a", session, 3).epoch.get(),
        first.get() + 2
    );
    // A scope never seen before starts above everything given at an earlier time, too.
    assert_eq!(machine.acquire("b", session, 4).epoch, first);
    assert_eq!(machine.state.now_ms(), WALL_MS);
}

#[test]
fn a_row_is_forgotten_once_time_alone_keeps_its_epochs_rising() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    machine.release("a", session, grant.epoch);
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().rows, 1);
    machine.wall_ms += 1;
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().rows, 0);
    assert!(machine.acquire("a", session, 2).epoch > grant.epoch);
}

#[test]
fn a_scope_without_epochs_left_is_refused_and_others_go_on() {
    let mut machine = Machine::new();
    machine.wall_ms = (1 << 43) - 1;
    let (session, last) = (machine.open(1), EPOCH_EXCLUSIVE_MAX - 1);
    let row = Row::free(epoch(last));
    machine.state.rows.put_scope("a".into(), row);
    machine.state.free.insert((epoch(last), "a".into()));
    let exhausted = refused(Refusal::EpochExhausted);
    assert_eq!(machine.try_acquire("a", session, 1), exhausted);
    assert_eq!(machine.revoke("a", None), exhausted);
    assert_eq!(
        machine.acquire("b", session, 2).epoch,
        first_epoch((1 << 43) - 1)
    );

    // From then on there are none anywhere, whatever the clock says: never a wrap.
    machine.wall_ms = u64::MAX;
    assert_eq!(machine.try_acquire("c", session, 3), exhausted);
    machine.wall_ms = 1;
    assert_eq!(machine.try_acquire("c", session, 3), exhausted);
}

#[test]
fn a_batch_of_another_leadership_changes_nothing() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    machine.acquire("a", session, 1);
    let before = machine.state.clone();
    let leadership = Leadership { term: 4, node: 2 };
    for other in [
        Leadership { term: 3, node: 2 },
        Leadership { term: 4, node: 1 },
    ] {
        let batch = Batch {
            leadership: other,
            wall_ms: WALL_MS + 5_000,
            commands: vec![Command::Expire {
                session: (&session).into(),
            }],
        };
        let entry = Entry {
            leadership,
            index: 50,
        };
        assert_eq!(
            apply(&mut machine.state, entry, &batch),
            Err(ForeignLeadership)
        );
        assert_eq!(machine.state, before);
    }
}
