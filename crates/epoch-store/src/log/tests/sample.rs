//! A log with several segments, to be damaged.

use super::super::mark::MARK_NAME;
use super::*;

/// A log of several segments, and how its files look.
pub(super) struct Sample {
    pub(super) fs: SimFs,
}

impl Sample {
    /// Frames of one and of several sectors, in at least three segments.
    pub(super) fn new() -> Self {
        let fs = SimFs::new(1);
        let mut log = open(&fs).unwrap();
        log.save_vote(log_id("vote")).unwrap();
        append_samples(&mut log, 0);
        assert!(segments(&fs).len() >= 3);
        Self { fs }
    }

    /// The same with every segment filled with zeros to its end.
    pub(super) fn filled() -> Self {
        let sample = Self::new();
        for path in segments(&sample.fs) {
            sample.fs.truncate(&path, SMALL.segment_bytes_max).unwrap();
        }
        sample
    }

    pub(super) fn segment(&self, number: u64) -> PathBuf {
        segment::segment_path(folder(), number)
    }

    pub(super) fn last_segment(&self) -> PathBuf {
        segments(&self.fs).pop().unwrap()
    }

    pub(super) fn read(&self, path: &Path) -> Vec<u8> {
        self.fs.read(path).unwrap()
    }

    /// Opens the log with these bytes in place of a file. Inspecting it says the same first.
    pub(super) fn open_with(&self, path: &Path, bytes: &[u8]) -> Result<Log, OpenError> {
        self.fs.put(path, bytes).unwrap();
        let inspected = inspect(&self.fs, folder()).map(drop);
        let opened = open(&self.fs);
        let message = |refused: &OpenError| refused.to_string();
        let refused = opened.as_ref().err().map(message);
        assert_eq!(inspected.as_ref().err().map(message), refused);
        opened
    }

    /// As if nothing had been synced, so that only the segments tell.
    pub(super) fn forget_mark(&self) {
        let _forgotten = self.fs.lose(&mark());
        drop(SyncedMark::create(&self.fs, folder()).unwrap());
    }
}

pub(super) fn mark() -> PathBuf {
    folder().join(MARK_NAME)
}

/// Frames of two sectors and of one, by turns.
pub(super) const SAMPLE_LENS: [usize; 2] = [860, 50];

/// Appends entries from `from` to 13, each in a frame of its own.
pub(super) fn append_samples(log: &mut Log, from: u64) {
    for index in from..14 {
        let len = SAMPLE_LENS[usize::from(index % 2 == 1)];
        log.append(&entries(index..index + 1, len)).unwrap();
    }
}

pub(super) fn assert_damaged(refused: OpenError, path: &Path, at: u64) {
    match refused {
        OpenError::Damaged { file, offset, .. } => assert_eq!((file.as_path(), offset), (path, at)),
        other => panic!("not named as damage: {other}"),
    }
}

/// Where the frames of a segment begin, and their end, from the lengths in their headers.
pub(super) fn frame_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut at = 0;
    while bytes.get(at).is_some_and(|byte| *byte != 0) {
        let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap());
        at += format::frame_bytes(len.try_into().unwrap());
        starts.push(at);
    }
    starts
}

/// The frame that a byte lies in.
pub(super) fn frame_of(starts: &[usize], at: usize) -> u64 {
    *starts.iter().rev().find(|start| **start <= at).unwrap() as u64
}
