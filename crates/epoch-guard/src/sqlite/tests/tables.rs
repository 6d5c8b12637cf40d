//! Installing, protecting, and the table of refusals.

use epoch_core::Reason;

use super::super::{GuardError, SqliteGuard};
use super::*;

#[test]
fn installing_again_changes_nothing() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    SqliteGuard::install(&connection).unwrap();
    SqliteGuard::protect(&connection, "NOTE").unwrap();
    assert_eq!(
        reason(&bench.write(&mut connection, 41, "b")),
        Some(Reason::EpochSuperseded)
    );
}

#[test]
fn a_database_without_tables_or_with_later_ones_is_refused() {
    let bench = Bench::new();
    let mut bare = open(&bench.folder.path().join("bare.db"));
    let verdict = bench.write(&mut bare, 42, "a");
    assert!(matches!(
        verdict,
        Err(WriteError::Guard(GuardError::NotInstalled))
    ));
    assert!(matches!(
        SqliteGuard::protect(&bare, "x"),
        Err(GuardError::NotInstalled)
    ));
    let mut connection = bench.open();
    connection
        .execute("UPDATE epoch_meta SET version = 2", [])
        .unwrap();
    let verdict = bench.write(&mut connection, 42, "a");
    let Err(WriteError::Guard(GuardError::Version { found: 2, .. })) = verdict else {
        panic!()
    };
    assert!(matches!(
        SqliteGuard::install(&connection),
        Err(GuardError::Version { .. })
    ));
}

#[test]
fn a_protected_table_refuses_changes_outside_of_the_guard() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    for sql in [
        "INSERT INTO note (text) VALUES ('raw')",
        "INSERT OR IGNORE INTO note (text) VALUES ('raw')",
        "REPLACE INTO note (number, text) VALUES (1, 'raw')",
        "UPDATE note SET text = 'raw'",
        "UPDATE OR IGNORE note SET text = 'raw'",
        "DELETE FROM note",
    ] {
        for connection in [&connection, &bench.open()] {
            let error = connection.execute(sql, []).unwrap_err();
            assert!(
                error.to_string().contains("guarded write"),
                "{sql}: {error}"
            );
        }
    }
    assert_eq!(epochs_written(&connection, &scope()), [42]);
}

#[test]
fn only_ordinary_tables_of_the_callers_can_be_protected() {
    let bench = Bench::new();
    let connection = bench.open();
    connection
        .execute_batch("CREATE VIEW seen AS SELECT * FROM note")
        .unwrap();
    for table in [
        "missing",
        "seen",
        "epoch_fence",
        "sqlite_schema",
        "note\"; DROP TABLE note; --",
    ] {
        let refused = SqliteGuard::protect(&connection, table);
        assert!(
            matches!(refused, Err(GuardError::NotATable { .. })),
            "{table}"
        );
    }
    connection
        .execute_batch("CREATE TABLE \"odd \"\" name\" (x)")
        .unwrap();
    SqliteGuard::protect(&connection, "odd \" name").unwrap();
    assert!(
        connection
            .execute("INSERT INTO \"odd \"\" name\" VALUES (1)", [])
            .is_err()
    );
}

#[test]
fn a_connection_in_a_transaction_is_refused() {
    let bench = Bench::new();
    let mut connection = bench.open();
    connection.execute_batch("BEGIN").unwrap();
    let verdict = bench.write(&mut connection, 42, "a");
    assert!(matches!(
        verdict,
        Err(WriteError::Guard(GuardError::InTransaction))
    ));
}

#[test]
fn refusals_say_who_which_epoch_why_and_when() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    let old = token(&fence(41, "sleeper"));
    let late = bench.write_as(&mut connection, &old, Some(&intent("late")), None);
    assert_eq!(reason(&late), Some(Reason::EpochSuperseded));
    let barrier = bench
        .guard
        .advance(&mut connection, &scope(), "garbage", NOW_MS + 1);
    assert!(matches!(
        barrier,
        Err(GuardError::Refused { recorded: true, .. })
    ));
    let refusals = SqliteGuard::refusals(&connection, 10).unwrap();
    let [barrier, late] = refusals.as_slice() else {
        panic!("{refusals:?}")
    };
    assert_eq!(
        (late.reason.as_str(), late.operation.as_str()),
        ("EPOCH_SUPERSEDED", "write")
    );
    assert_eq!(
        (late.at_ms, late.scope.as_str()),
        (NOW_MS, "reports/research-note")
    );
    assert_eq!(
        (late.holder.as_deref(), late.epoch),
        (Some("sleeper"), Some(41))
    );
    assert_eq!(late.intent.as_deref(), Some("late"));
    assert_eq!(
        (barrier.reason.as_str(), barrier.operation.as_str()),
        ("CERTIFICATE_INVALID", "barrier")
    );
    assert_eq!(
        (barrier.holder.as_deref(), barrier.epoch),
        (None, None),
        "nothing was verified"
    );
    assert_eq!(SqliteGuard::refusals(&connection, 1).unwrap().len(), 1);
}

#[test]
fn a_damaged_fence_row_is_refused_by_name() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    connection
        .execute("UPDATE epoch_fence SET incarnation = 'zzz'", [])
        .unwrap();
    let verdict = bench.write(&mut connection, 43, "b");
    let Err(WriteError::Guard(GuardError::Corrupt { table, .. })) = verdict else {
        panic!()
    };
    assert_eq!(table, "epoch_fence");
}
