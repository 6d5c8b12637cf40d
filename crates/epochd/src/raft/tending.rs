//! When a checkpoint or a snapshot is made, and when the log is purged.
//!
//! Architecture invariant: the log is purged only below the older of two whole snapshots.

use std::time::Duration;

use epoch_core::error_chain;
use epoch_machine::Counts;

use super::contact::Contact;
use super::log_store::LogStore;
use super::shared::SharedState;
use super::snapshots::Snapshots;
use super::types::Raft;
use super::upkeep::Upkeep;
use crate::metrics::Metrics;
use crate::settings::Storage;

const INTERVAL: Duration = Duration::from_secs(1);
/// A checkpoint is made when the log has grown by this part of what a snapshot is made after: a
/// start applies that much at most, where the checkpoint is good.
const CHECKPOINTS_PER_SNAPSHOT: u64 = 16;
/// About how many bytes a row has in a snapshot, before compression.
const ROW_BYTES: u64 = 128;

/// Looks at the log's growth every second.
pub(super) struct Tending {
    pub(super) storage: Storage,
    pub(super) raft: Raft,
    pub(super) log: LogStore,
    pub(super) snapshots: Snapshots,
    pub(super) state: SharedState,
    pub(super) upkeep: Upkeep,
    pub(super) contact: Contact,
    pub(super) metrics: Metrics,
    /// The index of the state in the checkpoint, as far as this process knows; at first that of
    /// the state it started with.
    pub(super) checkpointed: Option<u64>,
}

impl Tending {
    /// Never ends.
    pub(super) async fn run(&mut self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.look().await;
            self.show();
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floating point")]
    fn show(&self) {
        let newest = self.snapshots.newest();
        let newest = newest.and_then(|stored| stored.meta().last_log_id);
        let shown = [
            (&self.metrics.snapshot_index, newest.map(|id| id.index)),
            (&self.metrics.checkpoint_index, self.checkpointed),
            (&self.metrics.purged_index, self.log.purged_index()),
        ];
        for (gauge, index) in shown {
            gauge.set(index.unwrap_or(0) as f64);
        }
        let lost = self.contact.own_loss().is_some();
        self.metrics.disk_lost.set(f64::from(u8::from(lost)));
    }

    async fn look(&mut self) {
        if let Some(index) = self.snapshots.purgeable()
            && self.log.purged_index().is_none_or(|purged| purged < index)
        {
            drop(self.raft.trigger().purge_log(index).await);
        }
        let checkpoints = self.upkeep.makes_checkpoints();
        if !checkpoints {
            // Nobody asks for what has changed any more: it must not pile up.
            drop(self.state.freeze());
        }
        if self.upkeep.is_busy() {
            return;
        }
        if self.snapshots.take_wanted() {
            return self.another_snapshot().await;
        }
        let growth = self.growth_bytes();
        let newest = self.snapshots.newest();
        let newest = newest.and_then(|stored| stored.meta().last_log_id);
        if self.is_due(newest.map(|id| id.index), growth) {
            drop(self.raft.trigger().snapshot().await);
        } else if checkpoints && self.is_due(self.checkpointed, growth / CHECKPOINTS_PER_SNAPSHOT) {
            self.checkpoint().await;
        }
    }

    /// Makes a snapshot for a peer, unless the newest has all and is whole.
    async fn another_snapshot(&self) {
        let snapshots = self.snapshots.clone();
        let checked = tokio::task::spawn_blocking(move || snapshots.verify_newest()).await;
        let is_bad = match &checked {
            Ok(Err(error)) => {
                let error = error_chain(error);
                tracing::error!(error, "the newest snapshot has gone bad: making another");
                true
            }
            Ok(Ok(())) | Err(_) => false,
        };
        let newest = self.snapshots.newest();
        let newest = newest.and_then(|stored| stored.meta().last_log_id);
        if is_bad || newest < self.state.applied().last_log_id {
            drop(self.raft.trigger().snapshot().await);
        }
    }

    /// Log growth after which a snapshot is made: as large as the state, so that writing it all
    /// costs no more than the log did.
    fn growth_bytes(&self) -> u64 {
        let Counts {
            sessions,
            rows,
            spent,
            waits,
            record_bytes,
            admin,
            ..
        } = self.state.read().counts();
        let rows = (sessions + rows + spent + waits + admin) as u64;
        let state_bytes = rows * ROW_BYTES + record_bytes as u64;
        match self.storage.snapshot_log_bytes {
            Some(bytes) => bytes,
            None => state_bytes.max(Storage::SNAPSHOT_LOG_BYTES_MIN),
        }
    }

    /// Whether the log has grown by `growth` since `index`. All nodes have the same log, so they
    /// would all write at once; one waits while another does, until it is twice as late.
    fn is_due(&self, index: Option<u64>, growth: u64) -> bool {
        let since = index.map_or(0, |index| index.saturating_add(1));
        let grown = self.log.bytes_since(since);
        let waits = self.contact.a_peer_is_tending();
        grown >= growth && (!waits || grown / 2 >= growth)
    }

    async fn checkpoint(&mut self) {
        let upkeep = self.upkeep.clone();
        let snapshots = self.snapshots.clone();
        let saving = self
            .upkeep
            .run(&self.state, move |frozen, checkpoint, pace| {
                upkeep.save(&frozen, &snapshots, checkpoint, pace)?;
                frozen.applied.last_log_id
            });
        // Otherwise there are no more checkpoints, or the node stops.
        if let Ok(Some(id)) = saving.await {
            self.checkpointed = Some(id.index);
        }
    }
}
