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

mod admin;
mod apply;
mod audit;
mod changes;
mod command;
mod epoch_rule;
mod event;
mod hash;
mod limits;
mod load;
mod outcome;
mod permission;
pub mod promise;
mod record;
mod rows;
mod state;
mod terms;
#[cfg(test)]
mod tests;
mod token;

pub use admin::{AdminKey, AdminRow, KeptStatement, Offer, Permission, Retired, StatementTopic};
pub use apply::apply;
pub use audit::{AuditAction, AuditRecord, AuditTarget, TARGET_BYTES_MAX, TargetError};
pub use changes::{Changes, RowChange};
pub use command::{
    Batch, Command, Entry, HolderKey, Leadership, SCOPES_MAX, Scopes, ScopesError, SessionKey,
    TTL_MS_MAX, TTL_MS_MIN, Ttl, TtlError,
};
pub use event::{Event, GrantEvent, GrantEventKind, WaitEnd};
pub use hash::StateHash;
pub use limits::{Limits, Usage};
pub use load::{
    Head, HeldRow, LoadError, Loader, RecordRow, ScopeRow, SessionRow, SpentRow, StandingRow,
    WaitRow,
};
pub use outcome::{Applied, ForeignLeadership, Grant, Outcome, Refusal};
pub use permission::{PREFIX_BYTES_MAX, Prefix, PrefixError, Verb, Verbs, VerbsError};
pub use record::{
    DoneIntent, INTENTS_KEPT, IntentDigest, REMOVED_KEPT_MS, Record, VALUE_BYTES_MAX, Value,
    ValueError,
};
pub use rows::SpentUse;
pub use state::{
    AUDIT_KEPT, AuditPage, BUNDLES_MAX, CERTIFICATE_LIFE_S, Counts, GRANTS_MAX, HeldState,
    KEYS_OF_NODE_MAX, KeyStanding, LIMITED_MAX, NodeKey, OFFERS_MAX, PERMISSIONS_MAX,
    PERMISSIONS_OF_ONE_MAX, Page, PermissionPage, QUEUE_MAX, QueuedWait, RECORD_BYTES_MAX,
    RETIRED_KEPT, Requested, SESSIONS_MAX, SPENT_IDS_KEPT, ScopeState, SessionItem, SessionPage,
    SessionPlace, SessionState, State, TOKENS_MAX, TOKENS_OF_ONE_MAX, WAITS_MAX,
};
pub use terms::{
    LockDelay, METADATA_BYTES_MAX, Metadata, MetadataError, Terms, WAIT_MS_MAX, Wait, WaitError,
};
pub use token::{LABEL_BYTES_MAX, LabelError, Token, TokenHash, TokenLabel};
