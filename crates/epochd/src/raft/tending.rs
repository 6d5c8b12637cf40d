//! When a checkpoint or a snapshot is made, and when the log is purged.
//!
//! Architecture invariant: the log is purged only below the older of two whole snapshots.

use std::time::Duration;

use epoch_machine::Counts;

use super::contact::Contact;
use super::log_store::LogStore;
use super::shared::SharedState;
use super::snapshots::Snapshots;
use super::types::Raft;
use super::upkeep::Upkeep;
use crate::settings::Storage;

const INTERVAL: Duration = Duration::from_secs(1);
/// A checkpoint is made when the log has grown by this part of what a snapshot is made after: a
/// start applies that much at most, where the checkpoint is good.
const CHECKPOINTS_PER_SNAPSHOT: u64 = 16;
/// About how many bytes a row has in a snapshot, before compression.
const ROW_BYTES: u64 = 128;

/// Looks at the log's growth every second.
pub(super) struct Tending {
    storage: Storage,
    raft: Raft,
    log: LogStore,
    snapshots: Snapshots,
    state: SharedState,
    upkeep: Upkeep,
    contact: Contact,
    /// The index of the state in the checkpoint, as far as this process knows.
    checkpointed: Option<u64>,
}

impl Tending {
    pub(super) fn new(
        storage: Storage,
        raft: Raft,
        log: LogStore,
        snapshots: Snapshots,
        state: SharedState,
        upkeep: Upkeep,
        contact: Contact,
    ) -> Self {
        Self {
            storage,
            raft,
            log,
            snapshots,
            checkpointed: index_of(&state),
            state,
            upkeep,
            contact,
        }
    }

    /// Never ends.
    pub(super) async fn run(&mut self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.look().await;
        }
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
        let growth = self.growth_bytes();
        let newest = self.snapshots.newest();
        let newest = newest.and_then(|stored| stored.meta().last_log_id);
        if self.is_due(newest.map(|id| id.index), growth) {
            drop(self.raft.trigger().snapshot().await);
        } else if checkpoints && self.is_due(self.checkpointed, growth / CHECKPOINTS_PER_SNAPSHOT) {
            self.checkpoint().await;
        }
    }

    /// Log growth after which a snapshot is made: as large as the state, so that writing it all
    /// costs no more than the log did.
    fn growth_bytes(&self) -> u64 {
        let Counts {
            sessions,
            rows,
            spent,
            ..
        } = self.state.read().counts();
        let state_bytes = (sessions + rows + spent) as u64 * ROW_BYTES;
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

fn index_of(state: &SharedState) -> Option<u64> {
    state.applied().last_log_id.map(|id| id.index)
}
