use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use epoch_core::{ClusterId, Epoch, Holder, Incarnation, OpenId, RequestId, Scope, SessionId};
use epoch_machine::{
    Batch, Command, Entry, Head, HeldRow, Leadership, Outcome, ScopeRow, SessionKey, SessionRow,
    State, Ttl, apply,
};
use epoch_proto::raft;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::*;
use crate::codec::{RowCounts, head_message, scope_message, session_message, spent_message};
use crate::{FileSystem, RealFs};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A state with sessions, held scopes under several leaderships, free rows and spent ids.
fn random_state(seed: u64, batches: u64) -> State {
    let mut random = Random(seed);
    let mut state = State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    );
    let mut sessions: Vec<SessionId> = Vec::new();
    for index in 1..=batches {
        let leadership = Leadership {
            term: 1 + index / 50,
            node: 1 + random.below(3),
        };
        let mut commands = vec![Command::RegisterKey {
            node: leadership.node,
            public_key: Arc::new([u8::try_from(leadership.node).unwrap(); 32]),
        }];
        for _ in 0..random.below(20) {
            let scope = Scope::parse(&format!("scope/{}", random.below(2_000))).unwrap();
            let some = |random: &mut Random, sessions: &[SessionId]| {
                let at = usize::try_from(random.next()).unwrap() % sessions.len();
                sessions[at]
            };
            commands.push(match random.below(10) {
                0 => Command::Open {
                    open_id: OpenId(Uuid::from_u128(u128::from(random.next()))),
                    holder: Holder::parse(&format!("agent-{}", random.below(9))).unwrap(),
                    ttl: Ttl::from_ms(1_000 + random.below(9_000)).unwrap(),
                },
                1 => Command::Revoke { scope, epoch: None },
                _ if sessions.is_empty() => continue,
                2 => match state.list("", Some(&scope), 1).scopes.first() {
                    Some(held) => Command::Revoke {
                        scope: held.scope.clone(),
                        epoch: Some(held.epoch),
                    },
                    None => continue,
                },
                _ => Command::Acquire {
                    scope,
                    session: some(&mut random, &sessions),
                    request_id: RequestId::new(random.below(10_000) + 1).unwrap(),
                },
            });
        }
        let batch = Batch {
            leadership,
            wall_ms: 1_700_000_000_000 + index / 100,
            commands,
        };
        let entry = Entry { leadership, index };
        for outcome in apply(&mut state, entry, &batch).unwrap() {
            if let Outcome::Opened { session, .. } = outcome {
                sessions.push(session);
            }
        }
    }
    state
}

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

fn damage(error: &ReadSnapshotError) -> &DamageKind {
    &error.source
}

#[test]
fn a_big_state_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let state = random_state(7, 2_000);
    let counts = state.counts();
    assert!(counts.grants > 500 && counts.spent > 100 && counts.rows > counts.grants);
    let file = write(&fs(), folder.path(), &state, &meta(2_000)).unwrap();
    assert_eq!(
        names(folder.path()),
        ["snapshot-00000000000000002000-00000000000000000003"]
    );
    let found = open_newest_valid(&RealFs, folder.path()).unwrap();
    assert_eq!(found.as_ref(), Some(&file));
    let (loaded, loaded_meta) = load(&RealFs, &file).unwrap();
    assert_eq!(loaded, state);
    assert_eq!(loaded_meta, meta(2_000));
}

#[test]
fn an_empty_state_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    );
    let empty = SnapshotMeta {
        index: 0,
        term: 0,
        opaque: Bytes::new(),
    };
    let file = write(&fs(), folder.path(), &state, &empty).unwrap();
    assert_eq!(load(&RealFs, &file).unwrap(), (state, empty));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&fs(), folder.path(), &random_state(1, 300), &meta(1)).unwrap();
    let whole = std::fs::read(&file.path).unwrap();
    for end in (0..200)
        .chain((200..whole.len()).step_by(37))
        .chain(whole.len() - 40..whole.len())
    {
        std::fs::write(&file.path, &whole[..end]).unwrap();
        load(&RealFs, &file).unwrap_err();
        open_newest_valid(&RealFs, folder.path()).unwrap_err();
    }
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&fs(), folder.path(), &random_state(2, 300), &meta(1)).unwrap();
    let whole = std::fs::read(&file.path).unwrap();
    for at in (0..100)
        .chain((100..whole.len()).step_by(101))
        .chain(whole.len() - 40..whole.len())
    {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&file.path, &changed).unwrap();
        load(&RealFs, &file).unwrap_err();
        open_newest_valid(&RealFs, folder.path()).unwrap_err();
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&fs(), folder.path(), &random_state(3, 300), &meta(1)).unwrap();
    let mut longer = std::fs::read(&file.path).unwrap();
    longer.push(0);
    std::fs::write(&file.path, &longer).unwrap();
    load(&RealFs, &file).unwrap_err();
    open_newest_valid(&RealFs, folder.path()).unwrap_err();
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

fn head(sessions: u64, scopes: u64, spent: u64) -> Vec<u8> {
    let head = Head {
        cluster_id: ClusterId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        group: 0,
        now_ms: 1,
        keys: vec![(1, [1; 32])],
    };
    let counts = RowCounts {
        sessions,
        scopes,
        spent,
    };
    row(&head_message(&head, counts))
}

fn session() -> raft::SnapshotRow {
    session_message(&SessionRow {
        key: KEY,
        open_id: OpenId(Uuid::from_u128(1)),
        holder: Holder::parse("agent-a").unwrap(),
        ttl: Ttl::from_ms(1_000).unwrap(),
        forgotten: 3,
    })
}

fn held(scope: &str, request_id: u64) -> raft::SnapshotRow {
    scope_message(&ScopeRow {
        scope: Scope::parse(scope).unwrap(),
        epoch: Epoch::new(1 << 20).unwrap(),
        held: Some(HeldRow {
            session: KEY,
            request_id: RequestId::new(request_id).unwrap(),
            leadership: Leadership { term: 1, node: 1 },
            index: 2,
            offset: 0,
        }),
    })
}

fn spent(request_id: u64) -> raft::SnapshotRow {
    spent_message(
        KEY,
        RequestId::new(request_id).unwrap(),
        &Scope::parse("a").unwrap(),
    )
}

#[test]
fn rows_that_do_not_fit_together_are_refused_though_the_hash_fits() {
    let folder = tempfile::tempdir().unwrap();
    let load_rows = |rows: &[Vec<u8>]| load(&RealFs, &forged(folder.path(), rows, b""));
    let session = || row(&session());
    let held = |scope: &str, request_id| row(&held(scope, request_id));
    let spent = |request_id| row(&spent(request_id));

    let good = [
        head(1, 2, 1),
        session(),
        held("a", 5),
        held("b", 6),
        spent(7),
    ];
    let (state, _) = load_rows(&good).unwrap();
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
            matches!(damage(&error), DamageKind::Relation(_)),
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
            matches!(damage(&error), DamageKind::RowKind(_)),
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
    let error = load_rows(&[head(1, 0, 0), session], b"x").unwrap_err();
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
        matches!(damage(&error), DamageKind::Row { row: 1, .. }),
        "{error:?}"
    );
}

#[test]
fn the_newest_whole_file_is_taken_and_damaged_ones_are_never_an_empty_start() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(open_newest_valid(&RealFs, folder.path()).unwrap(), None);
    let missing = folder.path().join("missing");
    assert_eq!(open_newest_valid(&RealFs, &missing).unwrap(), None);

    let state = random_state(4, 300);
    let older = write(&fs(), folder.path(), &state, &meta(9)).unwrap();
    let newer = write(&fs(), folder.path(), &state, &meta(10)).unwrap();
    std::fs::write(folder.path().join("snapshot-temp-0.tmp"), "left over").unwrap();
    let found = open_newest_valid(&RealFs, folder.path()).unwrap();
    assert_eq!(found.as_ref(), Some(&newer));
    assert_eq!(names(folder.path()).len(), 2);

    std::fs::write(&newer.path, "damaged").unwrap();
    let found = open_newest_valid(&RealFs, folder.path()).unwrap();
    assert_eq!(found.as_ref(), Some(&older));

    std::fs::write(&older.path, "").unwrap();
    let error = open_newest_valid(&RealFs, folder.path()).unwrap_err();
    assert!(
        matches!(error, OpenSnapshotError::AllDamaged { count: 2, .. }),
        "{error:?}"
    );
}

#[test]
fn a_file_under_another_name_than_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&fs(), folder.path(), &random_state(4, 300), &meta(9)).unwrap();
    let renamed = folder.path().join(folder::file_name(90, 3));
    std::fs::rename(&file.path, &renamed).unwrap();
    let error = open_newest_valid(&RealFs, folder.path()).unwrap_err();
    let OpenSnapshotError::AllDamaged { source, .. } = error else {
        panic!("{error:?}");
    };
    assert!(matches!(damage(&source), DamageKind::Name), "{source:?}");
}

#[test]
fn two_are_kept_and_a_damaged_one_pushes_out_no_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let state = random_state(5, 300);
    let indexes =
        |kept: Vec<SnapshotFile>| -> Vec<u64> { kept.iter().map(|file| file.meta.index).collect() };
    let prune = || indexes(prune(&RealFs, folder.path(), KEPT).unwrap());
    for index in [1, 2, 3] {
        write(&fs(), folder.path(), &state, &meta(index)).unwrap();
    }
    assert_eq!(prune(), [3, 2]);
    assert_eq!(names(folder.path()).len(), 2);

    std::fs::write(folder.path().join(folder::file_name(3, 3)), "damaged").unwrap();
    assert_eq!(prune(), [2]);
    assert_eq!(names(folder.path()).len(), 2);
    write(&fs(), folder.path(), &state, &meta(4)).unwrap();
    assert_eq!(prune(), [4, 2]);
    assert_eq!(
        names(folder.path()),
        [folder::file_name(2, 3), folder::file_name(4, 3)]
    );
}

#[test]
fn a_snapshot_is_sent_and_received_whole() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let state = random_state(6, 3_000);
    let file = write(&fs(), from.path(), &state, &meta(11)).unwrap();
    let chunks = chunks(&RealFs, &file).unwrap();
    assert_eq!(
        chunks.total_bytes(),
        std::fs::metadata(&file.path).unwrap().len()
    );
    // The sender prunes meanwhile.
    std::fs::remove_file(&file.path).unwrap();

    let mut receiver = Receiver::begin(fs(), to.path()).unwrap();
    for chunk in chunks {
        // In other portions than it was read in.
        for portion in chunk.unwrap().chunks(1_000) {
            receiver.append(portion).unwrap();
        }
    }
    let (received, received_state) = receiver.finish().unwrap();
    assert_eq!(received_state, state);
    assert_eq!(received.meta, meta(11));
    assert_eq!(load(&RealFs, &received).unwrap(), (state, meta(11)));
    assert_eq!(
        open_newest_valid(&RealFs, to.path()).unwrap().as_ref(),
        Some(&received)
    );
}

#[test]
fn a_receive_that_is_broken_off_or_wrong_leaves_nothing() {
    let from = tempfile::tempdir().unwrap();
    let to = tempfile::tempdir().unwrap();
    let file = write(&fs(), from.path(), &random_state(6, 300), &meta(11)).unwrap();
    let whole = std::fs::read(&file.path).unwrap();

    let mut dropped = Receiver::begin(fs(), to.path()).unwrap();
    dropped.append(&whole[..whole.len() / 2]).unwrap();
    assert_eq!(names(to.path()), ["snapshot-temp-0.tmp"]);
    let mut cut = Receiver::begin(fs(), to.path()).unwrap();
    cut.append(&whole[..whole.len() - 1]).unwrap();
    assert_eq!(names(to.path()).len(), 2);
    drop(dropped);
    let error = cut.finish().unwrap_err();
    assert!(
        matches!(error, WriteSnapshotError::Received(_)),
        "{error:?}"
    );
    assert!(names(to.path()).is_empty());
}

#[test]
fn an_opaque_part_beyond_the_bound_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut meta = meta(1);
    meta.opaque = vec![0; META_BYTES_MAX + 1].into();
    let error = write(&fs(), folder.path(), &random_state(6, 300), &meta).unwrap_err();
    assert!(
        matches!(error, WriteSnapshotError::MetaTooLarge(_)),
        "{error:?}"
    );
    assert!(names(folder.path()).is_empty());
}
