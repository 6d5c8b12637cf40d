//! What is typed about sessions.

use std::time::Duration;

use clap::Subcommand;
use epoch_core::{Holder, OpenId, Thumbprint};

use super::secret::OfSession;
use super::{positive, ttl};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session; it expires by itself after its TTL unless it is kept alive.
    Open(SessionOpen),
    /// Keep a session alive: once, or again and again.
    Keepalive {
        #[command(flatten)]
        session: OfSession,
        /// Go on until killed, or until the session is gone.
        #[arg(long, value_parser = positive, value_name = "DURATION")]
        every: Option<Duration>,
        /// A number that changes while the work gets on, for sessions with a stall limit. A
        /// number that is repeated tells of no progress.
        #[arg(long, value_name = "NUMBER", conflicts_with = "every")]
        progress: Option<u64>,
    },
    /// Show a session with its grants and waits.
    Get {
        #[command(flatten)]
        session: OfSession,
    },
    /// List the sessions that live, in the order in which they were opened.
    List(SessionList),
    /// Close a session and release its grants.
    Close {
        #[command(flatten)]
        session: OfSession,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionOpen {
    /// The identity the session acts for.
    #[arg(long)]
    pub(crate) holder: Holder,
    /// How long it lives without a keepalive: from 1s to 24h.
    #[arg(long, value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// Let it expire when its keepalives bring no new progress mark for this long: from 1s to 24h.
    #[arg(long, value_parser = ttl, value_name = "DURATION")]
    pub(crate) stall_limit: Option<Duration>,
    /// A UUID that makes a repeated open return the same session.
    #[arg(long, value_name = "UUID")]
    pub(crate) open_id: Option<OpenId>,
    /// The name of the holder's own key, as `holder-key make` printed it. Certificates name it, and
    /// a gateway demands a proof of it with each request.
    // Some begin with a dash.
    #[arg(long, value_name = "THUMBPRINT", allow_hyphen_values = true)]
    pub(crate) holder_key: Option<Thumbprint>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionList {
    /// Only those of this holder.
    #[arg(long)]
    pub(crate) holder: Option<Holder>,
    /// Rows at most; all when absent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Go on where a list with a limit ended.
    #[arg(long, value_name = "NEXT_PAGE")]
    pub(crate) page: Option<String>,
}
