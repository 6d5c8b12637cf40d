//! The pure state machine that hands out epochs.
//!
//! [`apply`] is a function of the state, the entry's place in the log and the batch: it reads no
//! clock, no randomness and no unordered map, and does no I/O, so that every node that applies the
//! same log has the same state. Time arrives as the batch's `wall_ms`.
//!
//! The promises that the machine is checked against, here and over the histories of real runs,
//! are in [`promise`].
#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::wildcard_enum_match_arm,
        reason = "tests may panic"
    )
)]

mod apply;
mod changes;
mod command;
mod epoch_rule;
mod event;
mod hash;
mod load;
mod outcome;
pub mod promise;
mod record;
mod rows;
mod state;
mod terms;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use changes::{Changes, RowChange};
pub use command::{
    Batch, Command, Entry, Leadership, PublicKey, SCOPES_MAX, Scopes, ScopesError, SessionKey,
    TTL_MS_MAX, TTL_MS_MIN, Ttl, TtlError,
};
pub use event::{Event, GrantEvent, GrantEventKind, WaitEnd};
pub use hash::StateHash;
pub use load::{
    Head, HeldRow, LoadError, Loader, RecordRow, ScopeRow, SessionRow, SpentRow, StandingRow,
    WaitRow,
};
pub use outcome::{Applied, ForeignLeadership, Grant, Outcome, Refusal};
pub use record::{
    DoneIntent, INTENTS_KEPT, IntentDigest, REMOVED_KEPT_MS, Record, VALUE_BYTES_MAX, Value,
    ValueError,
};
pub use rows::SpentUse;
pub use state::{
    Counts, GRANTS_MAX, HeldState, KEYS_MAX, Page, QUEUE_MAX, QueuedWait, RECORD_BYTES_MAX,
    Requested, SESSIONS_MAX, SPENT_IDS_KEPT, ScopeState, SessionItem, SessionPage, SessionPlace,
    SessionState, State, WAITS_MAX,
};
pub use terms::{
    LockDelay, METADATA_BYTES_MAX, Metadata, MetadataError, Terms, WAIT_MS_MAX, Wait, WaitError,
};
