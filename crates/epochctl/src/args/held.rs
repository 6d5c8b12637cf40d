//! What is typed by the holder of a scope.

use std::time::Duration;

use epoch_core::{Epoch, RequestId, Scope};

use super::secret::{InSession, Untold};
use super::up_to_a_day;

/// How a certificate is signed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Signed {
    /// How many nodes sign the certificate, each after it has checked the grant against its own
    /// state: up to as many as there are. One stolen node key then forges nothing, where the
    /// resource demands as many.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=9)
    )]
    pub(crate) signatures: u32,
}

/// What an acquire says beside its scope; `run` says the same.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Terms {
    /// How long to wait, first come, first served, while another holds the scope: up to 24h. Not
    /// at all when absent.
    #[arg(long, value_parser = up_to_a_day, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// For how long nobody else gets the scope after it was lost by expiry: up to 24h.
    #[arg(long, value_parser = up_to_a_day, value_name = "DURATION")]
    pub(crate) lock_delay: Option<Duration>,
    /// Text that is shown with the grant, at most 1 KiB.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) metadata: String,
    #[command(flatten)]
    pub(crate) signed: Signed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    /// The names of what is protected, such as reports/research-note: up to 64, all or none.
    /// Several are not waited for, and not reissued.
    #[arg(required = true, num_args = 1.., value_name = "SCOPE")]
    pub(crate) scopes: Vec<Scope>,
    #[command(flatten)]
    pub(crate) session: InSession,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Take the next epoch if the session holds the scope already, which ends the grant it has.
    #[arg(long)]
    pub(crate) reissue: bool,
    /// The same id again is the same acquire; several scopes use as many ids, from this one up.
    /// Made from the time when absent.
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
    #[command(flatten)]
    pub(crate) signed: Signed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelWait {
    /// The name of what is waited for.
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) session: InSession,
    /// The request id of the acquire that waits.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) request_id: RequestId,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Transfer {
    #[command(flatten)]
    pub(crate) held: Held,
    /// The other session's session hash, not its id.
    // Some begin with a dash.
    #[arg(long, value_name = "SESSION_HASH", allow_hyphen_values = true)]
    pub(crate) to: Untold,
}
