//! Writing a snapshot.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epoch_machine::State;
use prost::Message;
use sha2::{Digest, Sha256};

use super::error::WriteSnapshotError;
use super::{SnapshotFile, SnapshotMeta, folder, header};
use crate::codec::{head_message, scope_message, session_message, spent_message};
use crate::fs::{File, FileSystem};

/// Fast, and 5 to 10 times smaller on rows; higher levels cost more time than the disk does.
const ZSTD_LEVEL: i32 = 1;
/// Rows are small: gathering them saves a call into the compressor for each.
const BUFFER_BYTES: usize = 64 << 10;
const TEMP_FILES_MAX: u32 = 1_000;

/// Writes a snapshot of `state`. Once this returns, all of it is on the disk under its final name.
/// `folder` is created if missing.
///
/// # Errors
/// The opaque part is too long, or what the disk reports; nothing is left then.
pub fn write(
    fs: &Arc<dyn FileSystem>,
    folder: &Path,
    state: &State,
    meta: &SnapshotMeta,
) -> Result<SnapshotFile, WriteSnapshotError> {
    let header = header::encode(meta).ok_or(WriteSnapshotError::MetaTooLarge(meta.opaque.len()))?;
    let written = TempFile::create(Arc::clone(fs), folder).and_then(|mut temp| {
        let mut hashed = Hashed::new(&mut temp);
        hashed.write_all(&header)?;
        let compressed = zstd::Encoder::new(hashed, ZSTD_LEVEL)?;
        let mut rows = BufWriter::with_capacity(BUFFER_BYTES, compressed);
        write_rows(&mut rows, state)?;
        let hashed = rows
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .finish()?;
        let hash = hashed.hasher.finalize();
        temp.write_all(&hash)?;
        temp.keep(folder, meta)
    });
    written.map_err(|source| WriteSnapshotError::Io {
        folder: folder.to_path_buf(),
        source,
    })
}

fn write_rows(out: &mut impl Write, state: &State) -> io::Result<()> {
    let mut buffer = Vec::new();
    write_row(
        out,
        &mut buffer,
        &head_message(&state.head(), state.counts().into()),
    )?;
    for row in state.session_rows() {
        write_row(out, &mut buffer, &session_message(&row))?;
    }
    for row in state.scope_rows() {
        write_row(out, &mut buffer, &scope_message(&row))?;
    }
    for (session, request_id, scope) in state.spent_rows() {
        write_row(
            out,
            &mut buffer,
            &spent_message(session, request_id, &scope),
        )?;
    }
    Ok(())
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

/// Hashes what passes through.
struct Hashed<W> {
    out: W,
    hasher: Sha256,
}

impl<W: Write> Hashed<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            hasher: Sha256::new(),
        }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A file without its final name; removed when dropped before it has one.
#[derive(Debug)]
pub(super) struct TempFile {
    fs: Arc<dyn FileSystem>,
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
    kept: bool,
}

impl TempFile {
    /// Takes a name that nobody has: a snapshot can be written while another is received.
    pub(super) fn create(fs: Arc<dyn FileSystem>, folder: &Path) -> io::Result<Self> {
        fs.create_folder(folder)?;
        for number in 0..TEMP_FILES_MAX {
            let path = folder.join(folder::temp_name(number));
            match fs.create(&path) {
                Ok(file) => {
                    return Ok(Self {
                        fs,
                        file,
                        path,
                        length: 0,
                        kept: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Makes it durable under its final name.
    pub(super) fn keep(mut self, folder: &Path, meta: &SnapshotMeta) -> io::Result<SnapshotFile> {
        let path = folder.join(folder::file_name(meta.index, meta.term));
        self.file.sync_all()?;
        self.fs.rename(&self.path, &path)?;
        self.kept = true;
        self.fs.sync_folder(folder)?;
        Ok(SnapshotFile {
            path,
            meta: meta.clone(),
        })
    }
}

impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.fs.remove(&self.path)
        {
            // The next start removes it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a temporary file");
        }
    }
}
