//! Stored bytes to values of the state machine and back.
//!
//! What is decoded is checked in full: every name and number is parsed into a type whose values
//! are always valid, and bytes that this version would not have written (unknown fields, trailing
//! bytes, longer spellings of a number) are refused, so that nothing that is stored is dropped
//! without a word.

mod admin;
mod batch;
mod load;
mod operate;
mod parse;
mod row;
mod trust;

pub use batch::{BATCH_BYTES_MAX, BATCH_HEAD_BYTES_MAX, command_bytes, decode_batch, encode_batch};
pub use load::RowsError;
pub(crate) use load::StateLoader;
#[cfg(test)]
pub(crate) use row::RowCounts;
pub(crate) use row::{
    SnapshotHead, SnapshotRow, decode_head, decode_row, head_message, row_message, state_rows,
};

use epoch_core::{IdError, NameError};
use epoch_machine::{
    LabelError, MetadataError, PrefixError, ScopesError, TargetError, TtlError, ValueError,
    VerbsError, WaitError,
};

/// Why stored bytes are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// More bytes than any value of this kind has.
    #[error("{len} bytes; at most {max} are allowed")]
    TooLarge {
        /// How many there are.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The bytes do not begin as this kind of value does.
    #[error("these bytes are not {0}")]
    Magic(&'static str),
    /// Another version of the format.
    #[error("format version {found} is not known to this binary; use one that can read it")]
    Version {
        /// The version found.
        found: u8,
    },
    /// Not a protobuf message of this type.
    #[error("malformed message")]
    Malformed(#[from] prost::DecodeError),
    /// Unknown fields, trailing bytes, or a spelling that this version does not write.
    #[error("the message has {len} bytes, of which only {known} are known to this binary")]
    UnknownBytes {
        /// How many there are.
        len: usize,
        /// How many the value has when it is written again.
        known: usize,
    },
    /// A trust bundle or key offer that is none.
    #[error(transparent)]
    Bundle(#[from] epoch_core::BundleError),
    /// A part is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A part of fixed length has another.
    #[error("{what} has {len} bytes; it must have {expected}")]
    Length {
        /// Which.
        what: &'static str,
        /// Its length.
        len: usize,
        /// What it should be.
        expected: usize,
    },
    /// A number out of range, or a malformed id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A malformed scope, holder or principal.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A TTL out of range.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// A wait or a lock delay out of range.
    #[error("a wait or lock delay is out of range")]
    Wait(#[from] WaitError),
    /// Metadata out of bounds.
    #[error("metadata is out of bounds")]
    Metadata(#[from] MetadataError),
    /// A record's value out of bounds.
    #[error("a record's value is out of bounds")]
    Value(#[from] ValueError),
    /// Scopes that cannot be taken together.
    #[error("the scopes of one acquire")]
    Scopes(#[from] ScopesError),
    /// A malformed prefix of scopes.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Verbs that stand for nothing.
    #[error("the verbs of a permission")]
    Verbs(#[from] VerbsError),
    /// A malformed label of a token.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The target of an audit record out of bounds.
    #[error("the target of an audit record is out of bounds")]
    Target(#[from] TargetError),
    /// The reason of an audit record is unknown.
    #[error("the reason of an audit record is not known to this binary; use one that knows it")]
    Reason,
    /// A number that stands for nothing.
    #[error("{what} is {found}, which stands for nothing")]
    Unknown {
        /// Which.
        what: &'static str,
        /// The number.
        found: u32,
    },
    /// Another spelling of the same than this version writes.
    #[error("{0} are written out")]
    Spelling(&'static str),
}
