//! Leadership checks, shared: one check serves all who asked before it began.

use std::time::Duration;

use epoch_machine::Leadership;
use tokio::sync::{mpsc, oneshot, watch};

use crate::raft::Consensus;

/// Callers that wait at most.
const QUEUE_MAX: usize = 65_536;

/// Why leadership was not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CheckError {
    /// This node does not serve as the leader.
    #[error("this node does not lead")]
    NotLeader,
    /// No quorum has confirmed it in time.
    #[error("no quorum has confirmed this leader")]
    NoQuorum,
    /// Too many callers wait.
    #[error("too many requests are waiting")]
    Overloaded,
}

pub(crate) type Caller = oneshot::Sender<Result<Leadership, CheckError>>;

/// The way in.
#[derive(Debug, Clone)]
pub(crate) struct Checks(mpsc::Sender<Caller>);

impl Checks {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Caller>) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// The leadership that a quorum has confirmed since this call began; all that was committed
    /// before it is applied.
    pub(crate) async fn confirm(&self) -> Result<Leadership, CheckError> {
        let (caller, confirmed) = oneshot::channel();
        match self.0.try_send(caller) {
            Ok(()) => confirmed.await.unwrap_or(Err(CheckError::NotLeader)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(CheckError::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(CheckError::NotLeader),
        }
    }
}

/// Checks whenever somebody asks, `interval` apart at least. Never ends.
pub(super) async fn run(
    consensus: Consensus,
    serving: watch::Receiver<Option<Leadership>>,
    mut queue: mpsc::Receiver<Caller>,
    interval: Duration,
) {
    loop {
        let Some(first) = queue.recv().await else {
            return std::future::pending().await;
        };
        let begun = tokio::time::Instant::now();
        let mut callers = vec![first];
        while let Ok(caller) = queue.try_recv() {
            callers.push(caller);
        }
        let result = check(&consensus, &serving).await;
        for caller in callers {
            // A caller that has gone away needs no answer.
            let _ = caller.send(result);
        }
        tokio::time::sleep_until(begun + interval).await;
    }
}

async fn check(
    consensus: &Consensus,
    serving: &watch::Receiver<Option<Leadership>>,
) -> Result<Leadership, CheckError> {
    let leadership = (*serving.borrow()).ok_or(CheckError::NotLeader)?;
    let mut lost = serving.clone();
    let confirmed = tokio::select! {
        confirmed = consensus.check_leadership(leadership) => confirmed,
        _ = lost.wait_for(|serving| *serving != Some(leadership)) => {
            return Err(CheckError::NotLeader);
        }
    };
    match confirmed {
        Ok(()) if *serving.borrow() == Some(leadership) => Ok(leadership),
        Ok(()) => Err(CheckError::NotLeader),
        Err(_not_confirmed) => Err(CheckError::NoQuorum),
    }
}
