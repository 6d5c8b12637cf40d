//! What can be typed. What the command line can see to be wrong is refused here, with exit code 2.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use epoch_client::{ATTEMPT_TIMEOUT_DEFAULT, Endpoint, Options};
use epoch_core::{ClusterId, Epoch, Holder, OpenId, RequestId, Scope, SessionId};

/// The bounds of a session's TTL.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The command line of epochd: sessions, epochs and certificates.
#[derive(Debug, Parser)]
#[command(name = "epochctl", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Client addresses of the nodes; the leader is found from any of them.
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

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 held or timed out, 4 superseded or expired (stop), 6 unavailable.
`run` passes the command's code on, and uses 124 (lost while running), 125 (not acquired, or a \
failure of its own), 126 (cannot execute) and 127 (not found).";

impl Args {
    pub(crate) fn options(&self) -> Options {
        Options {
            deadline: self.deadline,
            attempt_timeout: ATTEMPT_TIMEOUT_DEFAULT.min(self.deadline),
            ..Options::default()
        }
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
    /// Open, keep alive and close sessions.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Take a scope for a session if it is free.
    Acquire(Acquire),
    /// Give a grant back.
    Release(Held),
    /// Ask for a fresh certificate of a current grant.
    Certify(Certify),
    /// End the current grant of a scope (for operators). Its holder is not asked.
    Revoke(Revoke),
    /// Show one scope.
    Get(Get),
    /// List the scopes that are held.
    List(List),
    /// Verify a certificate offline, and show what it says.
    Verify(Box<Verify>),
    /// Hold a scope while a command runs.
    Run(Run),
    /// Show the nodes, who leads, and how far this node has applied.
    Status,
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session; it expires by itself after its TTL unless it is kept alive.
    Open {
        /// The identity the session acts for.
        #[arg(long)]
        holder: Holder,
        /// How long it lives without a keepalive: from 1s to 24h.
        #[arg(long, value_parser = ttl)]
        ttl: Duration,
        /// A UUID that makes a repeated open return the same session.
        #[arg(long, value_name = "UUID")]
        open_id: Option<OpenId>,
    },
    /// Keep a session alive: once, or again and again.
    Keepalive {
        /// The session's id.
        #[arg(value_name = "SESSION_ID")]
        id: SessionId,
        /// Go on until killed, or until the session is gone.
        #[arg(long, value_parser = positive, value_name = "DURATION")]
        every: Option<Duration>,
    },
    /// Close a session and release its grants.
    Close {
        /// The session's id.
        #[arg(value_name = "SESSION_ID")]
        id: SessionId,
    },
}

/// The session a call acts in.
#[derive(Debug, clap::Args)]
pub(crate) struct InSession {
    /// The session's id, as `session open` printed it. It is a secret: others can see arguments,
    /// so that the environment is the better place.
    #[arg(
        long = "session",
        env = "EPOCHCTL_SESSION",
        hide_env_values = true,
        value_name = "SESSION_ID"
    )]
    pub(crate) id: SessionId,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) session: InSession,
    /// The same id again is the same acquire. Made from the time when absent.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) request_id: Option<RequestId>,
    /// A resource the certificate is for; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Held {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) session: InSession,
    /// The grant's epoch.
    #[arg(long)]
    pub(crate) epoch: Epoch,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Certify {
    #[command(flatten)]
    pub(crate) held: Held,
    /// A resource the certificate is for; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
    /// The epoch that must still be current. When absent, the one that is current now is looked
    /// up first, so that a later grant is never ended in its place.
    #[arg(long)]
    pub(crate) epoch: Option<Epoch>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The name of what is protected, such as reports/research-note.
    pub(crate) scope: Scope,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only scopes that begin with this text, byte by byte.
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// Rows at most; all when absent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Go on where a list with a limit ended.
    #[arg(long, value_name = "NEXT_PAGE")]
    pub(crate) page: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The certificate; `-` reads it from stdin, `@FILE` from a file.
    pub(crate) certificate: String,
    /// The key set: a file, or the URL of a node's /.well-known/jwks.json.
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) jwks: String,
    /// The cluster it must be from. When absent, the one it names itself, and that is said.
    #[arg(long, value_name = "CLUSTER_ID")]
    pub(crate) cluster: Option<ClusterId>,
    /// The resource it must be for. When absent, that is not checked.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Option<String>,
    /// The scope it must be for. When absent, that is not checked.
    #[arg(long)]
    pub(crate) scope: Option<Scope>,
    /// The time to check at, as in 2026-01-31T12:00:00Z; now when absent.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    pub(crate) now: Option<SystemTime>,
}

/// The command runs in a process group of its own, with its environment extended by EPOCH,
/// EPOCH_SCOPE, EPOCH_CERT_FILE (readable by its user only, renewed three times in a TTL) and
/// EPOCH_SESSION (the session's hash, not its id). TERM, INT, HUP and QUIT are passed on to
/// the group. When the grant is lost, the group gets TERM and, after the grace, KILL.
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
    /// How long the command may take to end after the loss, before it is killed.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "10s")]
    pub(crate) grace: Duration,
    /// A resource the certificate is for; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Vec<String>,
    /// The command and its arguments. No shell is involved.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration as in 10s"))?;
    if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Err("a TTL is from 1s to 24h".to_owned());
    }
    if ttl.subsec_nanos() % 1_000_000 != 0 {
        return Err("a TTL is in whole milliseconds".to_owned());
    }
    Ok(ttl)
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
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    const SESSION: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0";

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("epochctl").chain(line.split(' ')))
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_reads() {
        for line in [
            "session open --holder h --ttl 10s",
            "session open --holder h --ttl 1500ms --open-id 2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
            "session keepalive SESSION --every 3s",
            "session close SESSION",
            "acquire a/b --session SESSION --request-id 7 --audience x --audience y",
            "release a/b --session SESSION --epoch 42",
            "certify a/b --session SESSION --epoch 42 --audience x",
            "revoke a/b",
            "revoke a/b --epoch 42",
            "get a/b -o json",
            "list --prefix a/ --limit 10",
            "verify a.b.c --jwks keys.json --scope a/b --now 2026-01-31T12:00:00Z",
            "run a/b --holder h --ttl 10s -- sh -c true",
            "--endpoints 127.0.0.1:1,127.0.0.1:2 --deadline 3s status",
            "completion bash",
        ] {
            let line = line.replace("SESSION", SESSION);
            if let Err(error) = parse(&line) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn bad_input_is_refused_before_anything_is_sent() {
        let long = format!("get {}", "a".repeat(513));
        for line in [
            "session open --holder h --ttl 999ms",
            "session open --holder h --ttl 25h",
            "session open --holder h --ttl 1s1us",
            "session open --holder h --ttl 10s --open-id x",
            "session keepalive x",
            "session close SESSION.1",
            "acquire a/b --session SESSION --request-id 0",
            "acquire a/b --session SESSION --request-id 9007199254740992",
            "release a/b --session SESSION --epoch -1",
            "release a/b --session SESSION --epoch 1.5",
            "release a/b --session SESSION --epoch 9007199254740992",
            "get a\nb",
            "get a\0b",
            &long,
            "list --limit 0",
            "run a/b --holder h --ttl 10s",
            "--endpoints nowhere status",
            "--deadline 0s status",
            "-o xml status",
            "completion tcl",
        ] {
            let error = parse(&line.replace("SESSION", SESSION)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line:?}");
        }
        let error = Args::try_parse_from(["epochctl", "get", ""]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
    }

    #[test]
    fn what_follows_the_dashes_is_the_command_untouched() {
        let args = parse("run a/b --holder h --ttl 10s -- cmd --ttl -o json").unwrap();
        let Command::Run(run) = args.command else {
            panic!("not run")
        };
        assert_eq!(run.command, ["cmd", "--ttl", "-o", "json"]);
        assert_eq!(args.output, Format::Table);
    }
}
