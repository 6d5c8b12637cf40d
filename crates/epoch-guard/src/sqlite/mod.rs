//! The guard for SQLite: fence, intents and business write in one `BEGIN IMMEDIATE` transaction.
//!
//! Once a database has seen an (incarnation, epoch) of a scope, no write below it goes through
//! [`SqliteGuard::write`], whatever the order in which old and new holder arrive.
//!
//! The guard runs in the writer's process: it stops mistakes, not malice. Who can open the file
//! can change everything in it. A database restored from its own backup, or one that loses
//! acknowledged transactions (`PRAGMA synchronous` below `FULL` and a power cut), loses its fence
//! with them.

mod barrier;
mod error;
mod fence;
mod guard;
mod ledger;
mod protect;
mod refusals;
mod request;
mod schema;
mod settings;

#[cfg(test)]
mod tests;

pub use barrier::SqliteBarrier;
pub use error::{GuardError, WriteError};
pub use guard::SqliteGuard;
pub use refusals::RefusalRecord;
pub use request::{Admitted, Presented, Write};
pub use settings::{
    BUSY_TIMEOUT_MS, INTENT_AGE_MS_MAX, INTENTS_PER_SCOPE_MAX, OUTCOME_BYTES_MAX, REFUSALS_MAX,
    SqliteSettings,
};
