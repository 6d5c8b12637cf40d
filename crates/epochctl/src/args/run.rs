//! What is typed to hold a scope while a command runs.

use std::ffi::OsString;
use std::time::Duration;

use epoch_core::{Holder, Scope};

use super::held::Terms;
use super::ttl;

/// The command runs in a process group of its own, with its environment extended by EPOCH,
/// EPOCH_SCOPE, EPOCH_CERT_FILE (readable by its user only, kept fresh) and EPOCH_SESSION (the
/// session hash, not the id: the command cannot act in the session), and without EPOCHCTL_SESSION.
/// It has no terminal: where its input would be one, that is empty. When the grant is lost, when
/// the command has ended and left others of its group behind, and when the system has stopped it
/// as it used the terminal all the same (by /dev/tty), the group gets TERM and, after the grace,
/// KILL. TERM, INT, HUP and QUIT are passed on to the group; KILL follows after the grace. USR1 and USR2 are passed on, and end nothing. What is ignored when
/// it starts (nohup) stays ignored. The scope is given back when nobody of the group is left.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    /// The identity to act for.
    #[arg(long)]
    pub(crate) holder: Holder,
    /// The session's TTL: from 1s to 24h.
    #[arg(long, value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// How long the group may take to end once it is told to, before it is killed.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "10s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// A resource the certificate is for; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Vec<String>,
    /// The command and its arguments. No shell is involved.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
