//! Zeros ahead of the log's end.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::{Fault, RealFs, Repeat};

const MIB: u64 = 1 << 20;

fn open_large(fs: &SimFs) -> Log {
    Log::open(fs.shared(), folder(), LogOptions::default()).unwrap()
}

fn sizes(fs: &SimFs) -> Vec<u64> {
    let size = |path: &PathBuf| fs.read(path).unwrap().len() as u64;
    segments(fs).iter().map(size).collect()
}

#[test]
fn zeros_are_filled_two_mebibytes_ahead_a_step_at_a_time() {
    let fs = SimFs::new(1);
    let mut log = open_large(&fs);
    assert_eq!(sizes(&fs), [512]);
    let filler = log.zero_filler();
    for filled in [MIB, 2 * MIB] {
        assert!(filler.fill().unwrap());
        assert_eq!(sizes(&fs), [512 + filled]);
    }
    assert!(!filler.fill().unwrap());
    // Into the zeros, and then beyond them.
    log.append(&entries(0..1, 600)).unwrap();
    assert_eq!(sizes(&fs), [512 + 2 * MIB]);
    assert!(filler.fill().unwrap());
    assert_eq!(sizes(&fs), [512 + 3 * MIB]);
    log.append(&entries(1..6, 900_000)).unwrap();
    let end = log.active.end;
    assert!(end > 512 + 3 * MIB);
    assert!(filler.fill().unwrap());
    assert_eq!(sizes(&fs), [end + MIB]);
    let written = all(&log);
    drop(log);
    let log = open_large(&fs.restart(1));
    assert_eq!(all(&log), written);
    // What is there need not be filled again.
    assert!(log.zero_filler().fill().unwrap());
    assert!(!log.zero_filler().fill().unwrap());
}

#[test]
fn a_filled_segment_is_a_clean_end_wherever_a_crash_cuts_it() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..3, 100)).unwrap();
    let end = log.active.end;
    drop(log);
    let path = segments(&fs).pop().unwrap();
    for size in (end..end + 1_100).chain([SMALL.segment_bytes_max]) {
        fs.truncate(&path, end).unwrap();
        fs.truncate(&path, size).unwrap();
        assert_eq!(inspect(&fs, folder()).unwrap().0.torn_tail, None);
        let mut log = open(&fs).unwrap();
        assert_eq!(all(&log), entries(0..3, 100));
        assert_eq!(sizes(&fs), [size]);
        log.zero_filler().fill().unwrap();
        assert_eq!(sizes(&fs), [SMALL.segment_bytes_max]);
        assert_eq!(log.active.end, end);
        log.save_committed(log_id("here")).unwrap();
    }
}

#[test]
fn the_filler_goes_on_with_the_next_segment_and_stays_within_its_bounds() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    let filler = log.zero_filler();
    for index in 0..20 {
        log.append(&entries(index..index + 1, 800)).unwrap();
        filler.fill().unwrap();
        assert!(!filler.fill().unwrap());
    }
    assert!(sizes(&fs).len() >= 3);
    assert!(
        sizes(&fs)
            .iter()
            .all(|size| *size == SMALL.segment_bytes_max)
    );
    // A frame larger than a segment leaves nothing to fill.
    log.append(&entries(20..21, 10_000)).unwrap();
    assert!(!filler.fill().unwrap());
    drop(log);
    assert!(!filler.fill().unwrap());
    assert_eq!(open(&fs).unwrap().last_index(), Some(20));
}

#[test]
fn no_frame_is_overwritten_while_both_are_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions {
        segment_bytes_max: 512 << 10,
        ..SMALL
    };
    let mut log = Log::open(RealFs::shared(), folder.path(), options).unwrap();
    let filler = log.zero_filler();
    let (stop, stopped) = mpsc::channel::<()>();
    let filling = thread::spawn(move || {
        let mut steps = 0;
        while stopped.try_recv().is_err() {
            steps += usize::from(filler.fill().unwrap());
            thread::yield_now();
        }
        steps
    });
    for index in 0..300 {
        log.append(&entries(index..index + 1, 9_000)).unwrap();
    }
    stop.send(()).unwrap();
    assert!(filling.join().unwrap() >= 4);
    assert_eq!(all(&log), entries(0..300, 9_000));
    drop(log);
    let log = Log::open(RealFs::shared(), folder.path(), options).unwrap();
    assert_eq!(all(&log), entries(0..300, 9_000));
}

#[test]
fn a_full_disk_stops_the_filler_and_not_the_log_but_a_failed_sync_both() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    let filler = log.zero_filler();
    fs.fail_at(1, Fault::Full, Repeat::Once);
    assert!(!filler.fill().unwrap());
    log.append(&entries(0..1, 5)).unwrap();
    // The write of the zeros is the first operation, their sync the second.
    fs.fail_at(2, Fault::Broken, Repeat::Once);
    filler.fill().unwrap_err();
    let refused = log.append(&entries(1..2, 5)).unwrap_err();
    assert!(matches!(refused, WriteError::Poisoned), "{refused}");
    drop(log);
    assert_eq!(all(&open(&fs.restart(1)).unwrap()), entries(0..1, 5));
}
