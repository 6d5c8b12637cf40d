//! Full snapshots of the state as files: written here, read back at start, and sent to and
//! received from peers as they are.
//!
//! # Promises
//!
//! - A file has its final name only once all of it is on the disk.
//! - A file is read back whole and as it was written, or refused and named. What is read back has
//!   the state hash of what was written.
//! - Two whole files are kept, and [`Snapshots::purgeable`] is never above the older: when the
//!   newer one goes bad, the older and the log still make the state.
//! - Rows are streamed: neither writing nor reading holds an encoded snapshot in memory. Writing
//!   syncs a MiB at a time, and pauses where the caller says so.
//!
//! # Files
//!
//! `snapshot-<index, 20 digits>-<term, 20 digits>`, so that the newest is the last in byte order.
//! `snapshot-temp-<number>.tmp` is incomplete, and removed by [`Snapshots::open`]. Numbers are
//! little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | magic `EPOCHSNP` |
//! | 4 | format version, 1 |
//! | 8 | index of the last entry applied |
//! | 8 | its term |
//! | 4 | length of the opaque part, at most 256 KiB |
//! | | the opaque part |
//! | | one zstd frame: the rows |
//! | 32 | SHA-256 of everything before |
//!
//! Each row is its length (4 bytes) and a protobuf message: the head, which counts the others, then
//! sessions, scopes, spent request ids, waits, records and rare rows, each kind in the order of its
//! keys. The head also has the state's hash. The frame ends with the last row, the file with the SHA-256.

mod error;
mod folder;
pub(crate) mod header;
pub(crate) mod read;
mod receive;
mod send;
mod snapshots;
mod temp_file;
#[cfg(test)]
mod tests;
mod write;

use std::path::PathBuf;

use bytes::Bytes;

pub use error::{DamageKind, FolderError, ReadSnapshotError, WriteSnapshotError};
pub use folder::files;
pub use read::{load, verify};
pub use receive::Incoming;
pub use send::{CHUNK_BYTES, Chunks, chunks};
pub use snapshots::{KEPT, Snapshots};
pub use write::{Written, write};

/// Largest opaque part, in bytes: membership with addresses, of far more nodes than make sense.
pub const META_BYTES_MAX: usize = 256 << 10;
/// Largest file, in bytes, so that a peer that never stops sending does not fill the disk: more than
/// four million grants and a million waits take with the longest names and metadata, uncompressed.
pub const FILE_BYTES_MAX: u64 = 16 << 30;

/// Which state a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Index of the last entry applied; 0 when there is none.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// What the consensus layer keeps with it (log id, membership); not looked at here. At most
    /// [`META_BYTES_MAX`].
    pub opaque: Bytes,
}

/// A snapshot on disk, whole when it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Where it is.
    pub path: PathBuf,
    /// Which state it is of.
    pub meta: SnapshotMeta,
}
