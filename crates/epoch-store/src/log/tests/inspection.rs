//! Looking into a log without touching it. That it refuses what opening refuses is checked wherever
//! damage is: [`super::sample::Sample::open_with`].

use super::sample::Sample;
use super::*;
use crate::RealFs;

/// Inspects, and checks that nothing on the disk was so much as begun to be changed.
fn inspect_only(fs: &SimFs) -> Result<LogReport, OpenError> {
    let operations = fs.operations();
    let report = inspect(fs, folder()).map(|(report, _)| report);
    assert_eq!(fs.operations(), operations);
    report
}

#[test]
fn a_folder_without_a_log_is_reported_as_that_and_a_missing_one_refused() {
    let fs = SimFs::new(1);
    let refused = inspect_only(&fs).unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused}");
    fs.create_folder(folder()).unwrap();
    assert_eq!(inspect_only(&fs).unwrap(), LogReport::default());
}

#[test]
fn what_opening_would_repair_is_reported_and_left() {
    let sample = Sample::filled();
    let before = inspect_only(&sample.fs).unwrap();
    assert_eq!((before.torn_tail, before.incomplete), (None, vec![]));
    let path = sample.last_segment();
    let end = open(&sample.fs).unwrap().active.end;
    let temp = folder().join("log-9.tmp");
    sample.fs.put(&temp, b"half").unwrap();
    sample.fs.overwrite(&path, end + 100, &[1]).unwrap();
    for _ in 0..2 {
        let report = inspect_only(&sample.fs).unwrap();
        assert_eq!(report.incomplete, std::slice::from_ref(&temp));
        let torn = TornTail {
            file: path.clone(),
            offset: end,
            bytes: 512,
        };
        assert_eq!(report.torn_tail, Some(torn));
        assert_eq!(report.last_index, Some(13));
    }
    drop(open(&sample.fs).unwrap());
    let after = inspect_only(&sample.fs).unwrap();
    assert_eq!((after.torn_tail, after.incomplete), (None, vec![]));
}

#[test]
fn no_lock_is_taken_and_no_file_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(RealFs::shared(), folder.path(), SMALL).unwrap();
    log.append(&entries(0..3, 9)).unwrap();
    std::fs::remove_file(folder.path().join("LOCK")).unwrap();
    let (report, _) = inspect(&RealFs, folder.path()).unwrap();
    assert_eq!((report.first_index, report.last_index), (Some(0), Some(2)));
    assert!(!folder.path().join("LOCK").exists());
}
