mod kept;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use epoch_core::{ClusterId, Epoch, Holder, Incarnation, OpenId, RequestId, Scope};
use epoch_machine::{
    Head, HeldRow, Leadership, Loader, ScopeRow, SessionKey, SessionRow, SpentRow, SpentUse,
    StandingRow, State, StateHash, Terms, Ttl,
};
use epoch_proto::raft;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::*;
use crate::codec::{RowCounts, RowsError, SnapshotHead, SnapshotRow, head_message, row_message};
use crate::testing::{fresh_state, random_state};
use crate::{FileSystem, RealFs};

fn fs() -> Arc<dyn FileSystem> {
    RealFs::shared()
}

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        index,
        term: 3,
        opaque: Bytes::from_static(b"membership"),
    }
}

fn names(folder: &Path) -> Vec<String> {
    RealFs.list(folder).unwrap()
}

fn write_to(folder: &Path, state: &State, index: u64) -> SnapshotFile {
    let written = write(&fs(), folder, state, &meta(index), &mut || ());
    written.unwrap().file
}

fn open(folder: &Path) -> Snapshots {
    Snapshots::open(fs(), folder).unwrap()
}

/// Opens a folder whose only file is damaged.
fn assert_only_damage(folder: &Path) {
    let opened = open(folder);
    assert_eq!((opened.newest(), opened.purgeable()), (None, None));
    assert_eq!(opened.damaged().len(), 1);
}

fn damage(error: &ReadSnapshotError) -> &DamageKind {
    &error.source
}

#[test]
fn a_big_state_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let state = random_state(7, 2_000);
    let counts = state.counts();
    assert!(
        counts.grants > 500 && counts.waits > 100 && counts.records > 100,
        "{counts:?}"
    );
    let file = write_to(folder.path(), &state, 2_000);
    assert_eq!(
        names(folder.path()),
        ["snapshot-00000000000000002000-00000000000000000003"]
    );
    assert_eq!(open(folder.path()).newest().as_ref(), Some(&file));
    let (loaded, loaded_meta) = load(&RealFs, &file).unwrap();
    assert!(loaded == state);
    assert_eq!(loaded_meta, meta(2_000));
}

#[test]
fn an_empty_state_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let state = fresh_state();
    let empty = SnapshotMeta {
        index: 0,
        term: 0,
        opaque: Bytes::new(),
    };
    let written = write(&fs(), folder.path(), &state, &empty, &mut || ());
    let file = written.unwrap().file;
    assert!(load(&RealFs, &file).unwrap() == (state, empty));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_to(folder.path(), &random_state(1, 300), 1);
    let whole = std::fs::read(&file.path).unwrap();
    for end in (0..200)
        .chain((200..whole.len()).step_by(37))
        .chain(whole.len() - 40..whole.len())
    {
        std::fs::write(&file.path, &whole[..end]).unwrap();
        load(&RealFs, &file).unwrap_err();
        assert_only_damage(folder.path());
    }
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_to(folder.path(), &random_state(2, 300), 1);
    let whole = std::fs::read(&file.path).unwrap();
    for at in (0..100)
        .chain((100..whole.len()).step_by(101))
        .chain(whole.len() - 40..whole.len())
    {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&file.path, &changed).unwrap();
        load(&RealFs, &file).unwrap_err();
        assert_only_damage(folder.path());
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_to(folder.path(), &random_state(3, 300), 1);
    let mut longer = std::fs::read(&file.path).unwrap();
    longer.push(0);
    std::fs::write(&file.path, &longer).unwrap();
    load(&RealFs, &file).unwrap_err();
    assert_only_damage(folder.path());
}

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

const KEY: SessionKey = SessionKey {
    index: 1,
    offset: 0,
};

/// A head that names the hash of a state without rows.
fn head(sessions: u64, scopes: u64, spent: u64) -> Vec<u8> {
    let head = bare_head();
    let state_hash = Loader::new(head.clone()).unwrap().finish().unwrap().hash();
    head_with(state_hash, sessions, scopes, spent)
}

fn head_with(state_hash: StateHash, sessions: u64, scopes: u64, spent: u64) -> Vec<u8> {
    row(&head_message(&SnapshotHead {
        head: bare_head(),
        counts: RowCounts {
            sessions,
            scopes,
            spent,
            waits: 0,
            records: 0,
        },
        state_hash,
    }))
}

fn bare_head() -> Head {
    Head {
        cluster_id: ClusterId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        group: 0,
        now_ms: 1,
        keys: vec![(1, [1; 32])],
    }
}

fn session() -> raft::SnapshotRow {
    row_message(&SnapshotRow::Session(SessionRow {
        key: KEY,
        open_id: OpenId(Uuid::from_u128(1)),
        holder: Holder::parse("agent-a").unwrap(),
        ttl: Ttl::from_ms(1_000).unwrap(),
        stall_limit: None,
        forgotten: 3,
    }))
}

fn held(scope: &str, request_id: u64) -> raft::SnapshotRow {
    row_message(&SnapshotRow::Scope(ScopeRow {
        scope: Scope::parse(scope).unwrap(),
        epoch: Epoch::new(1 << 20).unwrap(),
        standing: StandingRow::Held(HeldRow {
            session: KEY,
            request_id: RequestId::new(request_id).ok(),
            leadership: Leadership { term: 1, node: 1 },
            index: 2,
            offset: 0,
            terms: Terms::default(),
            before: None,
        }),
    }))
}

fn spent(request_id: u64) -> raft::SnapshotRow {
    row_message(&SnapshotRow::Spent(SpentRow {
        session: KEY,
        request_id: RequestId::new(request_id).unwrap(),
        scope: Scope::parse("a").unwrap(),
        what: SpentUse::Grant,
    }))
}

#[test]
fn rows_that_do_not_fit_together_are_refused_though_the_hash_fits() {
    let folder = tempfile::tempdir().unwrap();
    let load_rows = |rows: &[Vec<u8>]| load(&RealFs, &forged(folder.path(), rows, b""));
    let session = || row(&session());
    let held = |scope: &str, request_id| row(&held(scope, request_id));
    let spent = |request_id| row(&spent(request_id));

    let rows = [session(), held("a", 5), held("b", 6), spent(7)];
    let good = |state_hash| {
        let mut all = vec![head_with(state_hash, 1, 2, 1)];
        all.extend(rows.clone());
        all
    };
    let wrong = StateHash::from_bytes([7; 16]);
    let error = load_rows(&good(wrong)).unwrap_err();
    let DamageKind::Rows(RowsError::StateHash { expected, found }) = damage(&error) else {
        panic!("{error:?}");
    };
    assert_eq!(*expected, wrong);
    let (state, _) = load_rows(&good(*found)).unwrap();
    assert_eq!(state.counts().grants, 2);

    let relations: [&[Vec<u8>]; 7] = [
        &[head(0, 1, 0), held("a", 5)],
        &[head(0, 0, 1), spent(7)],
        &[head(2, 0, 0), session(), session()],
        &[head(1, 2, 0), session(), held("a", 5), held("a", 6)],
        &[head(1, 2, 0), session(), held("a", 5), held("b", 5)],
        &[head(1, 1, 1), session(), held("a", 5), spent(5)],
        &[head(1, 0, 1), session(), spent(3)],
    ];
    for rows in relations {
        let error = load_rows(rows).unwrap_err();
        assert!(
            matches!(damage(&error), DamageKind::Rows(RowsError::Relation(_))),
            "{error:?}"
        );
    }

    let kinds: [&[Vec<u8>]; 2] = [
        &[head(1, 1, 0), held("a", 5), session()],
        &[head(1, 1, 0), session(), spent(7)],
    ];
    for rows in kinds {
        let error = load_rows(rows).unwrap_err();
        assert!(
            matches!(damage(&error), DamageKind::Rows(RowsError::Kind(_))),
            "{error:?}"
        );
    }
}

#[test]
fn malformed_rows_are_refused_though_the_hash_fits() {
    let folder = tempfile::tempdir().unwrap();
    let load_rows =
        |rows: &[Vec<u8>], after: &[u8]| load(&RealFs, &forged(folder.path(), rows, after));
    let session = row(&session());

    let error = load_rows(&[head(1, 0, 0)], b"").unwrap_err();
    assert!(matches!(damage(&error), DamageKind::Io(_)), "{error:?}");
    let error = load_rows(&[head(u64::MAX, 0, 0), session.clone()], b"").unwrap_err();
    assert!(matches!(damage(&error), DamageKind::Io(_)), "{error:?}");
    let error = load_rows(&[head(0, 0, 0), session.clone()], b"").unwrap_err();
    assert!(matches!(damage(&error), DamageKind::Trailing), "{error:?}");
    let error = load_rows(&[head(0, 0, 0)], b"x").unwrap_err();
    assert!(matches!(damage(&error), DamageKind::Trailing), "{error:?}");
    let frame = zstd::encode_all(&b"second frame"[..], 1).unwrap();
    let error = load_rows(&[head(0, 0, 0)], &frame).unwrap_err();
    assert!(matches!(damage(&error), DamageKind::Trailing), "{error:?}");

    let huge = u32::MAX.to_le_bytes().to_vec();
    let error = load_rows(&[head(1, 0, 0), huge], b"").unwrap_err();
    assert!(
        matches!(damage(&error), DamageKind::RowTooLarge(_)),
        "{error:?}"
    );
    let unknown = [3_u32.to_le_bytes().as_slice(), &[15 << 3, 1, 1]].concat();
    let error = load_rows(&[head(1, 0, 0), unknown], b"").unwrap_err();
    assert!(
        matches!(
            damage(&error),
            DamageKind::Rows(RowsError::Row { row: 1, .. })
        ),
        "{error:?}"
    );
}

#[test]
fn a_file_under_another_name_than_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_to(folder.path(), &random_state(4, 300), 9);
    let renamed = folder.path().join(folder::file_name(90, 3));
    std::fs::rename(&file.path, &renamed).unwrap();
    let opened = open(folder.path());
    let [damaged] = opened.damaged() else {
        panic!("{:?}", opened.damaged());
    };
    assert!(matches!(damage(damaged), DamageKind::Name), "{damaged:?}");
}

#[test]
fn a_snapshot_is_sent_and_received_whole() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let state = random_state(6, 3_000);
    let file = write_to(from.path(), &state, 11);
    let chunks = chunks(&RealFs, &file).unwrap();
    assert_eq!(
        chunks.total_bytes(),
        std::fs::metadata(&file.path).unwrap().len()
    );
    // The sender prunes meanwhile.
    std::fs::remove_file(&file.path).unwrap();

    let snapshots = open(to.path());
    let mut incoming = snapshots.receive().unwrap();
    for chunk in chunks {
        // In other portions than it was read in.
        for portion in chunk.unwrap().chunks(1_000) {
            incoming.append(portion).unwrap();
        }
    }
    let (received, received_state) = incoming.finish(|_, _| true).unwrap();
    assert!(received_state == state);
    assert_eq!(received.meta, meta(11));
    assert!(load(&RealFs, &received).unwrap() == (state, meta(11)));
    assert_eq!(snapshots.newest().as_ref(), Some(&received));
    assert_eq!(open(to.path()).newest(), Some(received));
}

#[test]
fn a_receive_that_is_broken_off_or_wrong_leaves_nothing() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let file = write_to(from.path(), &random_state(6, 300), 11);
    let whole = std::fs::read(&file.path).unwrap();

    let snapshots = open(to.path());
    let mut dropped = snapshots.receive().unwrap();
    dropped.append(&whole[..whole.len() / 2]).unwrap();
    assert_eq!(names(to.path()), ["snapshot-temp-0.tmp"]);
    let mut cut = snapshots.receive().unwrap();
    cut.append(&whole[..whole.len() - 1]).unwrap();
    assert_eq!(names(to.path()).len(), 2);
    drop(dropped);
    let error = cut.finish(|_, _| true).unwrap_err();
    assert!(
        matches!(error, WriteSnapshotError::Received(_)),
        "{error:?}"
    );
    let mut another = snapshots.receive().unwrap();
    another.append(&whole).unwrap();
    let error = another.finish(|found, _| *found == meta(12)).unwrap_err();
    assert!(matches!(error, WriteSnapshotError::Another), "{error:?}");
    assert!(names(to.path()).is_empty());
}

#[test]
fn an_opaque_part_beyond_the_bound_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut meta = meta(1);
    meta.opaque = vec![0; META_BYTES_MAX + 1].into();
    let state = random_state(6, 300);
    let error = write(&fs(), folder.path(), &state, &meta, &mut || ()).unwrap_err();
    assert!(
        matches!(error, WriteSnapshotError::MetaTooLarge(_)),
        "{error:?}"
    );
    assert!(names(folder.path()).is_empty());
}
