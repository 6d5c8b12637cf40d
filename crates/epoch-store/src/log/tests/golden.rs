//! The bytes of a log that are kept in the repository: a change of the format shows here, and logs
//! written before it must go on being read.
//!
//! `EPOCH_REWRITE_GOLDEN=1` writes the files anew, for a change that is meant. It needs a new format
//! version, and a reader for the old one.

use super::model::{Model, Operation};
use super::*;

/// Every kind of record, in frames of one and of several sectors, and two heads: the first without
/// records, the second with all that a head can have.
fn operations() -> Vec<Operation> {
    vec![
        Operation::Vote(5),
        Operation::Append(vec![0, 1, 40]),
        Operation::Append(vec![700]),
        Operation::Committed(7),
        Operation::Append(vec![10, 10]),
        Operation::Truncate { back: 1 },
        Operation::Purge { back: 2 },
        Operation::Append(vec![1_200]),
        Operation::Vote(9),
        Operation::Committed(8),
        Operation::Append(vec![3]),
    ]
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/log/tests/golden")
}

fn write() -> (SimFs, Model) {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    let mut model = Model::default();
    for operation in operations() {
        model.run(&operation, &mut log).unwrap();
        model.apply(&operation);
    }
    assert_eq!(segments(&fs).len(), 2);
    (fs, model)
}

#[test]
fn the_bytes_of_a_log_are_those_in_the_repository() {
    let (fs, _) = write();
    for path in fs.files() {
        let bytes = fs.read(&path).unwrap();
        let kept = golden().join(path.file_name().unwrap());
        if std::env::var("EPOCH_REWRITE_GOLDEN").is_ok_and(|value| value == "1") {
            std::fs::create_dir_all(golden()).unwrap();
            std::fs::write(&kept, &bytes).unwrap();
        }
        assert!(std::fs::read(&kept).unwrap() == bytes, "{}", kept.display());
    }
    let kept = std::fs::read_dir(golden()).unwrap().count();
    assert_eq!(kept, fs.files().len());
}

#[test]
fn the_log_in_the_repository_is_read() {
    let (_, mut model) = write();
    let fs = SimFs::new(1);
    fs.create_folder(folder()).unwrap();
    for file in std::fs::read_dir(golden()).unwrap() {
        let file = file.unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        fs.put(&folder().join(file.file_name()), &bytes).unwrap();
    }
    model.apply(&Operation::Reopen);
    let segment = |number, bytes, frames, first_frame, indices: (u64, u64)| SegmentReport {
        number,
        file: segment::segment_path(folder(), number),
        bytes,
        frames,
        first_frame,
        last_frame: first_frame + frames - 1,
        first_index: Some(indices.0),
        last_index: Some(indices.1),
    };
    let report = LogReport {
        segments: vec![
            segment(1, 8 * 512, 7, 1, (0, 5)),
            segment(2, 6 * 512, 4, 8, (5, 6)),
        ],
        first_index: Some(3),
        last_index: Some(6),
        purged: model.purged.clone(),
        vote: model.vote.clone(),
        committed: model.committed.clone(),
        synced: Some(11),
        torn_tail: None,
        incomplete: Vec::new(),
    };
    assert_eq!(inspect(&fs, folder()).unwrap().0, report);
    assert_eq!(model.difference(&open(&fs).unwrap()), None);
}
