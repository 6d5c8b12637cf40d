//! Tests of the log as a whole. By subject: ordinary use here, damage found on opening, what follows
//! the last frame, inspection, the bytes themselves, zeros ahead, failing disks, random operations
//! against a model, and the same with crashes.

mod crashes;
mod damage;
mod disk_faults;
mod filling;
mod golden;
mod inspection;
mod model;
mod sample;
mod synced_by;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use self::synced_by::SyncedBy;
use super::*;
use crate::{LockError, SimFs};

/// Small, so that a few entries fill several segments and most reads go to the disk.
const SMALL: LogOptions = LogOptions {
    segment_bytes_max: 4 << 10,
    cache_bytes_max: 1 << 10,
};

fn folder() -> &'static Path {
    Path::new("/log")
}

fn open(fs: &SimFs) -> Result<Log, OpenError> {
    Log::open(fs.shared(), folder(), SMALL)
}

/// An entry of `len` bytes that differs from its neighbours.
fn entry(index: u64, len: usize) -> (u64, Bytes) {
    (index, Bytes::from(vec![index.to_le_bytes()[0] | 1; len]))
}

fn entries(range: Range<u64>, len: usize) -> Vec<(u64, Bytes)> {
    range.map(|index| entry(index, len)).collect()
}

fn all(log: &Log) -> Vec<(u64, Bytes)> {
    log.read(0..u64::MAX, u64::MAX).unwrap()
}

fn segments(fs: &SimFs) -> Vec<PathBuf> {
    let files = fs.files().into_iter();
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(segment::segment_number).is_some()
    };
    files.filter(is_segment).collect()
}

fn log_id(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn an_empty_folder_is_an_empty_log() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let log = Log::open(crate::RealFs::shared(), &folder.path().join("log"), SMALL).unwrap();
        assert_eq!(
            (log.first_index(), log.last_index(), log.purged()),
            (None, None, None)
        );
        assert_eq!(
            (log.vote(), log.committed(), all(&log)),
            (None, None, vec![])
        );
    }
}

#[test]
fn entries_and_vote_are_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(crate::RealFs::shared(), folder.path(), SMALL).unwrap();
    log.save_vote(log_id("vote 1")).unwrap();
    let stats = log.append(&entries(0..3, 10)).unwrap();
    assert_eq!(
        stats,
        FlushStats {
            flushes: 1,
            bytes: 512
        }
    );
    log.append(&entries(3..20, 700)).unwrap();
    log.save_vote(log_id("vote 2")).unwrap();
    drop(log);
    let log = Log::open(crate::RealFs::shared(), folder.path(), SMALL).unwrap();
    assert_eq!(log.vote(), Some(log_id("vote 2")));
    assert_eq!((log.first_index(), log.last_index()), (Some(0), Some(19)));
    assert_eq!(all(&log), [entries(0..3, 10), entries(3..20, 700)].concat());
    assert_eq!(log.bytes_since(0), 3 * 10 + 17 * 700);
    assert_eq!(log.bytes_since(18), 2 * 700);
    assert_eq!(log.bytes_since(20), 0);
}

#[test]
fn an_append_that_does_not_follow_is_refused_and_harmless() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..2, 5)).unwrap();
    for bad in [
        entries(1..2, 5),
        entries(3..4, 5),
        vec![entry(2, 5), entry(4, 5)],
    ] {
        let refused = log.append(&bad).unwrap_err();
        assert!(
            matches!(refused, WriteError::NotConsecutive { .. }),
            "{refused}"
        );
    }
    let refused = log.append(&entries(2..3, ENTRY_BYTES_MAX + 1)).unwrap_err();
    assert!(matches!(refused, WriteError::TooLarge { .. }), "{refused}");
    let refused = log
        .save_vote(Bytes::from(vec![0; OPAQUE_BYTES_MAX + 1]))
        .unwrap_err();
    assert!(matches!(refused, WriteError::TooLarge { .. }), "{refused}");
    log.append(&entries(2..4, 5)).unwrap();
    assert_eq!(all(&log), entries(0..4, 5));
}

#[test]
fn reads_stop_at_the_byte_limit_but_bring_at_least_one_entry() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..40, 100)).unwrap();
    assert_eq!(log.read(5..30, 350).unwrap(), entries(5..8, 100));
    assert_eq!(log.read(39..80, 1).unwrap(), entries(39..40, 100));
    assert_eq!(log.read(0..1, 0).unwrap(), entries(0..1, 100));
    assert_eq!(log.read(40..50, 1_000).unwrap(), []);
}

#[test]
fn a_large_append_is_split_into_several_flushes() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    let large = entries(0..20, ENTRY_BYTES_MAX);
    assert_eq!(log.append(&large).unwrap().flushes, 2);
    drop(log);
    assert_eq!(all(&open(&fs).unwrap()), large);
}

#[test]
fn a_truncated_log_goes_on_with_other_entries() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..30, 300)).unwrap();
    log.truncate_from(12).unwrap();
    assert_eq!(all(&log), entries(0..12, 300));
    log.append(&entries(12..16, 77)).unwrap();
    drop(log);
    let mut log = open(&fs).unwrap();
    let expected = [entries(0..12, 300), entries(12..16, 77)].concat();
    assert_eq!(all(&log), expected);
    log.truncate_from(16).unwrap();
    assert_eq!(all(&log), expected);
}

#[test]
fn a_purge_gives_back_whole_segments_and_survives_reopening() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.save_vote(log_id("vote")).unwrap();
    for index in 0..30 {
        log.append(&entries(index..index + 1, 900)).unwrap();
    }
    let before = segments(&fs).len();
    log.purge_to(19, log_id("nineteen")).unwrap();
    let after = segments(&fs).len();
    assert!(after < before, "{after} of {before} segments are left");
    let refused = log.truncate_from(19).unwrap_err();
    assert!(
        matches!(
            refused,
            WriteError::Purged {
                from: 19,
                purged: 19
            }
        ),
        "{refused}"
    );
    log.purge_to(5, log_id("five")).unwrap();
    drop(log);
    let log = open(&fs).unwrap();
    assert_eq!(
        log.purged(),
        Some(Purged {
            index: 19,
            log_id: log_id("nineteen")
        })
    );
    assert_eq!(all(&log), entries(20..30, 900));
    assert_eq!(log.vote(), Some(log_id("vote")));
}

#[test]
fn a_purge_beyond_the_end_moves_the_next_index() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..20, 900)).unwrap();
    log.append(&entries(20..21, 900)).unwrap();
    log.purge_to(99, log_id("from a snapshot")).unwrap();
    assert_eq!(segments(&fs).len(), 1);
    drop(log);
    let mut log = open(&fs).unwrap();
    assert_eq!((log.first_index(), log.last_index()), (None, None));
    log.append(&entries(100..102, 9)).unwrap();
    assert_eq!(all(&log), entries(100..102, 9));
}

#[test]
fn a_segment_that_only_truncated_entries_refer_to_can_go() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..10, 300)).unwrap();
    // This one is in the second segment, and takes back entries of the first.
    log.append(&entries(10..20, 300)).unwrap();
    log.truncate_from(4).unwrap();
    log.append(&entries(4..8, 200)).unwrap();
    log.purge_to(5, log_id("five")).unwrap();
    assert!(!segments(&fs).contains(&segment::segment_path(folder(), 1)));
    drop(log);
    assert_eq!(all(&open(&fs).unwrap()), entries(6..8, 200));
}

#[test]
fn the_committed_mark_goes_along_with_the_next_flush() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.save_committed(log_id("one")).unwrap();
    log.append(&entries(0..1, 5)).unwrap();
    log.save_committed(log_id("two")).unwrap();
    assert_eq!(log.committed(), Some(log_id("two")));
    drop(log);
    let log = open(&fs).unwrap();
    assert_eq!(log.committed(), Some(log_id("one")));
}

#[test]
fn a_log_has_one_owner_at_a_time_and_readers_do_not_count() {
    let fs = SimFs::new(1);
    let log = open(&fs).unwrap();
    let refused = open(&fs).unwrap_err();
    assert!(
        matches!(refused, OpenError::Locked(LockError::Held(_))),
        "{refused}"
    );
    let _reader = log.reader();
    drop(log);
    open(&fs).unwrap();
}

#[test]
fn files_left_incomplete_by_a_crash_are_removed() {
    let fs = SimFs::new(1);
    drop(open(&fs).unwrap());
    let temp = segment::segment_path(folder(), 2).with_extension("tmp");
    fs.put(&temp, b"half a head").unwrap();
    open(&fs).unwrap();
    assert!(!fs.files().contains(&temp));
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let fs = SimFs::new(1);
    for segment_bytes_max in [0, u64::MAX] {
        let options = LogOptions {
            segment_bytes_max,
            ..SMALL
        };
        let refused = Log::open(fs.shared(), folder(), options).unwrap_err();
        assert!(matches!(refused, OpenError::Option { .. }), "{refused}");
    }
}

#[test]
fn readers_go_on_during_a_flush_and_do_not_see_what_is_not_synced() {
    let hook: Arc<Mutex<Option<LogReader>>> = Arc::default();
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (hook_in_sync, seen_in_sync) = (Arc::clone(&hook), Arc::clone(&seen));
    let fs = SyncedBy::over(SimFs::new(1), move |file| {
        if let Some(reader) = hook_in_sync.lock().unwrap().as_ref() {
            let read = reader.read(0..u64::MAX, u64::MAX).unwrap();
            seen_in_sync.lock().unwrap().push(read.len());
        }
        file.sync_data()
    });
    let mut log = Log::open(fs, folder(), SMALL).unwrap();
    log.append(&entries(0..5, 400)).unwrap();
    *hook.lock().unwrap() = Some(log.reader());
    log.append(&entries(5..6, 400)).unwrap();
    assert_eq!(*seen.lock().unwrap(), [5]);
    assert_eq!(log.reader().last_index(), Some(5));
}
