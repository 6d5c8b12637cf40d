//! What readers see of the log: synced entries, where they lie, and the latest ones themselves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use super::format::{HEADER_BYTES, Span, strip_sector_ends};
use super::{Purged, ReadError};
use crate::fs::{File, read_exact_at};

/// Where an entry lies on the disk. 32 bytes: there is one in memory for each unpurged entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace {
    pub(super) segment: u64,
    /// Payload bytes of all entries since the log was opened, up to and with this one.
    total_bytes: u64,
    /// Where its frame begins in the segment file.
    pub(super) frame_offset: u32,
    /// Where it begins in the frame's payload.
    pub(super) at: u32,
    len: u32,
    crc: u32,
}

/// A segment file, held open while entries in it may be read.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
}

/// Index and cache over the synced entries.
#[derive(Debug)]
pub(super) struct View {
    /// Index of the first of `places`; of the next entry if there is none.
    first: u64,
    places: VecDeque<EntryPlace>,
    purged: Option<Purged>,
    segments: BTreeMap<u64, SegmentFile>,
    /// Payload bytes of all entries below `first` since the log was opened.
    bytes_before_first: u64,
    /// The latest entries; the last one is the log's last.
    cache: VecDeque<Bytes>,
    cache_bytes: u64,
    cache_bytes_max: u64,
}

impl View {
    pub(super) fn new(cache_bytes_max: u64) -> Self {
        Self {
            first: 0,
            places: VecDeque::new(),
            purged: None,
            segments: BTreeMap::new(),
            bytes_before_first: 0,
            cache: VecDeque::new(),
            cache_bytes: 0,
            cache_bytes_max,
        }
    }

    /// Index of the entry that comes next. Indices stay below `u64::MAX`, so it exists.
    pub(super) fn next(&self) -> u64 {
        self.first.saturating_add(self.places.len() as u64)
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn purged(&self) -> Option<&Purged> {
        self.purged.as_ref()
    }

    fn total_bytes(&self) -> u64 {
        self.places
            .back()
            .map_or(self.bytes_before_first, |place| place.total_bytes)
    }

    /// Begins at `next_index`, knowing nothing of the entries before it.
    pub(super) fn begin_at(&mut self, next_index: u64, purged: Option<Purged>) {
        self.places.clear();
        self.clear_cache();
        self.first = next_index;
        self.purged = purged;
    }

    pub(super) fn add_segment(&mut self, number: u64, segment: SegmentFile) {
        self.segments.insert(number, segment);
    }

    pub(super) fn remove_segment(&mut self, number: u64) -> Option<SegmentFile> {
        self.segments.remove(&number)
    }

    /// The lowest segment, if no unpurged entry lies in it or below and it is not `active`.
    pub(super) fn idle_segment(&self, active: u64) -> Option<(u64, PathBuf)> {
        let needed = self.places.front().map_or(active, |place| place.segment);
        let (number, segment) = self.segments.first_key_value()?;
        (*number < needed).then(|| (*number, segment.path.clone()))
    }

    pub(super) fn push(&mut self, segment: u64, frame_offset: u32, at: u32, payload: Bytes) {
        let bytes = payload.len() as u64;
        self.places.push_back(EntryPlace {
            segment,
            // Cannot overflow: a disk of 2^64 bytes does not exist.
            total_bytes: self.total_bytes() + bytes,
            frame_offset,
            at,
            // Entries are at most `ENTRY_BYTES_MAX` long.
            len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            crc: crc32c::crc32c(&payload),
        });
        self.cache_bytes += bytes + CACHE_ENTRY_BYTES;
        self.cache.push_back(payload);
        while self.cache_bytes > self.cache_bytes_max {
            let Some(oldest) = self.cache.pop_front() else {
                break;
            };
            self.cache_bytes -= oldest.len() as u64 + CACHE_ENTRY_BYTES;
        }
    }

    /// Forgets entry `from` and all after it.
    pub(super) fn truncate(&mut self, from: u64) {
        let Some(keep) = from.checked_sub(self.first) else {
            // Only while opening: the entries before `first` were purged later in the log.
            self.begin_at(from, self.purged.clone());
            return;
        };
        while self.places.len() as u64 > keep {
            self.places.pop_back();
            if let Some(latest) = self.cache.pop_back() {
                self.cache_bytes -= latest.len() as u64 + CACHE_ENTRY_BYTES;
            }
        }
    }

    /// Forgets all entries up to and with `purged.index`.
    pub(super) fn purge(&mut self, purged: Purged) {
        let next_first = purged.index.saturating_add(1);
        self.purged = Some(purged);
        while self.first < next_first {
            let Some(place) = self.places.pop_front() else {
                self.first = next_first;
                break;
            };
            self.bytes_before_first = place.total_bytes;
            self.first += 1;
        }
        while self.cache.len() > self.places.len() {
            if let Some(oldest) = self.cache.pop_front() {
                self.cache_bytes -= oldest.len() as u64 + CACHE_ENTRY_BYTES;
            }
        }
    }

    fn clear_cache(&mut self) {
        self.cache.clear();
        self.cache_bytes = 0;
    }

    /// Payload bytes of the entries from `index` on.
    fn bytes_since(&self, index: u64) -> u64 {
        let before = match index.checked_sub(self.first) {
            None | Some(0) => self.bytes_before_first,
            Some(count) => usize::try_from(count - 1)
                .ok()
                .and_then(|at| self.places.get(at))
                .map_or_else(|| self.total_bytes(), |place| place.total_bytes),
        };
        self.total_bytes().saturating_sub(before)
    }

    /// The entries of `range` that there are, up to `bytes_max` but at least one.
    fn find(&self, range: Range<u64>, bytes_max: u64) -> Vec<(u64, Found)> {
        let uncached = self.places.len() - self.cache.len();
        let mut found = Vec::new();
        let mut bytes = 0_u64;
        for index in range.start.max(self.first)..range.end.min(self.next()) {
            let Ok(at) = usize::try_from(index - self.first) else {
                break;
            };
            let Some(place) = self.places.get(at) else {
                break;
            };
            bytes = bytes.saturating_add(u64::from(place.len));
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            let cached = at.checked_sub(uncached).and_then(|at| self.cache.get(at));
            found.push(match (cached, self.segments.get(&place.segment)) {
                (Some(payload), _) => (index, Found::Cached(payload.clone())),
                (None, Some(segment)) => (index, Found::OnDisk(*place, segment.clone())),
                (None, None) => break,
            });
        }
        found
    }
}

/// What a cached entry takes beside its payload, so that empty ones count too.
const CACHE_ENTRY_BYTES: u64 = 32;

enum Found {
    Cached(Bytes),
    OnDisk(EntryPlace, SegmentFile),
}

/// The view as writer and readers share it. The lock is never held during a disk operation.
#[derive(Debug)]
pub(super) struct Shared {
    view: RwLock<View>,
    poisoned: AtomicBool,
}

impl Shared {
    pub(super) fn new(view: View) -> Self {
        Self {
            view: RwLock::new(view),
            poisoned: AtomicBool::new(false),
        }
    }

    pub(super) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }
}

/// Reads the log from any thread, also while a flush is under way. It sees an entry once the call
/// that appended it has synced it, and what was truncated or purged no more once that is synced.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(super) shared: Arc<Shared>,
}

impl LogReader {
    /// The entries of `range` that the log has, in order: as many as fit into `bytes_max` bytes of
    /// payload, but at least one. Purged and future indices are left out without an error.
    ///
    /// # Errors
    /// [`ReadError`]; an entry that does not match its checksum is never returned.
    pub fn read(&self, range: Range<u64>, bytes_max: u64) -> Result<Vec<(u64, Bytes)>, ReadError> {
        if self.shared.is_poisoned() {
            return Err(ReadError::Poisoned);
        }
        let found = self.shared.view().find(range, bytes_max);
        let mut entries = Vec::with_capacity(found.len());
        for (index, found) in found {
            let payload = match found {
                Found::Cached(payload) => payload,
                Found::OnDisk(place, segment) => read_entry(index, &place, segment)?,
            };
            entries.push((index, payload));
        }
        Ok(entries)
    }

    /// Index of the first entry, if there is one.
    #[must_use]
    pub fn first_index(&self) -> Option<u64> {
        let view = self.shared.view();
        (!view.places.is_empty()).then_some(view.first)
    }

    /// Index of the last entry, if there is one.
    #[must_use]
    pub fn last_index(&self) -> Option<u64> {
        let view = self.shared.view();
        if view.places.is_empty() {
            None
        } else {
            view.next().checked_sub(1)
        }
    }

    /// How far the log is purged.
    #[must_use]
    pub fn purged(&self) -> Option<Purged> {
        self.shared.view().purged.clone()
    }

    /// Bytes of payload of the entries from `index` on, to decide when a snapshot is due.
    #[must_use]
    pub fn bytes_since(&self, index: u64) -> u64 {
        self.shared.view().bytes_since(index)
    }
}

fn read_entry(index: u64, place: &EntryPlace, segment: SegmentFile) -> Result<Bytes, ReadError> {
    let from = HEADER_BYTES + place.at as usize;
    let len = place.len as usize;
    let span = Span::new(u64::from(place.frame_offset), from, len);
    let mut sectors = vec![0; span.bytes];
    if let Err(source) = read_exact_at(segment.file.as_ref(), &mut sectors, span.offset) {
        return Err(ReadError::Io {
            path: segment.path,
            source,
        });
    }
    let mut data = strip_sector_ends(&sectors).freeze();
    let payload = data.split_off(span.skip.min(data.len()));
    let payload = payload.slice(..len.min(payload.len()));
    if crc32c::crc32c(&payload) == place.crc {
        Ok(payload)
    } else {
        let offset = u64::from(place.frame_offset);
        Err(ReadError::Damaged {
            file: segment.path,
            offset,
            index,
        })
    }
}
