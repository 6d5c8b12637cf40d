//! One node: consensus, and what the leader does besides.

mod checks;
mod deadlines;
mod delays;
mod denials;
mod keys;
mod leader;
#[cfg(test)]
mod lease_runs;
mod leases;
mod pings;
mod proposer;
mod queues;
mod rates;
mod timers;
mod trust;
mod vouch;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use epoch_core::NodeId;
use epoch_machine::Leadership;
use epoch_proto::raft::vouch_service_client::VouchServiceClient;
use epoch_store::{FolderLock, RealFs};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Error as ChannelError};

use crate::clock;
use crate::metrics::Metrics;
use crate::raft::{Consensus, Happenings, Line, SharedState};
use crate::seed::Seed;
use crate::settings::Settings;
use crate::watch::Watches;

pub(crate) use checks::{CheckError, Checks};
use delays::Delays;
pub(crate) use denials::Denials;
pub(crate) use keys::{Keys, make_first};
pub(crate) use leases::{Leases, RenewError, Renewal};
pub(crate) use proposer::{ProposeError, Proposer};
pub(crate) use queues::{Attached, Queues};
pub(crate) use rates::Rates;
pub(crate) use vouch::{Voucher, verified};

/// Keepalives that arrive within so long share one leadership check.
const KEEPALIVE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Everything that the services of one node share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) seed: Seed,
    pub(crate) consensus: Consensus,
    pub(crate) state: SharedState,
    /// Its signing keys.
    pub(crate) keys: Keys,
    /// Calls that were denied here.
    pub(crate) denials: Denials,
    /// Of requests.
    pub(crate) rates: Rates,
    pub(crate) metrics: Metrics,
    pub(crate) proposer: Proposer,
    /// Leadership checks for reads.
    pub(crate) reads: Checks,
    /// Leadership checks for keepalives.
    pub(crate) keepalives: Checks,
    pub(crate) watches: Watches,
    /// How many watches it serves.
    pub(crate) watching: AtomicUsize,
    leases: Mutex<Leases>,
    queues: Mutex<Queues>,
    delays: Mutex<Delays>,
    /// This node's own leadership, once it serves in it.
    serving: watch::Sender<Option<Leadership>>,
    _lock: FolderLock,
}

impl Node {
    /// Reads the data folder and starts everything but the listeners.
    pub(crate) async fn start(
        settings: &Settings,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Arc<Self>> {
        let begun = clock::boot();
        let folder = &settings.data_dir;
        let seed = Seed::read(folder)?;
        let lock = FolderLock::acquire(&RealFs, folder)?;
        let keys = Keys::open(folder, seed.node)?;
        let metrics = Metrics::new(seed.node);
        let watches = Watches::default();
        let (happenings, events) = Happenings::new(watches.clone());
        let (consensus, state) = Consensus::start(
            folder,
            seed.clone(),
            settings.timing,
            settings.storage,
            metrics.clone(),
            happenings,
            begun,
        )
        .await
        .with_context(|| format!("node {} in {}", seed.node, folder.display()))?;
        let (serving, is_serving) = watch::channel(None);
        let (proposer, proposals) = Proposer::new();
        let (reads, read_queue) = Checks::new();
        let (keepalives, keepalive_queue) = Checks::new();
        let node = Arc::new(Self {
            id: seed.node,
            seed,
            consensus,
            state,
            keys,
            denials: Denials::default(),
            rates: Rates::default(),
            metrics,
            proposer,
            reads,
            keepalives,
            watches,
            watching: AtomicUsize::new(0),
            leases: Mutex::default(),
            queues: Mutex::default(),
            delays: Mutex::default(),
            serving,
            _lock: lock,
        });
        let spawn = |name: &'static str, task: futures::future::BoxFuture<'static, ()>| {
            let stop = stop.clone();
            tasks.spawn(async move {
                tokio::select! {
                    // First: what a stop ends must not be taken for a failure.
                    biased;
                    () = stop.cancelled() => {}
                    () = task => tracing::error!(name, "a task that never ends has ended"),
                }
            });
        };
        spawn("pings", Box::pin(pings::run(Arc::clone(&node))));
        spawn("leader", Box::pin(leader::run(Arc::clone(&node))));
        spawn("trust", Box::pin(trust::run(Arc::clone(&node))));
        spawn("timers", Box::pin(timers::run(Arc::clone(&node), events)));
        let consensus = node.consensus.clone();
        spawn("upkeep", Box::pin(async move { consensus.tend().await }));
        spawn(
            "proposer",
            Box::pin(proposer::run(
                node.consensus.clone(),
                is_serving.clone(),
                proposals,
                node.metrics.clone(),
            )),
        );
        let read_checks = checks::run(
            node.consensus.clone(),
            is_serving.clone(),
            read_queue,
            Duration::ZERO,
        );
        spawn("read checks", Box::pin(read_checks));
        let keepalive_checks = checks::run(
            node.consensus.clone(),
            is_serving,
            keepalive_queue,
            KEEPALIVE_CHECK_INTERVAL,
        );
        spawn("keepalive checks", Box::pin(keepalive_checks));
        Ok(node)
    }

    /// What a peer is asked to sign through.
    pub(crate) fn voucher(
        &self,
        peer: NodeId,
        address: &str,
    ) -> Result<VouchServiceClient<Channel>, ChannelError> {
        let channel = self.consensus.channel(peer, address, Line::Calls)?;
        Ok(VouchServiceClient::new(channel))
    }

    /// This node's leadership, once it serves in it.
    pub(crate) fn serving(&self) -> Option<Leadership> {
        *self.serving.borrow()
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delays(&self) -> MutexGuard<'_, Delays> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether clients can be served here: by this node, or by passing on to a leader it knows.
    pub(crate) fn is_ready(&self) -> bool {
        let contact = self.consensus.contact();
        if contact.quiet_left().is_some() || contact.own_loss().is_some() {
            return false;
        }
        let leader = self.consensus.leader();
        self.serving().is_some() || leader.is_some_and(|(leader, _)| leader != self.id)
    }
}
