//! Tests of snapshots. By subject: files here, forged rows, and which snapshots are kept.

mod kept;
mod rows;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use epoch_machine::State;

use super::*;
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
    let state = random_state(7, 1_990);
    let counts = state.counts();
    assert!(
        counts.grants > 500 && counts.spent > 100 && counts.rows > counts.grants,
        "{counts:?}"
    );
    assert!(counts.waits > 100 && counts.records > 100, "{counts:?}");
    let file = write_to(folder.path(), &state, 1_990);
    assert_eq!(
        names(folder.path()),
        ["snapshot-00000000000000001990-00000000000000000003"]
    );
    assert_eq!(open(folder.path()).newest().as_ref(), Some(&file));
    let (loaded, loaded_meta) = load(&RealFs, &file).unwrap();
    assert!(loaded == state);
    assert_eq!(loaded_meta, meta(1_990));
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
