//! What is on disk: segment log, vote, snapshots, checkpoint.
//!
//! - [`FileSystem`] and [`File`]: the few file operations everything here is built on, so that a
//!   simulation can stand in for the disk; [`RealFs`] is the real one. With the feature `sim` there is
//!   `SimFs`, which loses at a crash what a disk may lose.
//! - [`FolderLock`]: one process at a time in a data folder.
//! - [`Log`]: entries, vote and purge point in checksummed segment files; every call that changes
//!   it returns only once the change is on the disk.
//!   [`inspect_log`] reads one without changing it.
//! - [`snapshot`]: the whole state as a file, for starts, lagging peers and purging the log.
//! - [`checkpoint`]: what has changed since a snapshot, in a table, for fast starts.
//! - [`recovery`]: the start: the newest state, and whether the log goes on from it.
//! - [`codec`]: log batches and snapshot rows as bytes, checked in full when they are read.
//! - [`write_durably`] and [`read_bounded`]: small files that are there whole or not at all;
//!   [`write_sealed`] and [`read_sealed`]: with a hash, so that damage is found.
//!
//! Architecture invariant: this crate knows no consensus library and no async runtime. Votes and
//! log ids are opaque bytes; calls block.

pub mod checkpoint;
pub mod codec;
mod durable_file;
mod folder_lock;
mod fs;
mod log;
mod real_fs;
pub mod recovery;
#[cfg(any(test, feature = "sim"))]
mod sim_fs;
pub mod snapshot;
#[cfg(test)]
mod testing;

pub use durable_file::{TEMP_SUFFIX, read_bounded, read_sealed, write_durably, write_sealed};
pub use folder_lock::{FolderLock, LockError};
pub use fs::{File, FileSystem, FolderHold};
pub use log::{
    ENTRY_BYTES_MAX, FlushStats, Log, LogOptions, LogReader, LogReport, MarkSyncer,
    OPAQUE_BYTES_MAX, OpenError, Purged, ReadError, SegmentReport, TornTail, WriteError,
    ZeroFiller, has_log, inspect as inspect_log,
};
pub use real_fs::RealFs;
#[cfg(any(test, feature = "sim"))]
pub use sim_fs::{Fault, Repeat, SimFs, SplitMix};
