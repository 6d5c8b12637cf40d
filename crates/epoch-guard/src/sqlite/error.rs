//! What can go wrong in a guarded database.

use std::error::Error;

use epoch_core::{Reason, Refusal};
use rusqlite::ErrorCode;

/// Why a guard did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Refused. The content is unchanged; the fence was raised if the certificate is above it.
    #[error("refused ({}): {refusal}", refusal.reason())]
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whether the refusal was written to the table of refusals.
        recorded: bool,
    },
    /// Another writer held the database for longer than the busy timeout. Nothing was changed.
    #[error(
        "the database is locked by another writer ({step}); nothing was changed; try again with the same intent id"
    )]
    Locked {
        /// What was tried.
        step: &'static str,
    },
    /// The guard's tables are not there.
    #[error("the database has no guard tables; run SqliteGuard::install once")]
    NotInstalled,
    /// The guard's tables are of a later version than this software.
    #[error(
        "the guard tables are of version {found}, this software knows up to {known}; use a newer version"
    )]
    Version {
        /// What the database says.
        found: i64,
        /// The highest this software knows.
        known: i64,
    },
    /// The connection is already in a transaction, which the guard could not commit on its own.
    #[error(
        "the connection is in a transaction; end it and pass the writes to the guard as the closure"
    )]
    InTransaction,
    /// The business write ended the guard's transaction (`COMMIT` or `ROLLBACK`). Its effect may
    /// stand; its intent is not recorded.
    #[error(
        "the business write ended the guard's transaction; leave BEGIN, COMMIT and ROLLBACK to the guard, and check what it wrote"
    )]
    TransactionEnded,
    /// The outcome is too long to be stored for replays. Everything was rolled back.
    #[error(
        "the outcome has {len} bytes, at most {max} are stored; return less; nothing was changed"
    )]
    OutcomeTooLarge {
        /// What was returned, in bytes.
        len: usize,
        /// The setting, in bytes.
        max: usize,
    },
    /// No such table, or one that cannot be protected.
    #[error(
        "the table {table:?} cannot be protected: it does not exist as an ordinary table of the caller's"
    )]
    NotATable {
        /// What was given.
        table: String,
    },
    /// A row of the guard's tables does not parse.
    #[error(
        "the table {table} holds a row that is not valid ({detail}); restore the database and reseed its fences"
    )]
    Corrupt {
        /// Which table.
        table: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// SQLite failed. When the step is `commit`, the outcome is unknown: ask again with the same
    /// intent id.
    #[error("SQLite could not {step}; correct the cause and try again with the same intent id")]
    Sqlite {
        /// What was tried.
        step: &'static str,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

impl GuardError {
    /// Turns an error of SQLite into one of the guard.
    pub(super) fn at(step: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { step },
            Some(_) | None => Self::Sqlite { step, source },
        }
    }

    /// The public reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused { refusal, .. } => refusal.reason(),
            Self::Locked { .. } => Reason::Overloaded,
            Self::OutcomeTooLarge { .. } => Reason::TooLarge,
            Self::NotInstalled
            | Self::Version { .. }
            | Self::InTransaction
            | Self::TransactionEnded
            | Self::NotATable { .. }
            | Self::Corrupt { .. }
            | Self::Sqlite { .. } => Reason::Internal,
        }
    }

    /// The refusal, if that is what it is.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused { refusal, .. } = self {
            Some(refusal)
        } else {
            None
        }
    }
}

/// Why a guarded write did not take place.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E: Error + 'static> {
    /// The guard's word.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The business write failed. Everything was rolled back, the fence included: to keep older
    /// holders out all the same, call [`SqliteGuard::advance`](super::SqliteGuard::advance).
    #[error("the business write failed; everything was rolled back, the fence included")]
    Business(#[source] E),
}
