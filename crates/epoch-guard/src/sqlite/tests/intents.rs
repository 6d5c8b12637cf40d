//! Intents, revisions, and writes that fail.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use epoch_core::{PayloadDigest, Reason};

use super::super::{GuardError, SqliteGuard, Write};
use super::*;

/// Everything a failed write must leave as it was.
fn picture(connection: &Connection) -> Vec<i64> {
    ["note", "epoch_fence", "epoch_intent", "epoch_admission"]
        .iter()
        .map(|table| {
            let sql = format!("SELECT count(*) FROM {table}");
            connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        })
        .chain([SqliteGuard::revision(connection, &scope())
            .unwrap()
            .try_into()
            .unwrap()])
        .collect()
}

#[test]
fn the_same_intent_again_gives_the_stored_outcome_and_no_second_effect() {
    let bench = Bench::new();
    let mut connection = bench.open();
    let first = bench.write(&mut connection, 42, "a").unwrap();
    assert_eq!(
        (first.outcome.as_slice(), first.revision, first.replayed),
        (&b"1"[..], 1, false)
    );
    bench.write(&mut connection, 42, "b").unwrap();
    // Also by the next holder, and although the revision it expected has moved on.
    let next = token(&fence(43, "writer"));
    for expected in [None, Some(0)] {
        let again = bench
            .write_as(&mut connection, &next, Some(&intent("a")), expected)
            .unwrap();
        assert_eq!(
            (again.outcome.as_slice(), again.revision, again.replayed),
            (&b"1"[..], 1, true)
        );
    }
    assert_eq!(epochs_written(&connection, &scope()), [42, 42]);
}

#[test]
fn the_same_intent_with_another_payload_is_refused() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    let other = Intent {
        payload: PayloadDigest::of(b"other"),
        ..intent("a")
    };
    let verdict = bench.write_as(
        &mut connection,
        &token(&fence(42, "writer")),
        Some(&other),
        None,
    );
    assert_eq!(reason(&verdict), Some(Reason::IntentReused));
    assert_eq!(epochs_written(&connection, &scope()), [42]);
}

#[test]
fn intents_and_revisions_of_one_scope_are_not_those_of_another() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    let other = Scope::parse("reports/Research-note").unwrap();
    let token = token_in(&other, &fence(7, "writer"));
    let write = Write {
        scope: &other,
        certificate: token.as_str().into(),
        intent: Some(&intent("a")),
        expected_revision: Some(0),
        now_ms: NOW_MS,
    };
    let admitted = bench.guard.write(&mut connection, &write, |transaction| {
        note(transaction, &other, 7)
    });
    assert!(!admitted.unwrap().replayed);
    assert_eq!(SqliteGuard::revision(&connection, &other).unwrap(), 1);
}

#[test]
fn only_the_write_at_the_expected_revision_is_admitted() {
    let bench = Bench::new();
    let mut connection = bench.open();
    let token = token(&fence(42, "writer"));
    assert_eq!(SqliteGuard::revision(&connection, &scope()).unwrap(), 0);
    let first = bench
        .write_as(&mut connection, &token, None, Some(0))
        .unwrap();
    assert_eq!(first.revision, 1);
    let stale = bench.write_as(&mut connection, &token, None, Some(0));
    assert_eq!(reason(&stale), Some(Reason::RevisionMismatch));
    assert_eq!(
        bench
            .write_as(&mut connection, &token, None, Some(1))
            .unwrap()
            .revision,
        2
    );
}

#[test]
fn a_failed_business_write_leaves_nothing_not_even_the_fence() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 41, "a").unwrap();
    let before = picture(&connection);
    let (scope, token, intent) = (scope(), token(&fence(42, "writer")), intent("b"));
    let write = Write {
        scope: &scope,
        certificate: token.as_str().into(),
        intent: Some(&intent),
        expected_revision: None,
        now_ms: NOW_MS,
    };
    let failed = bench.guard.write(&mut connection, &write, |transaction| {
        note(transaction, &scope, 42)?;
        transaction
            .execute("INSERT INTO no_such_table VALUES (1)", [])
            .map(|_rows| Vec::new())
    });
    assert!(matches!(failed, Err(WriteError::Business(_))));
    assert_eq!(picture(&connection), before);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        bench.guard.write(
            &mut connection,
            &write,
            |transaction| -> rusqlite::Result<Vec<u8>> {
                note(transaction, &scope, 42)?;
                panic!("the business write panics")
            },
        )
    }));
    assert!(panicked.is_err());
    assert_eq!(picture(&connection), before);
    let fence = SqliteGuard::fence(&connection, &scope).unwrap().unwrap();
    assert_eq!(fence.epoch.get(), 41);
    assert!(bench.write(&mut connection, 42, "b").is_ok());
}

/// What a killed process leaves: the files as they are in the middle of the transaction, changed
/// pages spilled, recovered by whoever opens them next.
#[test]
fn a_crash_in_the_middle_leaves_nothing() {
    for mode in ["DELETE", "WAL"] {
        let bench = Bench::new();
        let mut connection = bench.open();
        connection
            .pragma_update(None, "journal_mode", mode)
            .unwrap();
        bench.write(&mut connection, 41, "a").unwrap();
        let before = picture(&connection);
        connection.pragma_update(None, "cache_size", 1).unwrap();
        let (scope, token, intent) = (scope(), token(&fence(42, "writer")), intent("b"));
        let write = Write {
            scope: &scope,
            certificate: token.as_str().into(),
            intent: Some(&intent),
            expected_revision: None,
            now_ms: NOW_MS,
        };
        let crashed = tempfile::tempdir().unwrap();
        let spilled = Cell::new(false);
        let admitted = bench.guard.write(&mut connection, &write, |transaction| {
            for _ in 0..1000 {
                note(transaction, &scope, 42)?;
            }
            for name in ["content.db", "content.db-journal", "content.db-wal"] {
                let from = bench.folder.path().join(name);
                if from.exists() {
                    std::fs::copy(from, crashed.path().join(name)).unwrap();
                }
            }
            let bytes: u64 = std::fs::read_dir(crashed.path())
                .unwrap()
                .map(|entry| entry.unwrap().metadata().unwrap().len())
                .sum();
            spilled.set(bytes > 40_000);
            Ok::<_, rusqlite::Error>(Vec::new())
        });
        assert!(admitted.is_ok() && spilled.get(), "{mode}");
        assert_ne!(picture(&connection), before);
        let recovered = open(&crashed.path().join("content.db"));
        assert_eq!(picture(&recovered), before, "{mode}");
        let fence = SqliteGuard::fence(&recovered, &scope).unwrap().unwrap();
        assert_eq!(fence.epoch.get(), 41, "{mode}");
    }
}

#[test]
fn an_outcome_too_long_to_be_stored_rolls_everything_back() {
    let bench = Bench::with(SqliteSettings {
        outcome_bytes_max: 8,
        ..Default::default()
    });
    let mut connection = bench.open();
    let before = picture(&connection);
    let (scope, token) = (scope(), token(&fence(42, "writer")));
    let write = Write {
        scope: &scope,
        certificate: token.as_str().into(),
        intent: None,
        expected_revision: None,
        now_ms: NOW_MS,
    };
    let long = bench.guard.write(&mut connection, &write, |transaction| {
        note(transaction, &scope, 42).map(|_number| vec![0; 9])
    });
    let Err(WriteError::Guard(error)) = long else {
        panic!()
    };
    assert!(matches!(
        error,
        GuardError::OutcomeTooLarge { len: 9, max: 8 }
    ));
    assert_eq!(picture(&connection), before);
}

#[test]
fn a_business_write_that_ends_the_transaction_is_reported_and_opens_nothing() {
    let bench = Bench::new();
    let mut connection = bench.open();
    let (scope, token) = (scope(), token(&fence(42, "writer")));
    let write = Write {
        scope: &scope,
        certificate: token.as_str().into(),
        intent: None,
        expected_revision: None,
        now_ms: NOW_MS,
    };
    for sql in ["COMMIT", "ROLLBACK"] {
        let ended = bench.guard.write(&mut connection, &write, |transaction| {
            transaction.execute_batch(sql).map(|()| Vec::new())
        });
        assert!(
            matches!(ended, Err(WriteError::Guard(GuardError::TransactionEnded))),
            "{sql}"
        );
        let raw = connection.execute("INSERT INTO note (text) VALUES ('raw')", []);
        assert!(raw.is_err(), "{sql}");
    }
}
