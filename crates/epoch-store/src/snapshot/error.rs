//! What can go wrong with snapshots, one enum per operation.

use std::io;
use std::path::PathBuf;

use super::{FILE_BYTES_MAX, META_BYTES_MAX};
use crate::codec::RowsError;

/// Why a snapshot was not written or not received. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum WriteSnapshotError {
    /// The opaque part is too long.
    #[error("the opaque part has {0} bytes; at most {META_BYTES_MAX} are allowed")]
    MetaTooLarge(usize),
    /// More was received than a snapshot can have.
    #[error("more than {FILE_BYTES_MAX} bytes were received; the sender is broken")]
    TooLarge,
    /// What was received is whole, and not the one announced.
    #[error("the snapshot received is another than the one announced")]
    Another,
    /// What was received is not a whole snapshot.
    #[error("what was received is not a whole snapshot; have it sent again")]
    Received(#[source] DamageKind),
    /// It is written, and the older ones could not be looked through.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The disk.
    #[error("cannot write a snapshot in {}; check space and permissions", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
}

/// Why a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read snapshot {}", .path.display())]
pub struct ReadSnapshotError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub source: DamageKind,
}

/// Why the folder of snapshots is of no use now.
#[derive(Debug, thiserror::Error)]
#[error("cannot tidy the snapshots in {}; check permissions and the disk", .folder.display())]
pub struct FolderError {
    /// The folder.
    pub folder: PathBuf,
    /// What the disk reported.
    pub source: io::Error,
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum DamageKind {
    /// The disk did not give it, or it ends too early.
    #[error("it cannot be read to its end")]
    Io(#[from] io::Error),
    /// It begins as no snapshot does.
    #[error("it is not a snapshot")]
    Magic,
    /// Another format.
    #[error("format version {0} is not known to this binary; use one that can read it")]
    Version(u32),
    /// Its opaque part is too long.
    #[error("its opaque part has {0} bytes; at most {META_BYTES_MAX} are allowed")]
    MetaTooLarge(u64),
    /// Its name says another place in the log than it does.
    #[error("its name does not fit what is in it")]
    Name,
    /// Something in it is not as it was written.
    #[error("its SHA-256 does not fit")]
    Hash,
    /// A row longer than any is.
    #[error("it has a row of {0} bytes")]
    RowTooLarge(u32),
    /// Its rows are not a state.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// Bytes after the last row.
    #[error("there are bytes after its last row")]
    Trailing,
}
