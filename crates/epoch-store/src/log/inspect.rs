//! What is in a log folder, for people and tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::survey::Survey;
use super::view::{LogReader, Shared, View};
use super::{OpenError, Purged};
use crate::fs::FileSystem;

/// What a log folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The segments, rising. None in a folder without a log.
    pub segments: Vec<SegmentReport>,
    /// Index of the first entry, if there is one.
    pub first_index: Option<u64>,
    /// Index of the last entry, if there is one.
    pub last_index: Option<u64>,
    /// How far the log is purged.
    pub purged: Option<Purged>,
    /// The vote last saved.
    pub vote: Option<Bytes>,
    /// The committed mark last saved.
    pub committed: Option<Bytes>,
    /// The number in the side file `synced`, if there is one: a frame known to have been synced.
    pub synced: Option<u64>,
    /// A write that a crash cut off, which opening would take back.
    pub torn_tail: Option<TornTail>,
    /// Files that a crash left incomplete, which opening would remove.
    pub incomplete: Vec<PathBuf>,
}

/// One segment of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub number: u64,
    /// Its file.
    pub file: PathBuf,
    /// The file's size in bytes, with the zeros after its last frame.
    pub bytes: u64,
    /// How many frames it has: its head, then one for each flush.
    pub frames: u64,
    /// The number of its head, which is its first frame.
    pub first_frame: u64,
    /// The number of its last frame.
    pub last_frame: u64,
    /// The lowest index of an entry written to it, whether or not the entry is gone by now.
    pub first_index: Option<u64>,
    /// The highest index of an entry written to it, whether or not the entry is gone by now.
    pub last_index: Option<u64>,
}

/// What a crash left of a write that was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The last segment's file.
    pub file: PathBuf,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes would be made zero.
    pub bytes: u64,
}

/// Reads the log in `folder` and checks every checksum, as opening it would, but changes nothing
/// and takes no lock: the node must not be running, or what it is writing looks torn. With what
/// reads the entries.
///
/// # Errors
/// [`OpenError`], if [`super::Log::open`] would refuse this log, the same one;
/// [`OpenError::Io`] if there is no such folder.
pub fn inspect(fs: &dyn FileSystem, folder: &Path) -> Result<(LogReport, LogReader), OpenError> {
    let survey = Survey::of(fs, folder, 0)?;
    let mut report = LogReport {
        synced: survey.synced,
        incomplete: survey.incomplete,
        ..LogReport::default()
    };
    let mut view = View::new(0);
    if let Some(scanned) = survey.scanned {
        let (first, next) = (scanned.view.first(), scanned.view.next());
        let torn = scanned.end.torn;
        report.first_index = (first < next).then_some(first);
        report.last_index = (first < next).then(|| next - 1);
        report.purged = scanned.view.purged().cloned();
        report.segments = scanned.segments;
        report.vote = scanned.vote;
        report.committed = scanned.committed;
        report.torn_tail = (!torn.is_empty()).then(|| TornTail {
            file: scanned.active.path,
            offset: torn.start,
            bytes: torn.end - torn.start,
        });
        view = scanned.view;
    }
    let shared = Arc::new(Shared::new(view));
    Ok((report, LogReader { shared }))
}

impl SegmentReport {
    pub(super) fn new(number: u64, file: &Path, bytes: u64) -> Self {
        Self {
            number,
            file: file.to_path_buf(),
            bytes,
            frames: 0,
            first_frame: 0,
            last_frame: 0,
            first_index: None,
            last_index: None,
        }
    }

    pub(super) fn add_frame(&mut self, number: u64) {
        if self.frames == 0 {
            self.first_frame = number;
        }
        self.frames += 1;
        self.last_frame = number;
    }

    /// The indices from `first` on follow each other and stay below `u64::MAX`.
    pub(super) fn add_entries(&mut self, first: u64, count: u64) {
        let Some(last) = first
            .saturating_add(count)
            .checked_sub(1)
            .filter(|_| count > 0)
        else {
            return;
        };
        self.first_index = Some(self.first_index.map_or(first, |lowest| lowest.min(first)));
        self.last_index = Some(self.last_index.map_or(last, |highest| highest.max(last)));
    }
}
