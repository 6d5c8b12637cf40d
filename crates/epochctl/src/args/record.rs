//! What is typed about records.

use std::path::PathBuf;

use clap::Subcommand;
use epoch_core::{IntentId, Scope};

use super::held::Held;

#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Write the record, as the scope's current holder.
    Put(RecordPut),
    /// Read the record, whoever holds the scope: its value as it is, or JSON with `-o json`.
    Get(RecordGet),
    /// Remove the record, as the scope's current holder.
    Delete(RecordDelete),
}

/// What a change of a record depends on, beside the grant.
#[derive(Debug, clap::Args)]
pub(crate) struct Change {
    /// The revision that must be the current one, 0 for none. Any when absent.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) expected_revision: Option<u64>,
    /// The name of this action: the same again changes nothing. Made when absent.
    #[arg(long, value_name = "ID")]
    pub(crate) intent: Option<IntentId>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordPut {
    #[command(flatten)]
    pub(crate) held: Held,
    /// The value, at most 4 KiB; `-` reads it from stdin. Or give `--file`.
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        value_name = "VALUE|--file FILE"
    )]
    pub(crate) value: Option<String>,
    /// A file with the value, taken as it is.
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) change: Change,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordGet {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecordDelete {
    #[command(flatten)]
    pub(crate) held: Held,
    #[command(flatten)]
    pub(crate) change: Change,
}
