//! The side file `synced`: the number of the last synced frame.
//!
//! It is written after each flush but not synced with it, so it may lag behind the log, and is
//! never ahead of it. A log that ends before it has lost acknowledged frames.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::OpenError;
use crate::durable_file::{read_bounded, write_durably};
use crate::fs::{File, FileSystem};

pub(super) const MARK_NAME: &str = "synced";

const SLOT: usize = 512;
const SLOTS: usize = 2;
const MAGIC: [u8; 4] = *b"EPSM";
const VERSION: u8 = 1;
const RECORD_BYTES: usize = 20;

/// Writes the side file.
#[derive(Debug)]
pub(super) struct SyncedMark {
    path: PathBuf,
    file: Arc<dyn File>,
}

/// Makes the side file durable. To be called about every second from any thread: it never waits
/// for an append, nor an append for it.
#[derive(Clone, Debug)]
pub struct MarkSyncer {
    file: Arc<dyn File>,
}

impl MarkSyncer {
    /// Makes durable what was last written to the side file.
    ///
    /// # Errors
    /// What the disk reports. The process must then end, as after a failed write of the log.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl SyncedMark {
    /// A durable side file that says no frame was synced yet.
    pub(super) fn create(fs: &dyn FileSystem, folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(MARK_NAME);
        let mut bytes = vec![0; SLOT * SLOTS];
        bytes[..RECORD_BYTES].copy_from_slice(&encode(0));
        match write_durably(fs, &path, &bytes).and_then(|()| fs.open(&path)) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(OpenError::Io {
                step: "create",
                path,
                source,
            }),
        }
    }

    /// The side file that is there.
    pub(super) fn open(fs: &dyn FileSystem, folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(MARK_NAME);
        match fs.open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(OpenError::Io {
                step: "open",
                path,
                source,
            }),
        }
    }

    /// Writes and syncs the number of the last frame that opening found. If the process before died
    /// in the middle of writing a slot, it is this one, and it must be good on the disk before the
    /// other one is written: a crash during that write would leave no good slot.
    pub(super) fn begin(&self, number: u64) -> io::Result<()> {
        self.write(number)?;
        self.file.sync_data()
    }

    /// Says that frame `number` is synced. Consecutive numbers go to different slots.
    pub(super) fn write(&self, number: u64) -> io::Result<()> {
        let offset = if number.is_multiple_of(2) {
            0
        } else {
            SLOT as u64
        };
        self.file.write_at(&encode(number), offset)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn syncer(&self) -> MarkSyncer {
        MarkSyncer {
            file: Arc::clone(&self.file),
        }
    }
}

/// The number in the side file; `None` if there is no such file.
pub(super) fn read_mark(fs: &dyn FileSystem, folder: &Path) -> Result<Option<u64>, OpenError> {
    let path = folder.join(MARK_NAME);
    let bytes = match read_bounded(fs, &path, SLOT * SLOTS) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(OpenError::Io {
                step: "read",
                path,
                source,
            });
        }
    };
    // A crash can spoil the slot being written, never the other one.
    match bytes.chunks(SLOT).filter_map(decode).max() {
        Some(number) => Ok(Some(number)),
        None => Err(OpenError::Damaged {
            file: path,
            offset: 0,
            expected: String::from("the number of the last synced frame"),
        }),
    }
}

fn encode(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(slot: &[u8]) -> Option<u64> {
    let bytes = slot.first_chunk::<RECORD_BYTES>()?;
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[8..16]);
    let number = u64::from_le_bytes(number);
    (*bytes == encode(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFs;

    #[test]
    fn the_last_number_reads_back_even_with_the_other_slot_spoilt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_NAME);
        assert_eq!(read_mark(&RealFs, folder.path()).unwrap(), None);
        let mark = SyncedMark::create(&RealFs, folder.path()).unwrap();
        for number in 1..=5 {
            mark.write(number).unwrap();
            let read = read_mark(&RealFs, folder.path()).unwrap();
            assert_eq!(read, Some(number));
        }
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[SLOT + 9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_mark(&RealFs, folder.path()).unwrap(), Some(4));
        bytes[9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let refused = read_mark(&RealFs, folder.path()).unwrap_err();
        assert!(matches!(&refused, OpenError::Damaged { file, .. } if *file == path));
    }
}
