//! What is kept is bounded, and so is the work of keeping it so.

use super::super::{SqliteGuard, Write};
use super::*;

fn count(connection: &Connection, table: &str) -> u64 {
    connection
        .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
            row.get(0)
        })
        .unwrap()
}

fn write_at(bench: &Bench, connection: &mut Connection, id: &str, now_ms: u64) -> bool {
    let (scope, intent, certificate) = (scope(), intent(id), certificate(&fence(42, "writer")));
    let write = Write {
        scope: &scope,
        certificate: Presented::Verified(&certificate),
        intent: Some(&intent),
        expected_revision: None,
        now_ms,
    };
    let admitted = bench
        .guard
        .write(connection, &write, |transaction| {
            note(transaction, &scope, 42)
        })
        .unwrap();
    admitted.replayed
}

#[test]
fn refusals_are_bounded_and_the_latest_stay() {
    let bench = Bench::with(SqliteSettings {
        refusals_max: 5,
        ..Default::default()
    });
    let mut connection = bench.open();
    for now_ms in 0..12 {
        let refused = bench
            .guard
            .advance(&mut connection, &scope(), "garbage", now_ms);
        assert!(refused.is_err());
    }
    let times: Vec<u64> = SqliteGuard::refusals(&connection, 100)
        .unwrap()
        .iter()
        .map(|r| r.at_ms)
        .collect();
    assert_eq!(times, [11, 10, 9, 8, 7]);
}

#[test]
fn intents_are_bounded_per_scope_and_the_latest_stay() {
    let bench = Bench::with(SqliteSettings {
        intents_per_scope_max: 3,
        ..Default::default()
    });
    let mut connection = bench.open();
    for id in ["a", "b", "c", "d", "e"] {
        assert!(!write_at(&bench, &mut connection, id, NOW_MS));
    }
    assert_eq!(count(&connection, "epoch_intent"), 3);
    for (id, replayed) in [("e", true), ("d", true), ("c", true), ("b", false)] {
        assert_eq!(
            write_at(&bench, &mut connection, id, NOW_MS),
            replayed,
            "{id}"
        );
    }
}

#[test]
fn intents_are_forgotten_with_age() {
    let bench = Bench::new();
    let mut connection = bench.open();
    write_at(&bench, &mut connection, "a", NOW_MS);
    write_at(&bench, &mut connection, "b", NOW_MS + 1);
    let later = NOW_MS + bench_age() + 1;
    assert!(!write_at(&bench, &mut connection, "c", later));
    assert_eq!(count(&connection, "epoch_intent"), 2);
    assert!(write_at(&bench, &mut connection, "b", later));
    assert!(!write_at(&bench, &mut connection, "a", later));
}

fn bench_age() -> u64 {
    SqliteSettings::default().intent_age_ms_max
}

/// 100 rows are too old at once; each write forgets at most 64 of them.
#[test]
fn forgetting_is_bounded_work() {
    let bench = Bench::new();
    let mut connection = bench.open();
    for number in 0..100 {
        write_at(&bench, &mut connection, &format!("old {number}"), NOW_MS);
    }
    let later = NOW_MS + bench_age() + 1;
    write_at(&bench, &mut connection, "new", later);
    assert_eq!(count(&connection, "epoch_intent"), 100 + 1 - 64);
    write_at(&bench, &mut connection, "newer", later);
    assert_eq!(count(&connection, "epoch_intent"), 2);
    let sql = "SELECT intents FROM epoch_fence";
    let noted: u64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(
        noted, 2,
        "the count kept in the fence row is the number of rows"
    );
}

#[test]
fn the_default_bounds_are_the_documented_ones() {
    let settings = SqliteSettings::default();
    assert_eq!(settings.intent_age_ms_max, 604_800_000);
    assert_eq!(settings.refusals_max, 10_000);
}
