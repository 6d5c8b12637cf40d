//! Which snapshots are kept, and what the log may lose for them.

use super::*;
use crate::SimFs;
use crate::testing::Workload;

fn indexes(snapshots: &Snapshots) -> Vec<u64> {
    let whole = snapshots.whole();
    whole.iter().map(|file| file.meta.index).collect()
}

fn keep(snapshots: &Snapshots, state: &State, index: u64) {
    snapshots.write(state, &meta(index), &mut || ()).unwrap();
}

/// Of more than one portion of rows.
fn big_state() -> State {
    let mut workload = Workload::new(6, 100_000, 200);
    let mut state = fresh_state();
    for index in 1..=200 {
        workload.advance(&mut state, index);
    }
    state
}

fn spoil(folder: &Path, index: u64) {
    std::fs::write(folder.join(folder::file_name(index, 3)), "damaged").unwrap();
}

#[test]
fn a_folder_without_snapshots_has_none() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), &folder.path().join("missing")] {
        let snapshots = open(path);
        assert_eq!((snapshots.newest(), snapshots.purgeable()), (None, None));
        assert!(snapshots.damaged().is_empty());
    }
}

#[test]
fn opening_finds_the_newest_whole_file_and_names_the_damaged_ones() {
    let folder = tempfile::tempdir().unwrap();
    let state = random_state(4, 300);
    let older = write_to(folder.path(), &state, 9);
    let newer = write_to(folder.path(), &state, 10);
    std::fs::write(folder.path().join("snapshot-temp-0.tmp"), "left over").unwrap();
    let snapshots = open(folder.path());
    assert_eq!(snapshots.newest().as_ref(), Some(&newer));
    assert_eq!(snapshots.purgeable(), Some(9));
    assert_eq!(names(folder.path()).len(), 2);

    spoil(folder.path(), 10);
    let snapshots = open(folder.path());
    assert_eq!(snapshots.newest().as_ref(), Some(&older));
    assert_eq!(snapshots.purgeable(), None);
    assert_eq!(snapshots.damaged()[0].path, newer.path);

    spoil(folder.path(), 9);
    let snapshots = open(folder.path());
    assert_eq!((snapshots.newest(), snapshots.purgeable()), (None, None));
    assert_eq!(snapshots.damaged().len(), 2);
}

#[test]
fn two_are_kept_and_a_damaged_one_pushes_out_no_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let state = random_state(5, 300);
    let snapshots = open(folder.path());
    keep(&snapshots, &state, 1);
    assert_eq!(snapshots.purgeable(), None);
    for index in [2, 3] {
        keep(&snapshots, &state, index);
    }
    assert_eq!(indexes(&snapshots), [3, 2]);
    assert_eq!(snapshots.purgeable(), Some(2));
    assert_eq!(names(folder.path()).len(), 2);

    spoil(folder.path(), 3);
    keep(&snapshots, &state, 4);
    assert_eq!(indexes(&snapshots), [4, 2]);
    assert_eq!(snapshots.purgeable(), Some(2));
    let kept = [folder::file_name(2, 3), folder::file_name(4, 3)];
    assert_eq!(names(folder.path()), kept);

    for index in [2, 4] {
        spoil(folder.path(), index);
    }
    keep(&snapshots, &state, 5);
    assert_eq!(indexes(&snapshots), [5]);
    // The damaged ones stay until there are two whole ones again.
    assert_eq!(names(folder.path()).len(), 3);
    assert_eq!(snapshots.purgeable(), Some(2));
    keep(&snapshots, &state, 6);
    assert_eq!(indexes(&snapshots), [6, 5]);
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn a_slow_build_does_not_replace_a_newer_one_received_meanwhile() {
    let state = big_state();
    let peer = tempfile::tempdir().unwrap();
    let files = [20, 30].map(|index| write_to(peer.path(), &state, index));

    let folder = tempfile::tempdir().unwrap();
    let snapshots = open(folder.path());
    let mut received = 0;
    let mut receive_meanwhile = || {
        // Two of a peer's snapshots arrive while this one is half written.
        for file in files.iter().skip(received) {
            let mut incoming = snapshots.receive().unwrap();
            for chunk in chunks(&RealFs, file).unwrap() {
                incoming.append(&chunk.unwrap()).unwrap();
            }
            incoming.finish(|_, _| true).unwrap();
            received += 1;
        }
    };
    let written = snapshots.write(&state, &meta(10), &mut receive_meanwhile);
    written.unwrap();
    assert_eq!(received, 2);
    assert_eq!(indexes(&snapshots), [30, 20]);
    assert_eq!(snapshots.purgeable(), Some(20));
    assert_eq!(indexes(&open(folder.path())), [30, 20]);
}

#[test]
fn writing_pauses_after_each_portion_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let state = big_state();
    let mut pauses = 0;
    let written = write(&fs(), folder.path(), &state, &meta(1), &mut || pauses += 1).unwrap();
    let portions = written.plain_bytes / (256 << 10);
    assert!(portions > 0);
    let compressed = std::fs::metadata(&written.file.path).unwrap().len();
    assert!(pauses >= portions, "{pauses} pauses, {portions} portions");
    assert!(written.plain_bytes > compressed);
}

#[test]
fn what_arrives_is_synced_each_mebibyte() {
    let fs = SimFs::new(1);
    let snapshots = Snapshots::open(fs.shared(), Path::new("/snapshots")).unwrap();
    let mut incoming = snapshots.receive().unwrap();
    let before = fs.operations();
    for _ in 0..12 {
        incoming.append(&[7; 256 << 10]).unwrap();
    }
    // A sync after each four writes.
    assert_eq!(fs.operations() - before, 12 + 3);
}
