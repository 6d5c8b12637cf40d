//! A resource's trust, kept fresh: it pins the root key, follows the bundles, and verifies.

pub(crate) mod chain;
mod demand;
mod settings;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use backon::{BackoffBuilder as _, ConstantBuilder, ExponentialBackoff, ExponentialBuilder};
use epoch_core::{
    CachedVerifier, Certificate, Pin, StatementError, Trust, TrustError, VerifyError,
};
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use self::chain::{Chain, ChainError};
use self::demand::Demand;
use crate::client::Client;
use crate::error::Error;
use crate::pool::Node;

pub use self::settings::{REFETCH_AFTER_DEFAULT, TrustSettings};
pub use self::store::TrustFileError;

/// The pause after the first fetch that failed; from there they double up to
/// [`PAUSE_MAX`]. With jitter, up to twice these.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the chain is fetched while there is no bundle that says it.
const AGE_DEFAULT: Duration = Duration::from_secs(60);

/// Verifies certificates under a pinned root key, with trust bundles that it fetches from the
/// cluster by itself. Cheap to clone: clones share the trust. The last one dropped ends it.
///
/// It fetches when it starts, then every half of the bundle's `max_age` or sooner, and when a
/// certificate is signed by a key that it does not know. While no node answers it goes on with what
/// it has, until the bundle expires; then it refuses everything. A node that offers older bundles
/// than it has seen is passed over, and the next one asked.
#[derive(Debug, Clone)]
pub struct TrustFollower {
    followed: Arc<Followed>,
    fetched: watch::Receiver<u64>,
    /// The task ends with the last clone.
    _guard: Arc<DropGuard>,
}

/// What the handles and the background task share.
#[derive(Debug)]
struct Followed {
    client: Client,
    settings: TrustSettings,
    verifier: Arc<CachedVerifier>,
    demand: Demand,
}

/// Why one node's chain was not adopted.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Call(#[from] Error),
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl TrustFollower {
    /// Begins to follow, with what the file has, if there is one. Returns after the first fetch,
    /// also when that failed: it is tried again in the background.
    ///
    /// Call it within a tokio runtime, which drives it. When that ends, fetches end, and
    /// certificates verify until the bundle expires.
    ///
    /// # Errors
    /// There is a file, and it cannot be read, or has other content than was stored: where a
    /// rolled-back bundle would not be noticed, the operator has to say so by removing it.
    pub async fn start(
        client: Client,
        pin: Pin,
        settings: TrustSettings,
    ) -> Result<Self, TrustFileError> {
        let trust = match &settings.file {
            Some(path) => store::load(pin, path)?,
            None => Trust::new(pin),
        };
        // Nearly all of its bits are random, and it is not told.
        let hash_key = Uuid::new_v4().into_bytes();
        let followed = Arc::new(Followed {
            verifier: Arc::new(CachedVerifier::new(settings.verifier(trust), &hash_key)),
            demand: Demand::new(settings.refetch_after),
            client,
            settings,
        });
        let (sender, mut fetched) = watch::channel(0);
        let ended = CancellationToken::new();
        let follow = Arc::clone(&followed).follow(sender);
        let until = ended.clone();
        tokio::spawn(async move { until.run_until_cancelled_owned(follow).await });
        let guard = Arc::new(ended.drop_guard());
        // The task ends with the runtime only.
        drop(fetched.wait_for(|number| *number >= 1).await);
        Ok(Self {
            followed,
            fetched,
            _guard: guard,
        })
    }

    /// Verifies `token` at the time `now_ms` (milliseconds since 1970). Where its key is not known,
    /// or the bundle has expired, the chain is fetched once more first, unless that was done for
    /// another certificate a moment ago ([`TrustSettings::refetch_after`]).
    ///
    /// # Errors
    /// As for [`Verifier::verify`](epoch_core::Verifier::verify).
    pub async fn verify(&self, token: &str, now_ms: u64) -> Result<Arc<Certificate>, VerifyError> {
        match self.verifier().verify(token, now_ms) {
            Err(error) if error.is_for_want_of_keys() => {}
            verified => return verified,
        }
        let number = self.followed.demand.fetch();
        let mut fetched = self.fetched.clone();
        // If the task has ended, there will be no other keys.
        drop(fetched.wait_for(|last| *last >= number).await);
        self.verifier().verify(token, now_ms)
    }

    /// The verifier with what is trusted now, for those who cannot wait for a fetch, and for guards,
    /// which share it. It goes on without new bundles when the last clone of this is dropped.
    #[must_use]
    pub fn verifier(&self) -> &Arc<CachedVerifier> {
        &self.followed.verifier
    }
}

impl Followed {
    /// Fetches again and again. `fetched` is told the number of each fetch that has ended.
    async fn follow(self: Arc<Self>, fetched: watch::Sender<u64>) {
        let mut pauses = pauses();
        loop {
            let (number, asked) = self.demand.begin();
            let came = self.fetch(number, asked).await;
            fetched.send_replace(number);
            let pause = if came {
                pauses = self::pauses();
                self.age()
            } else {
                pauses.next().unwrap_or(PAUSE_MAX)
            };
            tokio::select! {
                () = sleep_until(Instant::now() + pause) => {}
                () = self.demand.asked() => {}
            }
        }
    }

    /// Until the next fetch: a quarter to a half of the time that the bundle gives, so that many
    /// resources spread out.
    fn age(&self) -> Duration {
        let trust = self.verifier.trust();
        let bundle = trust.as_ref().and_then(Trust::bundle);
        let age = bundle.map(|bundle| Duration::from_secs(bundle.terms().max_age_s));
        let quarter = age.unwrap_or(AGE_DEFAULT) / 4;
        let mut spread = ConstantBuilder::default()
            .with_delay(quarter)
            .with_jitter()
            .build();
        spread.next().unwrap_or(quarter)
    }

    /// Asks one node after the other, another one first each time, until one has a chain that can
    /// be followed; one that is newer, if `asked`. Whether one could.
    async fn fetch(&self, number: u64, asked: bool) -> bool {
        let mut nodes = self.client.pool().known();
        let first = usize::try_from(number).unwrap_or(0) % nodes.len().max(1);
        nodes.rotate_left(first);
        let mut came = false;
        for node in nodes {
            let endpoint = &node.endpoint;
            match self.fetch_from(&node).await {
                Ok(newer) => {
                    came = true;
                    if newer || !asked {
                        break;
                    }
                }
                Err(error @ FetchError::Trust(TrustError::Fork { .. })) => {
                    tracing::error!(node = %endpoint, %error, "the trust bundles are forked");
                }
                Err(FetchError::Call(error)) => {
                    tracing::debug!(node = %endpoint, %error, "no trust bundles from this node");
                }
                Err(error) => {
                    tracing::warn!(node = %endpoint, %error, "a node's trust bundles are refused");
                }
            }
        }
        if !came {
            tracing::warn!(
                "no node has trust bundles that can be followed; going on with the last"
            );
        }
        came
    }

    /// Adopts what one node has. Whether anything of it was new.
    async fn fetch_from(&self, node: &Node) -> Result<bool, FetchError> {
        let trust = self.verifier.trust();
        let current = trust.as_ref().and_then(Trust::bundle);
        // With the newest one known, so that a node that has another one is noticed.
        let after = current.map_or(0, |bundle| bundle.rank().sequence.saturating_sub(1));
        let mut chain = self.read(node, after).await?;
        let mut adopted = self.verifier.adopt(&chain.bundles);
        if after > 0 && adopted.is_err() {
            // It may be the chain of a new life, or one that the root key has begun anew.
            chain = self.read(node, 0).await?;
            adopted = self.verifier.adopt(&chain.bundles);
        }
        let mut newer = adopted?;
        for statement in &chain.statements {
            match self.verifier.adopt_statement(statement, wall_ms()) {
                Ok(adopted) => newer |= adopted,
                Err(StatementError::ForTheCluster | StatementError::Expired { .. }) => {}
                Err(error) => {
                    let node = &node.endpoint;
                    tracing::warn!(%node, %error, "an operator's statement is refused");
                }
            }
        }
        if newer {
            self.save().await;
        }
        Ok(newer)
    }

    async fn read(&self, node: &Node, after: u64) -> Result<Chain, FetchError> {
        let mut chain = Chain::default();
        let mut after = after;
        loop {
            let page = self.client.bundle_of(node, after).await?;
            if !chain.take(page)? {
                return Ok(chain);
            }
            after = chain.last();
        }
    }

    /// Stores what is trusted, if that is wanted. A failure is made up for by the next change.
    async fn save(&self) {
        let (Some(path), Some(trust)) = (&self.settings.file, self.verifier.trust()) else {
            return;
        };
        let to = path.clone();
        let saved = spawn_blocking(move || store::save(&trust, &to)).await;
        if let Err(error) = flat(saved) {
            not_saved(path, &error);
        }
    }
}

fn flat(saved: Result<std::io::Result<()>, JoinError>) -> std::io::Result<()> {
    saved.unwrap_or_else(|ended| Err(std::io::Error::other(ended)))
}

fn not_saved(path: &Path, error: &std::io::Error) {
    let path = path.display();
    tracing::error!(%path, %error, "trust is not stored: a restart could be rolled back");
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The pauses after fetches that failed, without end.
fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests;
