//! What is typed to verify a certificate.

use std::time::SystemTime;

use epoch_core::{ClusterId, Scope};

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
