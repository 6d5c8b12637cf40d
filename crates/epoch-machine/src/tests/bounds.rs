use std::sync::Arc;

use epoch_core::RequestId;

use super::machine::{Machine, refused, scope};
use crate::command::{Command, SessionKey};
use crate::outcome::Refusal;
use crate::state::{GRANTS_MAX, SESSIONS_MAX};

#[test]
fn state_is_bounded_by_what_is_in_use() {
    let mut machine = Machine::new();
    machine.checked = false;
    for round in 0..50_u64 {
        let burn = |number| Command::Revoke {
            scope: scope(&format!("{round}/{number}")),
            epoch: None,
            by: None,
        };
        machine.apply((0..500).map(burn).collect());
        machine.wall_ms += 1;
    }
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().rows, 0);
}

#[test]
fn many_free_rows_are_forgotten_over_several_batches() {
    let mut machine = Machine::new();
    machine.checked = false;
    let burn = |number: u64| Command::Revoke {
        scope: scope(&number.to_string()),
        epoch: None,
        by: None,
    };
    machine.apply((0..3_000).map(burn).collect());
    machine.wall_ms += 1;
    machine.checked = true;
    let mut rows = Vec::new();
    for _ in 0..3 {
        machine.apply(Vec::new());
        rows.push(machine.state.counts().rows);
    }
    assert_eq!(rows, [3_000 - 1_024, 3_000 - 2_048, 0]);
}

#[test]
fn no_more_sessions_are_opened_than_are_kept() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    machine.checked = false;
    let row = machine.state.session(&session).unwrap().clone();
    for index in (1_000..).take(SESSIONS_MAX - 2) {
        let key = SessionKey { index, offset: 0 };
        machine.state.rows.put_session(key, row.clone());
    }
    machine.open(2);
    let before = machine.state.clone();
    assert_eq!(
        machine.try_open(3, "agent", 10_000),
        refused(Refusal::SessionLimit)
    );
    assert_eq!(machine.state.counts(), before.counts());
    // A retry of an Open that succeeded is no new session.
    assert_eq!(machine.open(1), session);
    machine.close(session);
    machine.open(3);
}

#[test]
fn no_more_grants_are_made_than_are_kept() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    machine.checked = false;
    let name: Arc<str> = "filler".into();
    let filler = (1..).map(|id| {
        let key = SessionKey {
            index: 1_000,
            offset: 0,
        };
        (key, RequestId::new(id).ok(), Arc::clone(&name))
    });
    machine.state.bound.extend(filler.take(GRANTS_MAX - 1));
    let grant = machine.acquire("a", session, 1);
    assert_eq!(
        machine.try_acquire("b", session, 2),
        refused(Refusal::GrantLimit)
    );
    // A retry is no new grant.
    assert_eq!(machine.acquire("a", session, 1), grant);
    machine.release("a", session, grant.epoch);
    machine.acquire("b", session, 2);
}
