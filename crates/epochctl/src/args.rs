//! What can be typed. What the command line can see to be wrong is refused here, with exit code 2.

mod connection;
mod held;
mod key;
mod permission;
mod proof;
mod record;
mod refused;
mod run;
mod scope;
mod secret;
mod session;
mod verify;

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use epoch_client::{ATTEMPT_TIMEOUT_DEFAULT, Endpoint, Options};

pub(crate) use connection::Connection;
pub(crate) use held::{Acquire, CancelWait, Certify, Held, Transfer};
pub(crate) use key::{
    KeyCommand, KeySign, NodeKey, StatementCommand, StatementMake, StatementTerms,
};
pub(crate) use permission::{
    Audit, PermissionCommand, PermissionGrant, PermissionLimits, PermissionRevoke, TokenAdd,
    TokenCommand, TokenRemove, Verb,
};
pub(crate) use proof::{HolderKeyCommand, Proof};
pub(crate) use record::{RecordCommand, RecordDelete, RecordGet, RecordPut};
pub(crate) use refused::refused;
pub(crate) use run::Run;
pub(crate) use scope::{Get, List, Revoke, Watch};
pub(crate) use session::{SessionCommand, SessionList, SessionOpen};
pub(crate) use verify::Verify;

use crate::exit::Failure;

/// The bounds of a session's TTL, and of its stall limit. Waits and lock delays have the upper one.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The command line of epochd: sessions, epochs and certificates.
#[derive(Debug, Parser)]
#[command(name = "epochctl", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Client addresses of the nodes, with https:// where they serve over TLS; the leader is found
    /// from any of them.
    #[arg(
        long,
        global = true,
        env = "EPOCHCTL_ENDPOINTS",
        value_delimiter = ',',
        value_name = "HOST:PORT,…",
        default_value = "127.0.0.1:7600,127.0.0.1:7601,127.0.0.1:7602"
    )]
    pub(crate) endpoints: Vec<Endpoint>,

    /// How results are printed: a table to read, or JSON with stable names.
    #[arg(
        short,
        long,
        global = true,
        env = "EPOCHCTL_OUTPUT",
        value_enum,
        default_value = "table"
    )]
    pub(crate) output: Format,

    /// How long a call may take in all, retries included.
    #[arg(long, global = true, value_parser = positive, value_name = "DURATION", default_value = "10s")]
    pub(crate) deadline: Duration,

    #[command(flatten)]
    pub(crate) connection: Connection,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 held or timed out, 4 superseded or expired (stop), 6 unavailable.
`run` passes the command's code on, and uses 124 (lost while running), 125 (not acquired, or a \
failure of its own), 126 (cannot execute) and 127 (not found).";

impl Args {
    /// How the nodes are called.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        Ok(Options {
            deadline: self.deadline,
            attempt_timeout: ATTEMPT_TIMEOUT_DEFAULT.min(self.deadline),
            tls: self.connection.tls()?,
            token: self.connection.token()?,
            ..Options::default()
        })
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open, keep alive, show and close sessions.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Take scopes for a session: several, all or none; one, also after a wait.
    Acquire(Box<Acquire>),
    /// End a wait for a scope.
    CancelWait(CancelWait),
    /// Give a grant back.
    Release(Held),
    /// Give a grant to another session, at the next epoch and before the queue.
    Transfer(Transfer),
    /// Ask for a fresh certificate of a current grant.
    Certify(Certify),
    /// End the current grant of a scope (for operators). Its holder is not asked.
    Revoke(Revoke),
    /// Show one scope, with its queue.
    Get(Get),
    /// List the scopes that are held.
    List(List),
    /// Print what happens to grants, a line an event, until interrupted.
    Watch(Watch),
    /// Write, read and remove a scope's record.
    #[command(subcommand)]
    Record(RecordCommand),
    /// Verify a certificate offline, and show what it says.
    Verify(Box<Verify>),
    /// See to the nodes' signing keys, the trust bundles and the pin (for operators).
    #[command(subcommand)]
    Key(Box<KeyCommand>),
    /// Make exceptions for a time, signed with the root key (for operators).
    #[command(subcommand)]
    Statement(Box<StatementCommand>),
    /// Make a key of the holder's own, which certificates then name.
    #[command(subcommand)]
    HolderKey(HolderKeyCommand),
    /// Prove for one request that one has the key that its certificate names (DPoP, RFC 9449).
    Proof(Proof),
    /// Hold a scope while a command runs.
    Run(Box<Run>),
    /// Say who may do what (for operators). Without any permission, everyone may do everything.
    #[command(subcommand)]
    Permission(PermissionCommand),
    /// List what operators did, or what was denied, newest first (for operators).
    Audit(Audit),
    /// Show the nodes, who leads, and how far this node has applied.
    Status,
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration as in 10s"))?;
    if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Err("it is from 1s to 24h".to_owned());
    }
    whole_ms(ttl)
}

/// A wait or a lock delay.
fn up_to_a_day(text: &str) -> Result<Duration, String> {
    let duration = positive(text)?;
    if duration > TTL_MAX {
        return Err("it is at most 24h".to_owned());
    }
    whole_ms(duration)
}

/// The API takes whole milliseconds only.
fn whole_ms(duration: Duration) -> Result<Duration, String> {
    match duration.subsec_nanos() % 1_000_000 {
        0 => Ok(duration),
        _part => Err("it is in whole milliseconds".to_owned()),
    }
}

fn positive(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration as in 10s"))?;
    if duration.is_zero() {
        Err("it must be longer than nothing".to_owned())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests;
