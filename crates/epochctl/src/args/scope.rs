//! What is typed about scopes, whoever holds them.

use epoch_core::{Cursor, Epoch, Holder, Scope};

use super::held::Signed;

#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    /// The epoch that must still be current. When absent, the one that is current now is looked
    /// up first, so that a later grant is never ended in its place. The lock delay of a scope that
    /// nobody holds is ended (and so is a grant that is made between look-up and revoke).
    #[arg(long)]
    pub(crate) epoch: Option<Epoch>,
    #[command(flatten)]
    pub(crate) signed: Signed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    /// Waits shown at most: 100 when absent, 1,000 at most.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) queue_limit: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only scopes that begin with this text, byte by byte.
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// Only scopes that this holder holds.
    #[arg(long)]
    pub(crate) holder: Option<Holder>,
    /// Rows at most; all when absent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Go on where a list with a limit ended.
    #[arg(long, value_name = "NEXT_PAGE")]
    pub(crate) page: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// The scope to watch.
    #[arg(conflicts_with = "prefix")]
    pub(crate) scope: Option<Scope>,
    /// Watch the scopes that begin with this text, byte by byte; with '' all.
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Go on right after this cursor, of an event or of `list -o json`. From now on when absent.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<Cursor>,
}
