//! Threads with connections of their own over one file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use epoch_core::{Reason, Scope};

use super::super::{GuardError, SqliteGuard, Write};
use super::*;

fn wal(bench: &Bench) {
    bench
        .open()
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
}

fn patient() -> SqliteSettings {
    SqliteSettings {
        busy_timeout_ms: 60_000,
        ..Default::default()
    }
}

#[test]
fn fifty_parallel_writes_of_one_intent_have_one_effect() {
    let bench = Bench::with(patient());
    wal(&bench);
    let start = Barrier::new(50);
    let verdicts: Vec<Admitted> = thread::scope(|threads| {
        let writers: Vec<_> = (0..50)
            .map(|_| {
                threads.spawn(|| {
                    let mut connection = bench.open();
                    start.wait();
                    bench.write(&mut connection, 42, "one").unwrap()
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    assert_eq!(
        verdicts
            .iter()
            .filter(|admitted| !admitted.replayed)
            .count(),
        1
    );
    assert!(
        verdicts
            .iter()
            .all(|admitted| (admitted.outcome.as_slice(), admitted.revision) == (b"1", 1))
    );
    assert_eq!(epochs_written(&bench.open(), &scope()), [42]);
}

/// The old holder writes three times while the new one takes over, in 1,000 scopes one after the
/// other; who comes first is left to the scheduler.
#[test]
fn racing_holders_never_leave_a_late_write() {
    const ROUNDS: usize = 1000;
    let bench = Bench::with(patient());
    wal(&bench);
    let scopes: Vec<Scope> = (0..ROUNDS)
        .map(|round| Scope::parse(&format!("race/{round}")).unwrap())
        .collect();
    let start = Barrier::new(2);
    let superseded = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let run = |epoch: u64, times: usize| {
        let mut connection = bench.open();
        for scope in &scopes {
            let token = token_in(scope, &fence(epoch, "writer"));
            let write = Write {
                scope,
                certificate: token.as_str().into(),
                intent: None,
                expected_revision: None,
                now_ms: NOW_MS,
            };
            start.wait();
            for _ in 0..times {
                let verdict = bench
                    .guard
                    .write(&mut connection, &write, |tx| note(tx, scope, epoch));
                if reason(&verdict) == Some(Reason::EpochSuperseded) {
                    superseded.fetch_add(1, Ordering::Relaxed);
                } else if let Err(error) = verdict {
                    // A panic here would leave the other thread waiting at the start.
                    failed.lock().unwrap().push(error.to_string());
                }
            }
        }
    };
    thread::scope(|threads| {
        threads.spawn(|| run(41, 3));
        threads.spawn(|| run(42, 1));
    });
    assert_eq!(failed.into_inner().unwrap(), Vec::<String>::new());
    let connection = bench.open();
    let mut written: u64 = 0;
    for scope in &scopes {
        let epochs = epochs_written(&connection, scope);
        assert_eq!(late_writes(&epochs), 0, "{scope}: {epochs:?}");
        assert_eq!(epochs.last(), Some(&42), "{scope}");
        written += u64::try_from(epochs.len()).unwrap();
    }
    assert_eq!(
        written + superseded.into_inner(),
        4 * 1000,
        "each write was one or the other"
    );
}

/// The checker is worth something only if it finds the bug it is for: a fence compared in one
/// transaction and a write done in the next.
#[test]
fn the_checker_finds_a_guard_that_compares_before_it_locks() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 41, "a").unwrap();
    let seen = SqliteGuard::fence(&connection, &scope()).unwrap().unwrap();
    let allowed = seen.epoch.get() <= 41;
    bench.write(&mut bench.open(), 42, "b").unwrap();
    assert!(allowed);
    connection
        .execute_batch(
            "BEGIN; INSERT INTO epoch_admission VALUES (1, 'x');
            INSERT INTO note (scope, epoch) VALUES ('reports/research-note', 41);
            DELETE FROM epoch_admission; COMMIT",
        )
        .unwrap();
    assert_eq!(late_writes(&epochs_written(&connection, &scope())), 1);
}

#[test]
fn a_locked_database_is_said_plainly_and_changes_nothing() {
    let bench = Bench::with(SqliteSettings {
        busy_timeout_ms: 1,
        ..Default::default()
    });
    let (mut connection, other) = (bench.open(), bench.open());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = bench.write(&mut connection, 42, "a");
    assert!(
        matches!(locked, Err(WriteError::Guard(GuardError::Locked { .. }))),
        "{locked:?}"
    );
    let token = token(&fence(42, "writer"));
    let locked = bench
        .guard
        .advance(&mut connection, &scope(), &*token, NOW_MS);
    assert!(matches!(locked, Err(GuardError::Locked { .. })));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(SqliteGuard::fence(&connection, &scope()).unwrap(), None);
    assert!(bench.write(&mut connection, 42, "a").is_ok());
}

#[test]
fn a_refusal_that_cannot_be_recorded_is_still_a_refusal() {
    let bench = Bench::with(SqliteSettings {
        busy_timeout_ms: 1,
        ..Default::default()
    });
    let (mut connection, other) = (bench.open(), bench.open());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let verdict = bench.write_as(&mut connection, "no token", None, None);
    let Err(WriteError::Guard(GuardError::Refused { refusal, recorded })) = verdict else {
        panic!()
    };
    assert_eq!(
        (refusal.reason(), recorded),
        (Reason::CertificateInvalid, false)
    );
}
