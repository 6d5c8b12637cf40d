//! What is not urgent: writing snapshots and checkpoints, on a thread of its own that gives way to
//! everything else.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use epoch_core::error_chain;
use epoch_store::checkpoint::{Checkpoint, CheckpointError, Saved};
use tokio::sync::oneshot;

use super::contact::Contact;
use super::shared::{Frozen, SharedState};
use super::snapshots::{Snapshots, meta_of};
use crate::clock;

/// For each stretch of work the thread rests so many times as long: with two cores and a log that
/// is flushed all the time, more work at once is felt by every caller.
const REST_RATIO: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(100);
/// Lets the scheduler prefer every other thread. Unlike the ratio it costs nothing on an idle
/// machine.
const NICENESS: i32 = 10;

type Job = Box<dyn FnOnce(&mut Checkpoint, &mut dyn FnMut()) + Send>;

/// The thread, which owns the checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Upkeep {
    jobs: Arc<Mutex<mpsc::Sender<Job>>>,
    busy: Arc<AtomicBool>,
    /// Whether there are no more checkpoints: the table's code has failed.
    off: Arc<AtomicBool>,
}

impl Upkeep {
    pub(super) fn start(mut checkpoint: Checkpoint, contact: Contact) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = Arc::clone(&busy);
        thread::spawn(move || {
            give_way();
            // Ends when the last sender is gone.
            for job in queue {
                is_busy.store(true, Ordering::Release);
                contact.set_tending(true);
                let mut begun = clock::boot();
                job(&mut checkpoint, &mut || {
                    let worked = clock::boot().saturating_sub(begun);
                    thread::sleep((worked * REST_RATIO).min(REST_MAX));
                    begun = clock::boot();
                });
                contact.set_tending(false);
                is_busy.store(false, Ordering::Release);
            }
        });
        Self {
            jobs: Arc::new(Mutex::new(jobs)),
            busy,
            off: Arc::default(),
        }
    }

    /// Whether a job is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Whether checkpoints are made. They are not any more once the table's code has failed.
    pub(super) fn makes_checkpoints(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    /// Freezes the state, and runs `work` with it after all that was asked before. `work` gets
    /// what to call between stretches of work, too. The result is never sent if the node stops.
    ///
    /// States are frozen in the order in which they are worked on: the changes of one that
    /// overtook another would follow on nothing in the checkpoint.
    pub(super) fn run<T: Send + 'static>(
        &self,
        state: &SharedState,
        work: impl FnOnce(Frozen, &mut Checkpoint, &mut dyn FnMut()) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        // A panic ends the process, so a poisoned lock is never seen by anyone.
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let frozen = state.freeze();
        let job: Job = Box::new(move |checkpoint, pace| {
            // The receiver is gone only when the node stops.
            drop(done.send(work(frozen, checkpoint, pace)));
        });
        // The thread is gone: a panic in it ends the process, so nobody sees this for long. The
        // receiver is told.
        drop(jobs.send(job));
        result
    }

    /// Saves what has changed in the checkpoint; `None` when there are no checkpoints, or no
    /// entry was ever applied. Blocks.
    ///
    /// An error of the checkpoint's ends the process, since the disk failed, except that of a
    /// table whose code failed: the node goes on without checkpoints.
    pub(super) fn save(
        &self,
        frozen: &Frozen,
        snapshots: &Snapshots,
        checkpoint: &mut Checkpoint,
        pace: &mut dyn FnMut(),
    ) -> Option<Saved> {
        let Frozen {
            state,
            applied,
            changes,
            since,
        } = frozen;
        if applied.last_log_id.is_none() || !self.makes_checkpoints() {
            return None;
        }
        let saved = match meta_of(applied) {
            Ok(meta) => checkpoint.save(state, &meta, *since, changes, snapshots.base(), pace),
            Err(error) => stop(error.into()),
        };
        match saved {
            Ok(saved) => {
                let rows = changes.len();
                let index = applied.last_log_id.map(|id| id.index);
                tracing::debug!(index, rows, ?saved, "checkpoint saved");
                Some(saved)
            }
            Err(CheckpointError::Off(reason)) => {
                tracing::warn!(
                    error = error_chain(&reason),
                    "no more checkpoints: starts take longer"
                );
                self.off.store(true, Ordering::Release);
                None
            }
            Err(error) => stop(error.into()),
        }
    }
}

fn stop(error: anyhow::Error) -> ! {
    crate::fatal::stop(&format!("the checkpoint cannot be saved: {error:#}"))
}

fn give_way() {
    // Of the calling thread only, on Linux.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the upkeep thread keeps its priority");
    }
}
