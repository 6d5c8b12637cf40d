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
mod hash;
mod load;
mod outcome;
pub mod promise;
mod rows;
mod state;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use changes::{Changes, RowChange};
pub use command::{
    Batch, Command, Entry, Leadership, PublicKey, SessionKey, TTL_MS_MAX, TTL_MS_MIN, Ttl, TtlError,
};
pub use hash::StateHash;
pub use load::{Head, HeldRow, LoadError, Loader, ScopeRow, SessionRow};
pub use outcome::{ForeignLeadership, Grant, Outcome, Refusal};
pub use state::{
    Counts, GRANTS_MAX, KEYS_MAX, Page, SESSIONS_MAX, SPENT_IDS_KEPT, ScopeState, SessionState,
    State,
};
