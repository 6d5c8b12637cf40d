//! Files whose hash fits, of rows that nobody would have written.

use epoch_core::{ClusterId, EPOCH_EXCLUSIVE_MAX, Incarnation, KeyId};
use epoch_machine::{
    AdminRow, AuditAction, Head, INTENTS_KEPT, LoadError, Loader, RETIRED_KEPT, SPENT_IDS_KEPT,
    SessionRow, SpentRow, SpentUse, StateHash, Verb, Wait, WaitRow,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::*;
use crate::codec::SnapshotRow::{self, Admin, Record, Scope, Session, Spent, Wait as Waits};
use crate::codec::{RowCounts, RowsError, SnapshotHead, head_message, row_message};
use crate::testing::rows::{
    audit, bundle, free, held, key, largest_rows, limits, permission, record, request_id, retired,
    root, session, spent, token, wait,
};

/// A file with a good hash and any rows.
fn forged(folder: &Path, rows: &[Vec<u8>], after_frame: &[u8]) -> SnapshotFile {
    let mut bytes = header::encode(&meta(1)).unwrap();
    let plain: Vec<u8> = rows.concat();
    bytes.extend(zstd::encode_all(&plain[..], 1).unwrap());
    bytes.extend(after_frame);
    let hash = Sha256::digest(&bytes);
    bytes.extend(hash);
    let path = folder.join(folder::file_name(1, 3));
    std::fs::write(&path, &bytes).unwrap();
    SnapshotFile {
        path,
        meta: meta(1),
    }
}

fn row(message: &impl prost::Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    write::write_row(&mut bytes, &mut Vec::new(), message).unwrap();
    bytes
}

fn bare_head() -> Head {
    Head {
        cluster_id: ClusterId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        group: 0,
        now_ms: 1,
    }
}

fn head(counts: RowCounts, state_hash: StateHash) -> Vec<u8> {
    row(&head_message(&SnapshotHead {
        head: bare_head(),
        counts,
        state_hash,
    }))
}

/// A head that counts sessions only, and names the hash of a state without rows.
fn head_of_sessions(sessions: u64) -> Vec<u8> {
    let loader = Loader::new(bare_head());
    let counts = RowCounts {
        sessions,
        ..counts(&[])
    };
    head(counts, loader.finish().unwrap().hash())
}

fn counts(rows: &[SnapshotRow]) -> RowCounts {
    let count = |kind: fn(&SnapshotRow) -> bool| rows.iter().filter(|row| kind(row)).count() as u64;
    RowCounts {
        sessions: count(|row| matches!(row, Session(_))),
        scopes: count(|row| matches!(row, Scope(_))),
        spent: count(|row| matches!(row, Spent(_))),
        waits: count(|row| matches!(row, Waits(_))),
        records: count(|row| matches!(row, Record(_))),
        admin: count(|row| matches!(row, Admin(_))),
    }
}

fn wrong() -> StateHash {
    StateHash::from_bytes([7; 16])
}

/// Loads a file of these rows, rightly counted, and of this state hash.
fn load_rows(rows: &[SnapshotRow], state_hash: StateHash) -> Result<State, DamageKind> {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![head(counts(rows), state_hash)];
    all.extend(rows.iter().map(|one| row(&row_message(one))));
    let file = forged(folder.path(), &all, b"");
    match load(&RealFs, &file) {
        Ok((state, _)) => Ok(state),
        Err(error) => Err(error.source),
    }
}

/// The state that these rows make.
fn loaded(rows: &[SnapshotRow]) -> State {
    match load_rows(rows, wrong()).unwrap_err() {
        DamageKind::Rows(RowsError::StateHash { expected, found }) => {
            assert_eq!(expected, wrong());
            load_rows(rows, found).unwrap()
        }
        error => panic!("{error:?}"),
    }
}

fn unrelated(rows: &[SnapshotRow]) -> LoadError {
    match load_rows(rows, wrong()).unwrap_err() {
        DamageKind::Rows(RowsError::Relation(error)) => error,
        error => panic!("{error:?}"),
    }
}

/// Rows that fit together: a queue of two, a wait for a delayed scope, and one for a free scope
/// that has no epochs left.
fn good() -> Vec<SnapshotRow> {
    vec![
        Session(session(1)),
        Session(session(2)),
        Session(session(3)),
        Scope(held("a", key(1), Some(5))),
        Scope(held("b", key(1), Some(6))),
        Scope(free("c", 1 << 20, 9_000)),
        Scope(free("d", EPOCH_EXCLUSIVE_MAX - 1, 0)),
        Scope(held("e", key(2), None)),
        Spent(spent(key(1), 7, SpentUse::WaitExpired)),
        Waits(wait("a", 30, key(3), 8)),
        Waits(wait("a", 31, key(2), 8)),
        Waits(wait("c", 32, key(2), 9)),
        Waits(wait("d", 33, key(2), 10)),
        Record(record("a", Some(b"value"), INTENTS_KEPT)),
        Record(record("b", None, 1)),
        Admin(token(1, "p", "ci")),
        Admin(limits("p", Some(1))),
        Admin(audit(7, AuditAction::Revoke)),
        Admin(bundle(1, root().id())),
        Admin(AdminRow::Rotation(1)),
        Admin(retired(1)),
    ]
}

/// The good rows with this one among them, after all of its kind.
fn with(added: SnapshotRow) -> Vec<SnapshotRow> {
    let mut rows = good();
    let kind = |row: &SnapshotRow| match row {
        Session(_) => 0,
        Scope(_) => 1,
        Spent(_) => 2,
        Waits(_) => 3,
        Record(_) => 4,
        Admin(_) => 5,
    };
    let at = rows.partition_point(|row| kind(row) <= kind(&added));
    rows.insert(at, added);
    rows
}

#[test]
fn rows_that_fit_together_are_a_state() {
    let state = loaded(&good());
    let found = state.counts();
    assert_eq!(RowCounts::from(found), counts(&good()));
    assert_eq!((found.grants, found.waits), (3, 4));
}

#[test]
fn the_largest_rows_are_a_state() {
    let [
        Session(session),
        scope,
        Spent(spent),
        _,
        record,
        _,
        token,
        limits,
        audit,
        bundle,
        offer,
        rotation,
        retired,
        statement,
    ] = largest_rows()
    else {
        panic!("another order");
    };
    // What is spent is neither bound nor forgotten.
    let rows = [
        Session(SessionRow {
            forgotten: 0,
            ..session
        }),
        scope,
        Spent(SpentRow {
            request_id: request_id(1),
            ..spent
        }),
        record,
        token,
        limits,
        audit,
        bundle,
        offer,
        rotation,
        retired,
        statement,
    ];
    assert_eq!(loaded(&rows).counts().grants, 1);
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    let same_open_id = SessionRow {
        key: key(4),
        ..session(1)
    };
    for twice in [
        Session(session(1)),
        Session(same_open_id),
        Scope(held("a", key(1), Some(15))),
        Scope(free("a", 1, 0)),
        Spent(spent(key(1), 7, SpentUse::Grant)),
        // A place in a queue.
        Waits(wait("a", 30, key(1), 15)),
        Record(record("a", None, 0)),
        Admin(token(1, "other", "ci")),
        // A label of the same principal.
        Admin(token(2, "p", "ci")),
        Admin(limits("p", Some(2))),
        Admin(audit(7, AuditAction::TokenAdd)),
        Admin(bundle(1, KeyId::from_bytes([9; 32]))),
        Admin(AdminRow::Rotation(1)),
        Admin(retired(1)),
    ] {
        let error = unrelated(&with(twice.clone()));
        assert!(
            matches!(error, LoadError::Duplicate(_)),
            "{twice:?}: {error}"
        );
    }
}

#[test]
fn a_request_id_that_stands_for_two_things_is_refused() {
    for twice in [
        // It is bound: bound again, spent, waiting.
        Scope(held("z", key(1), Some(5))),
        Spent(spent(key(1), 5, SpentUse::Grant)),
        Waits(wait("c", 40, key(1), 5)),
        // It is spent: bound, waiting.
        Scope(held("z", key(1), Some(7))),
        Waits(wait("c", 40, key(1), 7)),
        // It waits: bound, spent, waiting again.
        Scope(held("z", key(2), Some(9))),
        Spent(spent(key(2), 9, SpentUse::WaitCancelled)),
        Waits(wait("b", 40, key(2), 9)),
    ] {
        let error = unrelated(&with(twice.clone()));
        assert!(
            matches!(error, LoadError::Duplicate(_)),
            "{twice:?}: {error}"
        );
    }
}

#[test]
fn a_session_that_is_gone_holds_waits_and_remembers_nothing() {
    for orphan in [
        Scope(held("z", key(9), Some(5))),
        Spent(spent(key(9), 7, SpentUse::Grant)),
        Waits(wait("a", 40, key(9), 8)),
    ] {
        let error = unrelated(&with(orphan.clone()));
        assert!(
            matches!(error, LoadError::NoSession(_)),
            "{orphan:?}: {error}"
        );
    }
}

#[test]
fn a_wait_that_cannot_be_is_refused() {
    // Its scope has no row.
    let error = unrelated(&with(Waits(wait("z", 40, key(2), 11))));
    assert!(matches!(error, LoadError::WaitForFree(_)), "{error}");
    // It is free.
    let mut rows = with(Waits(wait("z", 40, key(2), 11)));
    rows.insert(8, Scope(free("z", 1 << 20, 0)));
    let error = unrelated(&rows);
    assert!(matches!(error, LoadError::WaitForFree(_)), "{error}");
    // Its session is in that queue already.
    let error = unrelated(&with(Waits(wait("a", 40, key(2), 11))));
    assert!(matches!(error, LoadError::Duplicate(_)), "{error}");
    let no_time = WaitRow {
        wait: Wait::default(),
        ..wait("b", 40, key(2), 11)
    };
    let error = unrelated(&with(Waits(no_time)));
    assert!(matches!(error, LoadError::NoWait(_)), "{error}");
}

#[test]
fn rare_rows_that_cannot_be_are_refused() {
    let refused = |row| unrelated(&with(Admin(row)));
    let error = refused(limits("q", None));
    assert!(matches!(error, LoadError::NoLimits(_)), "{error}");
    // Nobody may wait any more, once somebody may operate.
    let error = refused(permission("root", "", Verb::Operate));
    assert!(matches!(error, LoadError::WaitNotPermitted(_)), "{error}");
    let nobody = [Admin(permission("root", "a", Verb::Operate))];
    let error = unrelated(&nobody);
    assert!(matches!(error, LoadError::NoOperator), "{error}");
    let keys: Vec<_> = (0..=u16::try_from(RETIRED_KEPT).unwrap())
        .map(|number| Admin(retired(number)))
        .collect();
    loaded(&keys[1..]);
    let error = unrelated(&keys);
    assert!(matches!(error, LoadError::TooMany(_)), "{error}");
    for row in [
        AdminRow::Rotation(2),
        bundle(3, KeyId::from_bytes([9; 32])),
        bundle(2, root().id()),
    ] {
        let error = refused(row);
        assert!(matches!(error, LoadError::Trust(_)), "{error}");
    }
    let no_root = [Admin(bundle(1, KeyId::from_bytes([9; 32])))];
    let error = unrelated(&no_root);
    assert!(matches!(error, LoadError::Trust(_)), "{error}");
}

#[test]
fn spent_request_ids_that_would_be_forgotten_are_refused() {
    let forgotten = session(1).forgotten;
    let error = unrelated(&with(Spent(spent(key(1), forgotten, SpentUse::Grant))));
    assert!(matches!(error, LoadError::Forgotten(_)), "{error}");
    let mut rows = vec![Session(session(1))];
    let ids = (forgotten + 1..).take(SPENT_IDS_KEPT.try_into().unwrap());
    rows.extend(ids.map(|id| Spent(spent(key(1), id, SpentUse::Grant))));
    loaded(&rows);
    rows.push(Spent(spent(key(1), 5_000, SpentUse::Grant)));
    let error = unrelated(&rows);
    assert!(matches!(error, LoadError::TooManySpent), "{error}");
}

#[test]
fn a_row_of_another_kind_than_its_place_says_is_refused() {
    let rows = good();
    let bounds = (1..rows.len())
        .filter(|at| std::mem::discriminant(&rows[at - 1]) != std::mem::discriminant(&rows[*at]));
    let bounds: Vec<_> = bounds.collect();
    assert_eq!(bounds.len(), 5);
    for at in bounds {
        let mut swapped = rows.clone();
        swapped.swap(at - 1, at);
        let error = load_rows(&swapped, wrong()).unwrap_err();
        let DamageKind::Rows(RowsError::Kind(row)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(row, at as u64);
    }
}

#[test]
fn malformed_rows_are_refused_though_the_hash_fits() {
    let folder = tempfile::tempdir().unwrap();
    let load_bytes = |rows: &[Vec<u8>], after: &[u8]| {
        let file = forged(folder.path(), rows, after);
        load(&RealFs, &file).unwrap_err().source
    };
    let session = row(&row_message(&Session(session(1))));

    let error = load_bytes(&[head_of_sessions(1)], b"");
    assert!(matches!(error, DamageKind::Io(_)), "{error:?}");
    let error = load_bytes(&[head_of_sessions(u64::MAX), session.clone()], b"");
    assert!(matches!(error, DamageKind::Io(_)), "{error:?}");
    let error = load_bytes(&[head_of_sessions(0), session], b"");
    assert!(matches!(error, DamageKind::Trailing), "{error:?}");
    let error = load_bytes(&[head_of_sessions(0)], b"x");
    assert!(matches!(error, DamageKind::Trailing), "{error:?}");
    let frame = zstd::encode_all(&b"second frame"[..], 1).unwrap();
    let error = load_bytes(&[head_of_sessions(0)], &frame);
    assert!(matches!(error, DamageKind::Trailing), "{error:?}");

    let huge = u32::MAX.to_le_bytes().to_vec();
    let error = load_bytes(&[head_of_sessions(1), huge], b"");
    assert!(matches!(error, DamageKind::RowTooLarge(_)), "{error:?}");
    let unknown = [3_u32.to_le_bytes().as_slice(), &[15 << 3, 1, 1]].concat();
    let error = load_bytes(&[head_of_sessions(1), unknown], b"");
    assert!(
        matches!(error, DamageKind::Rows(RowsError::Row { row: 1, .. })),
        "{error:?}"
    );
}
