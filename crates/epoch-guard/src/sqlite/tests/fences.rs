//! Who is admitted, in which order, and what becomes of the fence.

use std::sync::Arc;

use epoch_core::{Barrier as _, BarrierError, Incarnation, Reason, Refusal, Scope};

use super::super::{GuardError, SqliteBarrier, SqliteGuard, Write};
use super::*;

fn fence_of(connection: &Connection) -> (Incarnation, u64) {
    let fence = SqliteGuard::fence(connection, &scope()).unwrap().unwrap();
    (fence.incarnation, fence.epoch.get())
}

#[test]
fn without_a_barrier_the_old_holder_writes_until_the_new_one_has() {
    let bench = Bench::new();
    let mut connection = bench.open();
    assert!(bench.write(&mut connection, 41, "a").is_ok());
    assert!(
        bench.write(&mut connection, 41, "b").is_ok(),
        "42 exists, but not here yet"
    );
    assert!(bench.write(&mut connection, 42, "c").is_ok());
    let late = bench.write(&mut connection, 41, "d");
    assert_eq!(reason(&late), Some(Reason::EpochSuperseded));
    assert_eq!(epochs_written(&connection, &scope()), [41, 41, 42]);
}

#[test]
fn with_a_barrier_the_old_holder_is_out_before_the_new_one_writes() {
    let bench = Bench::new();
    let mut connection = bench.open();
    assert!(bench.write(&mut connection, 41, "a").is_ok());
    let new = token(&fence(42, "writer"));
    let raised = bench
        .guard
        .advance(&mut connection, &scope(), &*new, NOW_MS)
        .unwrap();
    assert!(raised.raised);
    assert_eq!((raised.epoch.get(), &raised.scope), (42, &scope()));
    let late = bench.write(&mut connection, 41, "b");
    assert_eq!(reason(&late), Some(Reason::EpochSuperseded));
    assert!(bench.write(&mut connection, 42, "c").is_ok());
    assert_eq!(epochs_written(&connection, &scope()), [41, 42]);
    let again = bench
        .guard
        .advance(&mut connection, &scope(), &*new, NOW_MS)
        .unwrap();
    assert!(!again.raised);
    let old = token(&fence(41, "writer"));
    let refused = bench
        .guard
        .advance(&mut connection, &scope(), &*old, NOW_MS)
        .unwrap_err();
    assert_eq!(refused.reason(), Reason::EpochSuperseded);
}

#[test]
fn a_late_write_learns_whether_its_intent_had_taken_effect() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 41, "done").unwrap();
    bench.write(&mut connection, 42, "next").unwrap();
    for (id, expected) in [("done", true), ("other", false)] {
        let late = bench.write(&mut connection, 41, id).unwrap_err();
        let WriteError::Guard(GuardError::Refused { refusal, .. }) = late else {
            panic!()
        };
        let Refusal::Superseded {
            intent_recorded, ..
        } = refusal
        else {
            panic!()
        };
        assert_eq!(intent_recorded, expected);
    }
}

#[test]
fn two_grants_under_one_epoch_are_told_apart() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    let mut other_position = fence(42, "writer");
    other_position.position.index += 1;
    for forked in [fence(42, "other"), other_position, holderless(42)] {
        let verdict = bench.write_as(&mut connection, &token(&forked), Some(&intent("b")), None);
        assert_eq!(reason(&verdict), Some(Reason::EpochForked));
    }
    assert!(bench.write(&mut connection, 42, "c").is_ok());
}

#[test]
fn a_higher_incarnation_voids_every_epoch_of_a_lower_one() {
    let bench = Bench::new();
    let mut connection = bench.open();
    let old = token(&fence_in(1, 9000, "writer"));
    let new = token(&fence_in(2, 7, "writer"));
    bench.write_as(&mut connection, &old, None, None).unwrap();
    bench.write_as(&mut connection, &new, None, None).unwrap();
    let void = bench.write_as(&mut connection, &old, None, None);
    assert_eq!(reason(&void), Some(Reason::IncarnationVoid));
    assert_eq!(fence_of(&connection), (fence_in(2, 7, "x").incarnation, 7));
}

#[test]
fn after_a_holderless_barrier_nothing_at_its_epoch_writes() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 41, "a").unwrap();
    let burned = certificate(&holderless(42));
    bench
        .guard
        .advance(&mut connection, &scope(), &burned, NOW_MS)
        .unwrap();
    let old = bench.write(&mut connection, 41, "b");
    assert_eq!(reason(&old), Some(Reason::EpochSuperseded));
    let same = bench.write(&mut connection, 42, "c");
    assert_eq!(reason(&same), Some(Reason::EpochForked));
    let itself = bench.write_as(&mut connection, &token(&holderless(42)), None, None);
    assert_eq!(reason(&itself), Some(Reason::CertificateInvalid));
    assert!(bench.write(&mut connection, 43, "d").is_ok());
    assert_eq!(epochs_written(&connection, &scope()), [41, 43]);
}

#[test]
fn no_certificate_and_bad_certificates_are_refused() {
    let bench = Bench::new();
    let mut connection = bench.open();
    let scope = scope();
    let mut tried = |certificate: Presented<'_>, now_ms| {
        let write = Write {
            scope: &scope,
            certificate,
            intent: None,
            expected_revision: None,
            now_ms,
        };
        bench.guard.write(&mut connection, &write, |transaction| {
            note(transaction, &scope, 0)
        })
    };
    let good = token(&fence(42, "writer"));
    let elsewhere = token_in(
        &Scope::parse("reports/other").unwrap(),
        &fence(42, "writer"),
    );
    for certificate in [
        Presented::Nothing,
        None::<&str>.into(),
        "".into(),
        good.trim_end_matches(|c| c != '.').into(),
        elsewhere.as_str().into(),
    ] {
        let verdict = tried(certificate, NOW_MS);
        assert_eq!(
            reason(&verdict),
            Some(Reason::CertificateInvalid),
            "{certificate:?}"
        );
    }
    let expired = tried(good.as_str().into(), NOW_MS + 2 * 3_600_000);
    assert_eq!(reason(&expired), Some(Reason::CertificateInvalid));
    assert!(tried(good.as_str().into(), NOW_MS).is_ok());
    assert_eq!(epochs_written(&connection, &scope).len(), 1);
}

#[test]
fn the_fence_rises_with_a_replay_and_with_a_failed_revision_check() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 41, "a").unwrap();
    let replay = bench.write(&mut connection, 42, "a").unwrap();
    assert!(replay.replayed);
    assert_eq!(fence_of(&connection).1, 42);
    let stale = bench.write_as(&mut connection, &token(&fence(43, "writer")), None, Some(7));
    assert_eq!(reason(&stale), Some(Reason::RevisionMismatch));
    assert_eq!(fence_of(&connection).1, 43);
    let late = bench.write(&mut connection, 42, "b");
    assert_eq!(reason(&late), Some(Reason::EpochSuperseded));
    assert_eq!(epochs_written(&connection, &scope()), [41]);
}

#[test]
fn the_fence_outlives_the_data_it_guards() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    let (scope, new) = (scope(), token(&fence(42, "writer")));
    let write = Write {
        scope: &scope,
        certificate: new.as_str().into(),
        intent: None,
        expected_revision: None,
        now_ms: NOW_MS,
    };
    let emptied = bench.guard.write(&mut connection, &write, |transaction| {
        transaction
            .execute("DELETE FROM note", [])
            .map(|_rows| Vec::new())
    });
    assert_eq!(emptied.unwrap().revision, 2);
    connection.execute_batch("DROP TABLE note; VACUUM").unwrap();
    let late = bench.write(&mut connection, 41, "b");
    assert_eq!(reason(&late), Some(Reason::EpochSuperseded));
}

#[test]
fn fence_rows_cannot_be_lowered_or_deleted_by_hand() {
    let bench = Bench::new();
    let mut connection = bench.open();
    bench.write(&mut connection, 42, "a").unwrap();
    for sql in [
        "DELETE FROM epoch_fence",
        "UPDATE epoch_fence SET epoch = 41",
        "UPDATE epoch_fence SET incarnation = '018f4d1c-0000-7000-8000-000000000000'",
        "UPDATE epoch_fence SET scope = 'other'",
        "UPDATE epoch_fence SET revision = 0",
        "REPLACE INTO epoch_fence SELECT scope, incarnation, 41, 0, 0, 0, 0, 0, NULL, NULL, 9, 0, 0
            FROM epoch_fence",
    ] {
        let error = connection.execute(sql, []).unwrap_err();
        assert!(error.to_string().contains("epoch guard"), "{sql}: {error}");
    }
    assert_eq!(fence_of(&connection).1, 42);
}

#[test]
fn a_barrier_object_gives_receipts_and_refusals() {
    let bench = Bench::new();
    let guard = Arc::new(guarding(verifier(), SqliteSettings::default()));
    let barrier = SqliteBarrier::new(guard, bench.open(), scope(), "notes");
    let new = token(&fence(42, "writer"));
    let receipt = barrier.advance(&new, NOW_MS).unwrap();
    assert_eq!(
        (
            receipt.resource.as_str(),
            receipt.epoch.get(),
            receipt.raised
        ),
        ("notes", 42, true)
    );
    let refused = barrier
        .advance(&token(&fence(41, "writer")), NOW_MS)
        .unwrap_err();
    assert!(matches!(
        refused,
        BarrierError::Refused {
            reason: Reason::EpochSuperseded,
            ..
        }
    ));
    let bare = Connection::open_in_memory().unwrap();
    let guard = Arc::new(guarding(verifier(), SqliteSettings::default()));
    let unready = SqliteBarrier::new(guard, bare, scope(), "notes").advance(&new, NOW_MS);
    assert!(unready.unwrap_err().retryable());
}
