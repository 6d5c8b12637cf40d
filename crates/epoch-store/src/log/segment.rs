//! Segment files: their names, how one is made, and appending frames to the last one.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{FrameKind, NUMBER_MAX, encode_frame, frame_bytes};
use super::record::SegmentHead;
use super::view::SegmentFile;
use super::{OpenError, WriteError};
use crate::durable_file::temp_path;
use crate::fs::{File, FileSystem};

const NAME_PREFIX: &str = "log-";
const NAME_DIGITS: usize = 20;

/// A disk operation that failed, before it is known whose call it ends.
#[derive(Debug)]
pub(super) struct DiskError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DiskError {
    pub(super) fn new(step: &'static str, path: &Path, source: io::Error) -> Self {
        Self {
            step,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl From<DiskError> for OpenError {
    fn from(DiskError { step, path, source }: DiskError) -> Self {
        Self::Io { step, path, source }
    }
}

impl From<DiskError> for WriteError {
    fn from(DiskError { step, path, source }: DiskError) -> Self {
        Self::Io { step, path, source }
    }
}

pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!(
        "{NAME_PREFIX}{number:0width$}",
        width = NAME_DIGITS
    ))
}

/// Whether a folder holds a log's first segment or a later one. A log that was ever opened does.
#[must_use]
pub fn has_log(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_str().and_then(segment_number).is_some())
}

/// The number in a segment's file name; `None` if it is another file's.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    let plain = digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| plain)?;
    (number <= NUMBER_MAX).then_some(number)
}

/// The last segment: the one frames are appended to.
#[derive(Debug)]
pub(super) struct ActiveSegment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    /// Where the next frame goes.
    pub(super) end: u64,
    /// Where the first frame after the head goes.
    pub(super) head_end: u64,
    /// The number of the last frame, which is synced.
    pub(super) last_frame: u64,
    pub(super) last_crc: u32,
}

impl ActiveSegment {
    /// Makes a segment whose head is frame `last_frame + 1`. It gets its name only once its head is
    /// on the disk, so a segment without a head is damage and not the trace of a crash.
    pub(super) fn create(
        fs: &dyn FileSystem,
        folder: &Path,
        head: &SegmentHead,
        last_frame: u64,
        last_crc: u32,
    ) -> Result<Self, DiskError> {
        let path = segment_path(folder, head.segment);
        let number = last_frame + 1;
        let (sectors, crc) = encode_frame(
            FrameKind::Head,
            head.segment,
            number,
            last_crc,
            &head.encode(),
        );
        let write = || {
            let temp = temp_path(&path)?;
            let file = fs.create(&temp)?;
            file.write_at(&sectors, 0)?;
            file.sync_all()?;
            fs.rename(&temp, &path)?;
            fs.sync_folder(folder)?;
            Ok(file)
        };
        let file = write().map_err(|source| DiskError::new("create", &path, source))?;
        let end = sectors.len() as u64;
        let segment = head.segment;
        Ok(Self {
            number: segment,
            path,
            file,
            end,
            head_end: end,
            last_frame: number,
            last_crc: crc,
        })
    }

    /// Whether a frame with this payload has its place here. One larger than a whole segment gets
    /// a segment of its own.
    pub(super) fn takes(&self, payload_len: usize, segment_bytes_max: u64) -> bool {
        self.place(payload_len).end <= segment_bytes_max || self.end == self.head_end
    }

    /// Where the next frame goes if it has this payload.
    pub(super) fn place(&self, payload_len: usize) -> Range<u64> {
        self.end..self.end + frame_bytes(payload_len) as u64
    }

    /// Appends a frame and syncs it. Returns its offset and size in bytes.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(u64, u64), DiskError> {
        let number = self.last_frame + 1;
        let (sectors, crc) = encode_frame(
            FrameKind::Records,
            self.number,
            number,
            self.last_crc,
            payload,
        );
        let offset = self.end;
        self.file
            .write_at(&sectors, offset)
            .map_err(|source| DiskError::new("write to", &self.path, source))?;
        self.file
            .sync_data()
            .map_err(|source| DiskError::new("sync", &self.path, source))?;
        self.end += sectors.len() as u64;
        self.last_frame = number;
        self.last_crc = crc;
        Ok((offset, sectors.len() as u64))
    }

    pub(super) fn to_file(&self) -> SegmentFile {
        SegmentFile {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_known_by_its_name_alone() {
        let path = segment_path(Path::new("d"), 42);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(segment_number(name), Some(42));
        for other in [
            "log-42",
            "log-0000000000000000004x",
            "LOCK",
            "log-+0000000000000000042",
        ] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
