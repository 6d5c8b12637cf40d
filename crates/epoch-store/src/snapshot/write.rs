//! Writing a snapshot.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use epoch_machine::State;
use prost::Message;
use sha2::{Digest, Sha256};

use super::error::WriteSnapshotError;
use super::temp_file::TempFile;
use super::{SnapshotFile, SnapshotMeta, header};
use crate::codec::{head_message, row_message, state_rows};
use crate::fs::FileSystem;

/// Fast, and 5 to 10 times smaller on rows; higher levels cost more time than the disk does.
const ZSTD_LEVEL: i32 = 1;
/// Rows are small: gathering them saves a call into the compressor for each.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of rows between two calls of `pace`: about 2 ms of work.
const PACE_BYTES: u64 = 256 << 10;

/// A snapshot that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it is, and of which state.
    pub file: SnapshotFile,
    /// How long its rows are without compression, in bytes: the state's size, against which the
    /// log's growth can be held to tell when the next one is due.
    pub plain_bytes: u64,
}

/// Writes a snapshot of `state`. Once this returns, all of it is on the disk under its final name.
/// `folder` is created if missing.
///
/// `pace` is called after about each 256 KiB of rows and after each sync, of which there is one
/// for each MiB of the file: a caller that sleeps there leaves processor and disk to the log.
///
/// # Errors
/// The opaque part is too long, or what the disk reports; nothing is left then.
pub fn write(
    fs: &Arc<dyn FileSystem>,
    folder: &Path,
    state: &State,
    meta: &SnapshotMeta,
    pace: &mut dyn FnMut(),
) -> Result<Written, WriteSnapshotError> {
    let header = header::encode(meta).ok_or(WriteSnapshotError::MetaTooLarge(meta.opaque.len()))?;
    // Both the rows and the file below them call it.
    let pace = RefCell::new(pace);
    let pace = || (pace.borrow_mut())();
    let written = TempFile::create(Arc::clone(fs), folder).and_then(|temp| {
        let mut hashed = Hashed {
            temp,
            hasher: Sha256::new(),
            pace: &pace,
        };
        hashed.write_all(&header)?;
        let compressed = zstd::Encoder::new(hashed, ZSTD_LEVEL)?;
        let mut rows = Rows {
            out: BufWriter::with_capacity(BUFFER_BYTES, compressed),
            buffer: Vec::new(),
            bytes: 0,
            unpaced: 0,
            pace: &pace,
        };
        rows.write_state(state)?;
        let plain_bytes = rows.bytes;
        let Hashed {
            mut temp, hasher, ..
        } = rows
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .finish()?;
        temp.append(&hasher.finalize())?;
        let file = temp.keep(folder, meta)?;
        Ok(Written { file, plain_bytes })
    });
    written.map_err(|source| WriteSnapshotError::Io {
        folder: folder.to_path_buf(),
        source,
    })
}

struct Rows<'a, W> {
    out: W,
    buffer: Vec<u8>,
    bytes: u64,
    unpaced: u64,
    pace: &'a dyn Fn(),
}

impl<W: Write> Rows<'_, W> {
    fn write_state(&mut self, state: &State) -> io::Result<()> {
        self.write(&head_message(&state.into()))?;
        state_rows(state).try_for_each(|row| self.write(&row_message(&row)))
    }

    fn write(&mut self, message: &impl Message) -> io::Result<()> {
        write_row(&mut self.out, &mut self.buffer, message)?;
        let bytes = self.buffer.len() as u64;
        self.bytes += bytes;
        self.unpaced += bytes;
        if self.unpaced >= PACE_BYTES {
            self.unpaced = 0;
            (self.pace)();
        }
        Ok(())
    }
}

pub(super) fn write_row(
    out: &mut impl Write,
    buffer: &mut Vec<u8>,
    message: &impl Message,
) -> io::Result<()> {
    buffer.clear();
    message.encode(buffer).map_err(io::Error::other)?;
    let length = u32::try_from(buffer.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(buffer)
}

/// Hashes what passes through on its way into the file.
struct Hashed<'a> {
    temp: TempFile,
    hasher: Sha256,
    pace: &'a dyn Fn(),
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        if self.temp.append(bytes)? {
            (self.pace)();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
