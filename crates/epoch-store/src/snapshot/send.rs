//! Reading a snapshot's bytes, to send them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::SnapshotFile;
use crate::fs::{File, FileSystem, read_exact_at};

/// Bytes in each chunk but the last.
pub const CHUNK_BYTES: usize = 256 << 10;

/// The bytes of one snapshot, in order. Goes on to the end when the file is removed meanwhile.
#[derive(Debug)]
pub struct Chunks {
    file: Arc<dyn File>,
    offset: u64,
    length: u64,
}

/// Opens a snapshot for sending. The bytes are not checked: the receiver does.
///
/// # Errors
/// What the disk reports.
pub fn chunks(fs: &dyn FileSystem, file: &SnapshotFile) -> io::Result<Chunks> {
    let file = fs.open_to_read(&file.path)?;
    let length = file.size()?;
    Ok(Chunks {
        file,
        offset: 0,
        length,
    })
}

impl Chunks {
    /// All bytes, those already read included.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.length
    }

    fn read(&mut self) -> io::Result<Bytes> {
        let rest = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
        let mut bytes = vec![0; rest.min(CHUNK_BYTES)];
        read_exact_at(self.file.as_ref(), &mut bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.into())
    }
}

impl Iterator for Chunks {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset == self.length {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            // Bytes after a gap would be worse than none.
            self.offset = self.length;
        }
        Some(read)
    }
}
