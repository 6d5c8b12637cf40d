//! What can go wrong with the checkpoint.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Base, CHUNK_BYTES_MAX, HEAD_BYTES_MAX};
use crate::codec::{DecodeError, RowsError};
use crate::snapshot::DamageKind;

/// Why a checkpoint was not opened or saved. The state is elsewhere too: the node can go on.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The folder cannot be emptied or made.
    #[error("cannot {step} {}; check permissions and the disk", .path.display())]
    Folder {
        /// What was being done.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
    /// The table is open elsewhere. It was left as it is.
    #[error("{} is open in another process: end that one first", .0.display())]
    InUse(PathBuf),
    /// What is not a row is too long.
    #[error("the head of the checkpoint has more than {HEAD_BYTES_MAX} bytes; nothing was saved")]
    HeadTooLarge,
    /// The table is of no use any more.
    #[error("the checkpoint's table was given up; the next snapshot begins another one")]
    Table(#[from] TableError),
    /// The table's code panicked, or hung.
    #[error("there are no more checkpoints until this process is started again")]
    Off(#[source] OffReason),
}

/// What the table did instead of answering.
#[derive(Debug, thiserror::Error)]
pub enum OffReason {
    /// It panicked.
    #[error("the table's code panicked: {0}")]
    Panicked(String),
    /// It hangs.
    #[error("the table took no step in {0:?}")]
    Stalled(Duration),
    /// One of its own threads panicked.
    #[error("a thread of the table's panicked")]
    ThreadDied,
    /// It did so earlier.
    #[error("the table's code failed earlier")]
    Earlier,
}

/// Why a checkpoint that was there is of no use. It is removed, and the node does without.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The marker of the last process is there.
    #[error("the last process may have died of it: it is not read")]
    Marked,
    /// It is damaged, foreign or unfinished, or what it goes on from is gone.
    #[error("it does not make a state")]
    Table(#[source] TableError),
    /// The table's code panicked, or hung.
    #[error("it cannot be opened or read")]
    Gone(#[source] OffReason),
}

/// What is wrong with a chunk.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// It ends within an item.
    #[error("it ends within an item")]
    CutOff,
    /// An item that is neither a row nor the key of one.
    #[error("it has an item that is neither a row nor the key of one")]
    Key,
    /// A malformed row.
    #[error("it has a malformed row")]
    Row(#[from] DecodeError),
}

/// What is wrong with the checkpoint's table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// sled reports an error.
    #[error("the table cannot be read or written")]
    Sled(#[from] sled::Error),
    /// The disk reports one.
    #[error("cannot read or sync {}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
    /// It is open elsewhere.
    #[error("the table is open in another process")]
    InUse,
    /// The folder cannot be emptied.
    #[error(transparent)]
    Folder(#[from] Box<CheckpointError>),
    /// It has no head. sled often takes a damaged file for an empty table, so one without a head is
    /// never written to.
    #[error("it has no head: its first save was cut off, or it is damaged")]
    NoHead,
    /// Its head is damaged.
    #[error("its head is damaged")]
    Head(#[from] Box<DamageKind>),
    /// The head names chunks beyond all numbers.
    #[error("its head names chunks that cannot be")]
    ChunkNumbers,
    /// The head's base is neither one nor none.
    #[error("its head names its snapshot in an unknown way")]
    MalformedBase,
    /// A chunk that the head names is not there.
    #[error("chunk {0} is missing")]
    MissingChunk(u64),
    /// A chunk is damaged.
    #[error("chunk {number} is damaged")]
    Chunk {
        /// Its number.
        number: u64,
        /// What is wrong with it.
        source: ChunkError,
    },
    /// The snapshot it goes on from is not among the whole ones.
    #[error("the snapshot it goes on from ({0}) is not there, or damaged")]
    NoBase(Base),
    /// That snapshot cannot be read.
    #[error("the snapshot it goes on from cannot be read")]
    DamagedBase(#[source] Box<DamageKind>),
    /// With its snapshot its rows are not the state that was saved.
    #[error("with its snapshot it is not the state that was saved")]
    Rows(#[from] RowsError),
    /// sled has put values beside the table, where nothing syncs them.
    #[error("there are files in its folder 'blobs'")]
    Blobs,
    /// A row too long for a table without blobs.
    #[error("a row has {0} bytes; at most {CHUNK_BYTES_MAX} are allowed")]
    RowTooLarge(usize),
    /// A state of another cluster, incarnation or group.
    #[error("it is of another cluster, incarnation or group")]
    Foreign,
    /// There is no thread to be had.
    #[error("no thread can be started for it")]
    Thread(#[source] io::Error),
    /// Whoever waited for it has given up.
    #[error("nobody waits for it any more")]
    Abandoned,
}
