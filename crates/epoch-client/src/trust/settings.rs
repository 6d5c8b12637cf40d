//! How a resource verifies, and how it keeps its trust fresh.

use std::path::PathBuf;
use std::time::Duration;

use epoch_core::{MAX_FUTURE_MS_DEFAULT, SKEW_MS_DEFAULT, Trust, Verifier};

/// How soon the chain is fetched again at the request of a certificate, by default: whoever makes
/// keys up makes a cluster's nodes no work.
pub const REFETCH_AFTER_DEFAULT: Duration = Duration::from_secs(30);

/// How a [`TrustFollower`](crate::TrustFollower) verifies certificates, and how often it fetches.
#[derive(Debug, Clone)]
pub struct TrustSettings {
    /// The resource's own name, which certificates must be for. Without one, those that are for
    /// any resource verify.
    pub audience: Option<String>,
    /// How many different nodes must have signed a certificate.
    pub signatures: usize,
    /// How far the cluster's clocks and this one may differ, in milliseconds.
    pub skew_ms: u64,
    /// How far an epoch's time may lie ahead, in milliseconds.
    pub max_future_ms: u64,
    /// How soon the chain is fetched once more for certificates whose key is not known.
    pub refetch_after: Duration,
    /// Where what is trusted is kept, so that a restart cannot be rolled back to an older bundle:
    /// one process a file. Nowhere when absent.
    pub file: Option<PathBuf>,
}

impl Default for TrustSettings {
    fn default() -> Self {
        Self {
            audience: None,
            signatures: 1,
            skew_ms: SKEW_MS_DEFAULT,
            max_future_ms: MAX_FUTURE_MS_DEFAULT,
            refetch_after: REFETCH_AFTER_DEFAULT,
            file: None,
        }
    }
}

impl TrustSettings {
    pub(super) fn verifier(&self, trust: Trust) -> Verifier {
        let verifier = Verifier::pinned(trust)
            .with_signatures(self.signatures)
            .with_skew_ms(self.skew_ms)
            .with_max_future_ms(self.max_future_ms);
        match &self.audience {
            Some(audience) => verifier.with_audience(audience),
            None => verifier,
        }
    }
}
