//! What is typed about who may do what.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use epoch_core::Principal;

use super::{positive, whole_ms};

/// The longest that a token may be good for by its own: what the API can say.
const TOKEN_TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionCommand {
    /// Give a principal verbs over the scopes that begin with a prefix, in place of those it has
    /// there. From the first permission on, nobody may do anything without one.
    Grant(PermissionGrant),
    /// Take a principal's verbs at a prefix away. What it holds stays held; its waits end.
    Revoke(PermissionRevoke),
    /// List the principals with their permissions, tokens and limits.
    List,
    /// Set what a principal may have at once, in place of all its limits.
    Limits(PermissionLimits),
    /// Make bearer tokens, and forget them.
    #[command(subcommand)]
    Token(TokenCommand),
}

/// Whom it is about.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OfPrincipal {
    /// A name for tokens, or the URI of a client certificate: 1 to 256 bytes. Its holders are
    /// called as it is, or begin with it and a slash.
    #[arg(value_name = "PRINCIPAL")]
    pub(crate) principal: Principal,
}

/// Over which scopes: said expressly, since none typed would be all.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Over {
    /// Scopes that begin with this text, byte by byte: end it with a slash unless `a` is to cover
    /// `ab` too.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prefix: Option<String>,
    /// Every scope: the empty prefix.
    #[arg(long)]
    all: bool,
}

impl Over {
    pub(crate) fn prefix(self) -> String {
        self.prefix.unwrap_or_default()
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PermissionGrant {
    #[command(flatten)]
    pub(crate) of: OfPrincipal,
    #[command(flatten)]
    pub(crate) over: Over,
    /// acquire (records included), read, revoke, operate (with --all only).
    #[arg(
        long,
        required = true,
        value_enum,
        value_delimiter = ',',
        value_name = "VERB,…"
    )]
    pub(crate) verbs: Vec<Verb>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    Acquire,
    Read,
    Revoke,
    Operate,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Revoke => "revoke",
            Self::Operate => "operate",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PermissionRevoke {
    #[command(flatten)]
    pub(crate) of: OfPrincipal,
    #[command(flatten)]
    pub(crate) over: Over,
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("limit").required(true).multiple(true)))]
pub(crate) struct PermissionLimits {
    #[command(flatten)]
    pub(crate) of: OfPrincipal,
    /// Sessions at once.
    #[arg(long, value_name = "NUMBER", group = "limit")]
    pub(crate) sessions: Option<u32>,
    /// Grants at once.
    #[arg(long, value_name = "NUMBER", group = "limit")]
    pub(crate) grants: Option<u32>,
    /// Waits at once.
    #[arg(long, value_name = "NUMBER", group = "limit")]
    pub(crate) waits: Option<u32>,
    /// Requests a second, at each node.
    #[arg(long, value_name = "NUMBER", group = "limit")]
    pub(crate) rate: Option<u32>,
    /// No limit of any kind.
    #[arg(
        long,
        group = "limit",
        conflicts_with_all = ["sessions", "grants", "waits", "rate"]
    )]
    pub(crate) none: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a bearer token. The cluster is told its hash only: it cannot be shown again.
    Add(TokenAdd),
    /// Forget a bearer token: who has it may do nothing with it any more.
    Remove(TokenRemove),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenAdd {
    #[command(flatten)]
    pub(crate) of: OfPrincipal,
    /// The token's name, one for each of the principal's: up to 64 of A-Z, a-z, 0-9, `.`, `_`, `-`.
    #[arg(long, value_parser = label)]
    pub(crate) label: String,
    /// For how long it is good: from 1s to 366 days. For ever when absent.
    #[arg(long, value_parser = token_ttl, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// A new file for the token, which only its user can read; `-` prints it.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenRemove {
    #[command(flatten)]
    pub(crate) of: OfPrincipal,
    /// The token's name.
    #[arg(value_parser = label)]
    pub(crate) label: String,
}

/// What operators did, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Audit {
    /// Denied calls instead, as the node that answers remembers them.
    #[arg(long)]
    pub(crate) denials: bool,
    /// Records at most; all when absent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Go on where a list with a limit ended.
    #[arg(long, value_name = "NEXT_PAGE")]
    pub(crate) page: Option<String>,
}

fn label(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("it has 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'".to_owned())
    }
}

fn token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = positive(text)?;
    if !(Duration::from_secs(1)..=TOKEN_TTL_MAX).contains(&ttl) {
        return Err("it is from 1s to 366days".to_owned());
    }
    whole_ms(ttl)
}
