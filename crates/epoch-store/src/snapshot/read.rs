//! Reading a snapshot, each byte of it checked.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use epoch_machine::State;
use sha2::{Digest, Sha256};

use super::error::{DamageKind, ReadSnapshotError};
use super::header::{self, HASH_BYTES, read_array};
use super::{SnapshotFile, SnapshotMeta, folder};
use crate::codec::{RowsError, SnapshotHead, SnapshotRow, StateLoader, decode_head, decode_row};
use crate::fs::{File, FileSystem, read_exact_at};

const BUFFER_BYTES: usize = 64 << 10;
/// Largest row in bytes; a record with the longest value and all intents is the largest there is,
/// at about 5.5 KiB.
const ROW_BYTES_MAX: u32 = 16 << 10;
/// What the decompressor may keep, as a power of two in bytes. Level 1 uses 2^19.
const ZSTD_WINDOW_LOG_MAX: u32 = 22;

/// Reads the state back.
///
/// # Errors
/// Any byte is not as it was written, or the rows do not make a state.
pub fn load(
    fs: &dyn FileSystem,
    file: &SnapshotFile,
) -> Result<(State, SnapshotMeta), ReadSnapshotError> {
    named(&file.path, || {
        let loaded = load_open(fs.open_to_read(&file.path)?)?;
        check_name(&file.path, &loaded.1)?;
        Ok(loaded)
    })
}

/// Reads the whole file once, for its hash, without a state.
///
/// # Errors
/// Any byte is not as it was written.
pub fn verify(fs: &dyn FileSystem, path: &Path) -> Result<SnapshotMeta, ReadSnapshotError> {
    named(path, || {
        let mut body = Body::open(fs.open_to_read(path)?)?;
        let meta = header::read(&mut body)?;
        check_name(path, &meta)?;
        io::copy(&mut body, &mut io::sink())?;
        body.finish()?;
        Ok(meta)
    })
}

fn named<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, DamageKind>,
) -> Result<T, ReadSnapshotError> {
    read().map_err(|source| ReadSnapshotError {
        path: path.to_path_buf(),
        source,
    })
}

fn check_name(path: &Path, meta: &SnapshotMeta) -> Result<(), DamageKind> {
    let name = folder::file_name(meta.index, meta.term);
    if path.file_name().is_some_and(|found| *found == *name) {
        Ok(())
    } else {
        Err(DamageKind::Name)
    }
}

pub(super) fn load_open(file: Arc<dyn File>) -> Result<(State, SnapshotMeta), DamageKind> {
    let mut rows = Rows::open(file)?;
    let mut loader = StateLoader::new(&rows.head);
    while let Some(row) = rows.next()? {
        loader.add(row)?;
    }
    let state = loader.finish()?;
    let meta = rows.finish()?;
    Ok((state, meta))
}

/// The rows of a snapshot file, in their order. That they are as they were written is known only
/// after [`Rows::finish`].
pub(crate) struct Rows {
    meta: SnapshotMeta,
    head: SnapshotHead,
    left: u64,
    number: u64,
    buffer: Vec<u8>,
    reader: BufReader<zstd::Decoder<'static, Body>>,
}

impl Rows {
    pub(crate) fn open(file: Arc<dyn File>) -> Result<Self, DamageKind> {
        let mut body = Body::open(file)?;
        let meta = header::read(&mut body)?;
        let mut reader = zstd::Decoder::with_buffer(body)?.single_frame();
        reader.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        let mut buffer = Vec::new();
        read_row(&mut reader, &mut buffer)?;
        let head = decode_head(&buffer).map_err(|source| RowsError::Row { row: 0, source })?;
        Ok(Self {
            meta,
            left: head.counts.total(),
            head,
            number: 0,
            buffer,
            reader,
        })
    }

    /// The row that comes next; `None` after the last one that the head counts.
    pub(crate) fn next(&mut self) -> Result<Option<SnapshotRow>, DamageKind> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        self.number += 1;
        read_row(&mut self.reader, &mut self.buffer)?;
        let row = decode_row(&self.buffer).map_err(|source| RowsError::Row {
            row: self.number,
            source,
        })?;
        Ok(Some(row))
    }

    /// Checks that nothing follows the last row, which must have been read, and the file's hash.
    pub(crate) fn finish(mut self) -> Result<SnapshotMeta, DamageKind> {
        if !self.reader.fill_buf()?.is_empty() {
            return Err(DamageKind::Trailing);
        }
        let mut body = self.reader.into_inner().finish();
        if !body.fill_buf()?.is_empty() {
            return Err(DamageKind::Trailing);
        }
        body.finish()?;
        Ok(self.meta)
    }
}

fn read_row(reader: &mut impl Read, row: &mut Vec<u8>) -> Result<(), DamageKind> {
    let length = u32::from_le_bytes(read_array(reader)?);
    match usize::try_from(length) {
        Ok(bytes) if length <= ROW_BYTES_MAX => row.resize(bytes, 0),
        Ok(_) | Err(_) => return Err(DamageKind::RowTooLarge(length)),
    }
    Ok(reader.read_exact(row)?)
}

/// The file without its hash: buffered, and hashed as it is read.
struct Body {
    file: Arc<dyn File>,
    /// Bytes before the hash.
    length: u64,
    /// Where the buffer ends in the file.
    offset: u64,
    buffer: Vec<u8>,
    /// How much of the buffer was handed out.
    used: usize,
    hasher: Sha256,
}

impl Body {
    fn open(file: Arc<dyn File>) -> Result<Self, DamageKind> {
        let length = file
            .size()?
            .checked_sub(HASH_BYTES)
            .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(Self {
            file,
            length,
            offset: 0,
            buffer: Vec::new(),
            used: 0,
            hasher: Sha256::new(),
        })
    }

    /// Compares the hash; everything must have been handed out.
    fn finish(self) -> Result<(), DamageKind> {
        let mut expected = [0; 32];
        read_exact_at(self.file.as_ref(), &mut expected, self.length)?;
        if self.hasher.finalize()[..] == expected[..] {
            Ok(())
        } else {
            Err(DamageKind::Hash)
        }
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.buffer.len() && self.offset < self.length {
            let rest = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
            self.buffer.resize(rest.min(BUFFER_BYTES), 0);
            self.used = 0;
            if let Err(error) = read_exact_at(self.file.as_ref(), &mut self.buffer, self.offset) {
                self.buffer.clear();
                return Err(error);
            }
            self.hasher.update(&self.buffer);
            self.offset += self.buffer.len() as u64;
        }
        Ok(self.buffer.get(self.used..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.used = self.buffer.len().min(self.used + amount);
    }
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}
