use super::hash::hash_of_rows;
use super::machine::Machine;
use super::shadow::Shadow;
use crate::changes::{Changes, RowChange};
use crate::command::SessionKey;
use crate::load::StandingRow;
use crate::rows::SpentUse;
use crate::state::SPENT_IDS_KEPT;
use crate::terms::LockDelay;

/// What one step changed, each row by a word.
fn changed(machine: &mut Machine) -> Vec<String> {
    let changes = machine.state.take_changes();
    let word = |row| match row {
        RowChange::Session(key, row) => format!("session {} {}", key.index, row.is_some()),
        RowChange::Scope(name, row) => format!("scope {name} {}", row.is_some()),
        RowChange::Spent(_, id, scope) => format!("spent {id} {}", scope.is_some()),
        RowChange::Wait(name, _, row) => format!("wait {name} {}", row.is_some()),
        RowChange::Record(name, row) => format!("record {name} {}", row.is_some()),
        RowChange::Admin(_, row) => format!("rare {}", row.is_some()),
    };
    machine.state.changed_rows(&changes).map(word).collect()
}

#[test]
fn each_command_changes_its_own_rows_and_no_others() {
    let mut machine = Machine::new();
    machine.state.track_changes();
    let session = machine.open(1);
    assert_eq!(changed(&mut machine), ["session 1 true"]);
    machine.acquire("a", session, 1);
    let second = machine.acquire("b", session, 2);
    assert_eq!(changed(&mut machine), ["scope a true", "scope b true"]);
    machine.try_acquire("a", session, 1);
    machine.try_acquire("a", session, 9);
    machine.open(1);
    assert!(machine.state.take_changes().is_empty());
    let first = machine.first_bundle();
    assert_eq!(changed(&mut machine), ["rare true", "rare true"]);
    machine.put_bundle(first);
    assert_eq!(changed(&mut machine), ["rare true"]);
    machine.release("b", session, second.epoch);
    assert_eq!(changed(&mut machine), ["scope b true", "spent 2 true"]);
    machine.wall_ms += 1;
    machine.apply(Vec::new());
    assert_eq!(changed(&mut machine), ["scope b false"]);
    machine.close(session);
    let all = ["session 1 false", "scope a false", "spent 2 false"];
    assert_eq!(changed(&mut machine), all);
}

#[test]
fn nothing_is_recorded_unless_asked_for_and_asking_again_begins_anew() {
    let mut machine = Machine::new();
    machine.open(1);
    assert!(machine.state.take_changes().is_empty());
    machine.open(2);
    machine.state.track_changes();
    machine.open(3);
    assert_eq!(machine.state.clone().take_changes().len(), 1);
    machine.state.track_changes();
    assert_eq!(machine.state.take_changes().len(), 0);
    machine.open(4);
    assert_eq!(machine.state.take_changes().len(), 1);
}

#[test]
fn what_is_recorded_is_no_part_of_equality_or_the_hash() {
    let mut machine = Machine::new();
    machine.state.track_changes();
    machine.open(1);
    let mut other = machine.state.clone();
    assert!(!other.take_changes().is_empty());
    assert_eq!(other, machine.state);
    assert_eq!(other.hash(), machine.state.hash());
}

#[test]
fn changes_of_two_stretches_become_one() {
    let mut machine = Machine::new();
    machine.state.track_changes();
    let session = machine.open(1);
    machine.acquire("a", session, 1);
    let mut first = machine.state.take_changes();
    let grant = machine.acquire("b", session, 2);
    machine.release("b", session, grant.epoch);
    let second = machine.state.take_changes();
    assert_eq!((first.len(), second.len()), (2, 2));
    first.merge(Changes::default());
    first.merge(second);
    let rows: Vec<RowChange> = machine.state.changed_rows(&first).collect();
    let [
        RowChange::Session(..),
        RowChange::Scope(a, Some(_)),
        RowChange::Scope(b, Some(row)),
        RowChange::Spent(key, _, Some(spent)),
    ] = rows.as_slice()
    else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (&**a, &**b, &row.standing),
        ("a", "b", &StandingRow::Free(LockDelay::default()))
    );
    assert_eq!(
        (*key, spent.scope.as_str(), spent.what),
        (SessionKey::from(&session), "b", SpentUse::Grant)
    );
}

/// Random runs are too short for a session to forget an id.
#[test]
fn a_session_that_forgets_an_id_is_hashed_and_recorded() {
    let mut machine = Machine::new();
    machine.checked = false;
    let session = machine.open(1);
    machine.state.track_changes();
    let mut shadow = Shadow::of(&machine.state);
    for id in 1..=u64::from(SPENT_IDS_KEPT) + 2 {
        let grant = machine.acquire("a", session, id);
        machine.release("a", session, grant.epoch);
        if id >= u64::from(SPENT_IDS_KEPT) {
            let changes = machine.state.take_changes();
            shadow.follow(&machine.state, &changes);
            assert_eq!(shadow, Shadow::of(&machine.state));
            assert_eq!(machine.state.hash(), hash_of_rows(&machine.state));
        }
    }
    assert_eq!(machine.state.session(&session).unwrap().forgotten, 2);
}
