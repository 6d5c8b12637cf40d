//! The segment log: entries, vote and purge point on disk, in checksummed frames.
//!
//! # Promises
//!
//! - A call that changes the log returns `Ok` only once the change is on the disk (`fdatasync`).
//!   [`Log::save_committed`] is the exception: it is lazy.
//! - What was acknowledged is there after any crash, or the log refuses to open and says which file
//!   is wrong, where, and what was expected. One thing it cannot see: whole frames missing at the
//!   very end, newer than the last sync of `synced`, on a disk that lost what it had synced.
//! - After a failed write every later call fails: what the disk holds is then unknown, and only
//!   opening the log again finds out. The process must end.
//! - Memory: 32 bytes for each unpurged entry, the cache, and one frame of at most 16 MiB.
//!
//! # Files
//!
//! A log folder holds segments `log-<number, 20 digits>`, numbered without gaps, the side file
//! `synced`, and `LOCK`, which keeps other processes out. Names that end in `.tmp` are incomplete
//! and removed on opening. A new segment is written under such a name with its head, synced and
//! renamed, and the folder synced, before a frame is appended to it; a removed segment is always
//! the lowest, one at a time, each followed by a sync of the folder.
//!
//! The bytes are described in the module `format`.
//!
//! # Opening
//!
//! Segments are read in order. Refused by name: a gap in segment, frame or entry numbers; a first
//! entry above the purge point + 1; a head that does not restate vote and purge point; a frame that
//! was written whole and is wrong; an end before the number in `synced`; and after the last good
//! frame of a segment anything but zeros, with one exception. In the last segment a crash leaves of
//! the one frame that was being written any of its sectors; it was not acknowledged, and is made
//! zero. Sectors of another frame after it, sectors that end in neither zero nor an end byte, and
//! sectors outside the frame are no trace of a crash: the log is refused.
//!
//! [`inspect`] decides by the same code and changes nothing.
//!
//! # Filling ahead
//!
//! A flush that makes a file grow costs the disk a second write. [`ZeroFiller`] therefore writes
//! zeros ahead of the log's end. It never writes where a frame is or is being written: both take
//! their range under one lock. A crash may undo any part of it, which leaves zeros or a shorter
//! file, and both are a clean end.

mod error;
mod fill;
mod format;
mod inspect;
mod mark;
mod options;
mod prepare;
mod record;
mod scan;
mod segment;
mod survey;
#[cfg(test)]
mod tests;
mod view;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub use self::error::{OpenError, ReadError, WriteError};
pub use self::fill::ZeroFiller;
pub use self::inspect::{LogReport, SegmentReport, TornTail, inspect};
pub use self::mark::MarkSyncer;
pub use self::options::LogOptions;
pub use self::segment::has_log;
pub use self::view::LogReader;

use self::fill::Filling;
use self::format::PAYLOAD_BYTES_MAX;
use self::mark::SyncedMark;
use self::prepare::{begin, mend, remove_incomplete};
use self::record::{
    ENTRIES_HEAD_BYTES, ENTRY_HEAD_BYTES, SegmentHead, put_committed, put_entries, put_purge,
    put_truncate, put_vote,
};
use self::scan::Scanned;
use self::segment::{ActiveSegment, DiskError};
use self::survey::Survey;
use self::view::Shared;
use crate::folder_lock::FolderLock;
use crate::fs::{File, FileSystem};

/// Largest entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Largest vote, log id or committed mark, in bytes.
pub const OPAQUE_BYTES_MAX: usize = 4 << 10;

/// Entry bytes in one frame: leaves room for a committed mark that goes along.
const FRAME_ENTRY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 2 * OPAQUE_BYTES_MAX;

/// How far a log is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purged {
    /// The highest index that is gone.
    pub index: u64,
    /// What the caller gave to be kept for it.
    pub log_id: Bytes,
}

/// What an append cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushStats {
    /// Flushes: 1, or more if the entries did not fit into 16 MiB together; 0 without entries.
    pub flushes: u64,
    /// Bytes written to the segment, framing and padding included.
    pub bytes: u64,
}

/// The log of one node, with its vote. One per folder; calls block until the disk has answered.
#[derive(Debug)]
pub struct Log {
    fs: Arc<dyn FileSystem>,
    folder: PathBuf,
    options: LogOptions,
    reader: LogReader,
    active: ActiveSegment,
    filling: Arc<Filling>,
    mark: SyncedMark,
    vote: Option<Bytes>,
    committed: Option<Bytes>,
    /// Whether `committed` is not on the disk yet.
    committed_waits: bool,
    _lock: FolderLock,
}

impl Log {
    /// Opens the log in `folder`; a missing or empty folder becomes an empty log.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong, where, and what to do.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        folder: &Path,
        options: LogOptions,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let lock = FolderLock::acquire(fs.as_ref(), folder)?;
        let survey = Survey::of(fs.as_ref(), folder, options.cache_bytes_max)?;
        remove_incomplete(fs.as_ref(), &survey.incomplete)?;
        let mark = match survey.synced {
            Some(_) => SyncedMark::open(fs.as_ref(), folder)?,
            None => SyncedMark::create(fs.as_ref(), folder)?,
        };
        let Scanned {
            view,
            vote,
            committed,
            active,
            end,
            ..
        } = match survey.scanned {
            Some(mut scanned) => {
                scanned.active.file = open_to_write(fs.as_ref(), &scanned.active.path)?;
                mend(&scanned.active, &scanned.end)?;
                scanned
            }
            None => begin(fs.as_ref(), folder, options.cache_bytes_max)?,
        };
        // The process before this one may have died between renaming a segment and this sync.
        fs.sync_folder(folder)
            .map_err(|source| DiskError::new("sync", folder, source))?;
        mark.begin(active.last_frame)
            .map_err(|source| DiskError::new("write to", mark.path(), source))?;
        let filling = Filling::new(
            options.segment_bytes_max,
            active.number,
            // Its own handle: it must not take the kernel's report of a failed write away from the
            // log's.
            open_to_write(fs.as_ref(), &active.path)?,
            active.end,
            end.size,
        );
        let log = Self {
            fs,
            folder: folder.to_path_buf(),
            options,
            reader: LogReader {
                shared: Arc::new(Shared::new(view)),
            },
            active,
            filling: Arc::new(filling),
            mark,
            vote,
            committed,
            committed_waits: false,
            _lock: lock,
        };
        log.remove_idle_segments()?;
        Ok(log)
    }

    /// A handle that reads this log from other threads. It does not keep the folder locked.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// A handle that makes the side file `synced` durable; to be called about every second, so
    /// that a log that lost its end in a power failure is found out.
    #[must_use]
    pub fn mark_syncer(&self) -> MarkSyncer {
        self.mark.syncer()
    }

    /// A handle that fills the last segment with zeros ahead, so that flushes are faster.
    #[must_use]
    pub fn zero_filler(&self) -> ZeroFiller {
        ZeroFiller {
            filling: Arc::clone(&self.filling),
            shared: Arc::clone(&self.reader.shared),
        }
    }

    /// Appends entries, the first of which follows the log's last one (in an empty log: the purge
    /// point, or index 0 if there is none). On the disk when this returns.
    ///
    /// # Errors
    /// [`WriteError`]; then none of them is acknowledged, though some may be on the disk.
    pub fn append(&mut self, entries: &[(u64, Bytes)]) -> Result<FlushStats, WriteError> {
        self.check_poisoned()?;
        let mut next = self.reader.shared.view().next();
        for (index, payload) in entries {
            if *index != next {
                return Err(WriteError::NotConsecutive {
                    expected: next,
                    found: *index,
                });
            }
            next = next
                .checked_add(1)
                .ok_or(WriteError::IndexExhausted(next))?;
            check_size("log entry", payload, ENTRY_BYTES_MAX)?;
        }
        let mut stats = FlushStats::default();
        let mut rest = entries;
        while let Some((first, _)) = rest.first() {
            let (now, later) = rest.split_at(frame_share(rest));
            rest = later;
            let mut payload = Vec::with_capacity(now.iter().map(entry_bytes).sum());
            let places = put_entries(&mut payload, *first, now);
            let flushed = self.flush(payload)?;
            stats.flushes += 1;
            stats.bytes += flushed.bytes;
            let mut view = self.reader.shared.view_mut();
            for ((_, entry), at) in now.iter().zip(places) {
                view.push(self.active.number, flushed.offset, at, entry.clone());
            }
        }
        Ok(stats)
    }

    /// Saves the vote in place of the last one. On the disk when this returns.
    ///
    /// # Errors
    /// [`WriteError`]; the vote must then not be acted on.
    pub fn save_vote(&mut self, vote: Bytes) -> Result<(), WriteError> {
        check_size("vote", &vote, OPAQUE_BYTES_MAX)?;
        let mut payload = Vec::new();
        put_vote(&mut payload, &vote);
        self.flush(payload)?;
        self.vote = Some(vote);
        Ok(())
    }

    /// The vote last saved.
    #[must_use]
    pub fn vote(&self) -> Option<Bytes> {
        self.vote.clone()
    }

    /// Removes entry `from` and all after it; nothing to do if there are none. On the disk when
    /// this returns.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn truncate_from(&mut self, from: u64) -> Result<(), WriteError> {
        {
            let view = self.reader.shared.view();
            if let Some(purged) = view.purged().filter(|purged| from <= purged.index) {
                return Err(WriteError::Purged {
                    from,
                    purged: purged.index,
                });
            }
            if from >= view.next() {
                return self.check_poisoned();
            }
        }
        let mut payload = Vec::new();
        put_truncate(&mut payload, from);
        self.flush(payload)?;
        self.reader.shared.view_mut().truncate(from);
        Ok(())
    }

    /// Removes all entries up to and with `index`, keeps `log_id` for it, and gives back the space
    /// of whole segments. `index` may lie beyond the last entry: the next one then follows it.
    /// Nothing to do if the log is purged that far. On the disk when this returns.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn purge_to(&mut self, index: u64, log_id: Bytes) -> Result<(), WriteError> {
        check_size("log id", &log_id, OPAQUE_BYTES_MAX)?;
        if index == u64::MAX {
            return Err(WriteError::IndexExhausted(index));
        }
        if self.purged().is_some_and(|purged| index <= purged.index) {
            return self.check_poisoned();
        }
        let purged = Purged { index, log_id };
        let mut payload = Vec::new();
        put_purge(&mut payload, &purged);
        self.flush(payload)?;
        self.reader.shared.view_mut().purge(purged);
        self.remove_idle_segments()
            .map_err(|error| self.poison(error))
    }

    /// Remembers how far entries are committed, in place of the last mark. Lazy: it goes to the
    /// disk with the next flush, so a crash may bring back an earlier one.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn save_committed(&mut self, committed: Bytes) -> Result<(), WriteError> {
        self.check_poisoned()?;
        check_size("committed mark", &committed, OPAQUE_BYTES_MAX)?;
        self.committed_waits |= self.committed.as_ref() != Some(&committed);
        self.committed = Some(committed);
        Ok(())
    }

    /// The mark last saved; after a crash, perhaps an earlier one.
    #[must_use]
    pub fn committed(&self) -> Option<Bytes> {
        self.committed.clone()
    }

    /// How far the log is purged.
    #[must_use]
    pub fn purged(&self) -> Option<Purged> {
        self.reader.purged()
    }

    /// Index of the first entry, if there is one.
    #[must_use]
    pub fn first_index(&self) -> Option<u64> {
        self.reader.first_index()
    }

    /// Index of the last entry, if there is one.
    #[must_use]
    pub fn last_index(&self) -> Option<u64> {
        self.reader.last_index()
    }

    /// Bytes of payload of the entries from `index` on, to decide when a snapshot is due.
    #[must_use]
    pub fn bytes_since(&self, index: u64) -> u64 {
        self.reader.bytes_since(index)
    }

    /// As [`LogReader::read`].
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(&self, range: Range<u64>, bytes_max: u64) -> Result<Vec<(u64, Bytes)>, ReadError> {
        self.reader.read(range, bytes_max)
    }

    fn flush(&mut self, mut payload: Vec<u8>) -> Result<Flushed, WriteError> {
        self.check_poisoned()?;
        if let Some(committed) = self.committed.as_ref().filter(|_| self.committed_waits) {
            put_committed(&mut payload, committed);
        }
        let flushed = self
            .try_flush(&payload)
            .map_err(|error| self.poison(error))?;
        self.committed_waits = false;
        Ok(flushed)
    }

    fn try_flush(&mut self, payload: &[u8]) -> Result<Flushed, DiskError> {
        if !self
            .active
            .takes(payload.len(), self.options.segment_bytes_max)
        {
            self.roll()?;
        }
        self.filling.reserve(&self.active.place(payload.len()));
        let (offset, bytes) = self.active.append(payload)?;
        self.mark
            .write(self.active.last_frame)
            .map_err(|source| DiskError::new("write to", self.mark.path(), source))?;
        // A frame begins below the highest `segment_bytes_max`, or right after a head.
        Ok(Flushed {
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            bytes,
        })
    }

    /// Begins the next segment.
    fn roll(&mut self) -> Result<(), DiskError> {
        let head = SegmentHead {
            segment: self.active.number + 1,
            next_index: self.reader.shared.view().next(),
            vote: self.vote.clone(),
            purged: self.purged(),
            committed: self.committed.clone(),
        };
        let (last_frame, last_crc) = (self.active.last_frame, self.active.last_crc);
        let fs = self.fs.as_ref();
        self.active = ActiveSegment::create(fs, &self.folder, &head, last_frame, last_crc)?;
        let (number, end) = (self.active.number, self.active.end);
        self.filling
            .go_on_with(number, open_to_write(fs, &self.active.path)?, end);
        let segment = self.active.to_file();
        self.reader
            .shared
            .view_mut()
            .add_segment(head.segment, segment);
        Ok(())
    }

    /// Removes the segments that hold nothing that is needed, lowest first. Each removal is durable
    /// before the next: if a crash undid one but not a later one, the log would have a gap.
    fn remove_idle_segments(&self) -> Result<(), DiskError> {
        let shared = &self.reader.shared;
        loop {
            let Some((number, path)) = shared.view().idle_segment(self.active.number) else {
                return Ok(());
            };
            self.fs
                .remove(&path)
                .and_then(|()| self.fs.sync_folder(&self.folder))
                .map_err(|source| DiskError::new("remove", &path, source))?;
            drop(shared.view_mut().remove_segment(number));
        }
    }

    fn check_poisoned(&self) -> Result<(), WriteError> {
        if self.reader.shared.is_poisoned() {
            Err(WriteError::Poisoned)
        } else {
            Ok(())
        }
    }

    fn poison(&self, error: DiskError) -> WriteError {
        self.reader.shared.poison();
        WriteError::from(error)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.filling.close();
    }
}

struct Flushed {
    offset: u32,
    bytes: u64,
}

fn open_to_write(fs: &dyn FileSystem, path: &Path) -> Result<Arc<dyn File>, DiskError> {
    fs.open(path)
        .map_err(|source| DiskError::new("open", path, source))
}

fn entry_bytes((_, payload): &(u64, Bytes)) -> usize {
    ENTRY_HEAD_BYTES + payload.len()
}

/// How many of `entries` go into one frame: at least one.
fn frame_share(entries: &[(u64, Bytes)]) -> usize {
    let mut bytes = ENTRIES_HEAD_BYTES;
    let fits = entries.iter().take_while(|entry| {
        bytes += entry_bytes(entry);
        bytes <= FRAME_ENTRY_BYTES_MAX
    });
    fits.count().max(1)
}

fn check_size(what: &'static str, bytes: &Bytes, max: usize) -> Result<(), WriteError> {
    let bytes = bytes.len();
    if bytes <= max {
        Ok(())
    } else {
        Err(WriteError::TooLarge { what, bytes, max })
    }
}
