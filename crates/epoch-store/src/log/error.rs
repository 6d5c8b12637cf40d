//! Why a call on the log failed, one type for each kind of call.

use std::io;
use std::path::PathBuf;

use crate::LockError;

/// Why the log could not be opened. Nothing but complete frames that were cut off while being
/// written is ever repaired by opening: everything else is named and left as it is.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of bounds.
    #[error("{name} must be between {min} and {max}, not {value}")]
    Option {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Lowest allowed.
        min: u64,
        /// Highest allowed.
        max: u64,
    },
    /// Another process has the log.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The disk reported an error.
    #[error("cannot {step} {}: see to the disk, then start again", .path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
    /// Bytes that were on the disk have changed or are gone.
    #[error(
        "{} is damaged at byte {offset}: expected {expected}. Do not delete or edit it: replace \
         this node",
        .file.display()
    )]
    Damaged {
        /// The segment file, or the side file `synced`.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What should have been there.
        expected: String,
    },
    /// A file of the log is not there.
    #[error(
        "{} is missing: put the file back, replace this node",
        .file.display()
    )]
    Missing {
        /// The file that should be there.
        file: PathBuf,
    },
    /// The log ends before what was acknowledged: the disk was rolled back or lost a write.
    #[error(
        "{} ends at byte {offset} with frame {last}, but frame {synced} had been synced: \
         acknowledged entries are gone. Replace this node",
        .file.display()
    )]
    Short {
        /// The last segment file.
        file: PathBuf,
        /// Where its good frames end, in bytes.
        offset: u64,
        /// The last good frame's number.
        last: u64,
        /// The number in the side file `synced`.
        synced: u64,
    },
    /// Entries that were neither purged nor truncated are not there.
    #[error(
        "{} begins with entry {first}, expected entry {expected} or a lower one: an earlier \
         segment is missing. Put it back, replace this node",
        .file.display()
    )]
    FirstEntry {
        /// The first segment file.
        file: PathBuf,
        /// The first index the log can know.
        first: u64,
        /// The index after the purge point.
        expected: u64,
    },
    /// A newer program wrote it.
    #[error(
        "{} has format version {version} at byte {offset}, which this program cannot read: \
         start a newer one",
        .file.display()
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// The version found.
        version: u8,
    },
}

/// Why a change was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An earlier write failed, so what is on the disk is not known any more.
    #[error(
        "the log takes no more calls after a failed write: end this process and start it again"
    )]
    Poisoned,
    /// The disk reported an error. The log is poisoned from here on.
    #[error(
        "cannot {step} {}: nothing of this call is acknowledged; end this process, see to the \
         disk, then start again",
        .path.display()
    )]
    Io {
        /// What was being done.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
    /// The entries do not follow each other or the log's last one. Nothing was written.
    #[error("entry {found} cannot be appended: the next index is {expected}")]
    NotConsecutive {
        /// The index that comes next.
        expected: u64,
        /// The index given.
        found: u64,
    },
    /// A payload is too large. Nothing was written.
    #[error("a {what} of {bytes} bytes is too large: the limit is {max}")]
    TooLarge {
        /// What was given.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The truncation would remove what is already purged. Nothing was written.
    #[error("the log cannot be truncated from {from}: everything up to {purged} is purged")]
    Purged {
        /// The index given.
        from: u64,
        /// The purge point.
        purged: u64,
    },
    /// The index leaves no room for a next one. Nothing was written.
    #[error("{0} is too high for an index")]
    IndexExhausted(u64),
}

/// Why entries could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A write failed: what this log holds is not known any more.
    #[error(
        "the log takes no more calls after a failed write: end this process and start it again"
    )]
    Poisoned,
    /// The disk reported an error.
    #[error("cannot read {}: see to the disk", .path.display())]
    Io {
        /// The segment file.
        path: PathBuf,
        /// What the disk reported.
        source: io::Error,
    },
    /// The bytes on the disk are not those that were written.
    #[error(
        "{} is damaged at byte {offset}: entry {index} does not match its checksum. Replace this \
         node",
        .file.display()
    )]
    Damaged {
        /// The segment file.
        file: PathBuf,
        /// Where the entry's frame begins, in bytes.
        offset: u64,
        /// The entry.
        index: u64,
    },
}
