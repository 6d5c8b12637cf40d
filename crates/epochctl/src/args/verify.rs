//! What is typed to verify a certificate.

use std::time::SystemTime;

use epoch_core::{ClusterId, Pin, Scope};

/// A certificate verifies under a key set that came over a connection you trust, or under the root key
/// that you pin. Only the latter tells which node has which key.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("trusted").required(true)))]
pub(crate) struct Verify {
    /// The certificate; `-` reads it from stdin, `@FILE` from a file.
    pub(crate) certificate: String,
    /// The key set: a file, or the URL of a node's /.well-known/jwks.json.
    #[arg(long, value_name = "FILE|URL", group = "trusted")]
    pub(crate) jwks: Option<String>,
    /// The cluster, and its root key, as `key pin` prints them: the chain of trust bundles is
    /// fetched from the endpoints, unless --bundle gives it.
    #[arg(long, group = "trusted", conflicts_with = "cluster")]
    pub(crate) pin: Option<Pin>,
    /// The chain of trust bundles, as `key bundle` printed it: a file, `-`, or a URL.
    #[arg(
        long,
        value_name = "FILE|URL",
        requires = "pin",
        conflicts_with = "jwks"
    )]
    pub(crate) bundle: Option<String>,
    /// How many different nodes must have signed: 1 when absent.
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "pin",
        conflicts_with = "jwks",
        value_parser = clap::value_parser!(u8).range(1..=9)
    )]
    pub(crate) signatures: Option<u8>,
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
