//! Batching at propose: commands that arrive while one batch is under way become the next one.
//!
//! The consensus library appends one entry at a time and waits for its flush; throughput comes
//! from many commands in one entry.

use epoch_machine::{Batch, Command, Leadership, Outcome};
use epoch_store::codec::{BATCH_BYTES_MAX, BATCH_HEAD_BYTES_MAX, command_bytes};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock;
use crate::metrics::Metrics;
use crate::raft::{Consensus, WriteError};

/// Commands that wait at most; more are refused at once rather than after their callers have
/// given up.
const QUEUE_MAX: usize = 16_384;
/// Commands in one batch at most: offsets stay small, and applying one batch stays short.
const BATCH_COMMANDS_MAX: usize = 4_096;

/// Why a command was not applied, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProposeError {
    /// It certainly took no effect.
    #[error("this node does not lead")]
    NotLeader,
    /// It certainly took no effect.
    #[error("too many requests are waiting")]
    Overloaded,
    /// It may still take effect.
    #[error("the outcome is unknown")]
    Unknown,
}

type Answer = Result<Outcome, ProposeError>;

/// One command on its way.
#[derive(Debug)]
pub(crate) struct Waiting {
    command: Command,
    bytes: usize,
    answer: oneshot::Sender<Answer>,
}

/// The way in.
#[derive(Debug, Clone)]
pub(crate) struct Proposer(mpsc::Sender<Waiting>);

impl Proposer {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Waiting>) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// Has a command committed and applied.
    pub(crate) async fn propose(&self, command: Command) -> Answer {
        let (answer, outcome) = oneshot::channel();
        let bytes = command_bytes(&command);
        match self.0.try_send(Waiting {
            command,
            bytes,
            answer,
        }) {
            Ok(()) => outcome.await.unwrap_or(Err(ProposeError::Unknown)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(ProposeError::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(ProposeError::NotLeader),
        }
    }
}

/// Never ends.
pub(super) async fn run(
    consensus: Consensus,
    serving: watch::Receiver<Option<Leadership>>,
    mut queue: mpsc::Receiver<Waiting>,
    metrics: Metrics,
) {
    // What did not fit into the batch before, or was voided with it.
    let mut left: Vec<Waiting> = Vec::new();
    loop {
        if left.is_empty() {
            match queue.recv().await {
                Some(first) => left.push(first),
                None => return std::future::pending().await,
            }
        }
        let batch = gather(&mut left, &mut queue);
        let leadership = *serving.borrow();
        let Some(leadership) = leadership else {
            for waiting in batch {
                answer(waiting, Err(ProposeError::NotLeader));
            }
            continue;
        };
        metrics.batch_commands.record(batch.len() as f64);
        let voided = propose(&consensus, serving.clone(), leadership, batch).await;
        left.splice(0..0, voided);
    }
}

/// Takes from `left`, then from `queue`, what fits into one batch; the rest stays in `left`.
fn gather(left: &mut Vec<Waiting>, queue: &mut mpsc::Receiver<Waiting>) -> Vec<Waiting> {
    let mut room = BATCH_BYTES_MAX - BATCH_HEAD_BYTES_MAX;
    let mut batch = Vec::new();
    let earlier = std::mem::take(left);
    let mut source = earlier.into_iter();
    while batch.len() < BATCH_COMMANDS_MAX {
        let Some(waiting) = source.next().or_else(|| queue.try_recv().ok()) else {
            break;
        };
        // One command alone is always far below the bound.
        if waiting.bytes > room && !batch.is_empty() {
            left.push(waiting);
            break;
        }
        room = room.saturating_sub(waiting.bytes);
        batch.push(waiting);
    }
    left.extend(source);
    batch
}

/// Proposes one batch and answers its callers; returns those whose commands were voided with the
/// batch and are to be proposed again.
async fn propose(
    consensus: &Consensus,
    mut serving: watch::Receiver<Option<Leadership>>,
    leadership: Leadership,
    waiting: Vec<Waiting>,
) -> Vec<Waiting> {
    let (commands, answers): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .map(|one| (one.command, (one.bytes, one.answer)))
        .unzip();
    let batch = Batch {
        leadership,
        wall_ms: clock::wall_ms(),
        commands,
    };
    let written = tokio::select! {
        written = consensus.write(&batch) => written,
        // On a deposed leader a proposal can hang: it may still be committed by the next one.
        _ = serving.wait_for(|serving| *serving != Some(leadership)) => Err(WriteError::Unknown),
    };
    let fail = |error: ProposeError| {
        move |(_, sender): (usize, oneshot::Sender<Answer>)| {
            drop(sender.send(Err(error)));
        }
    };
    match written {
        Ok(Ok(outcomes)) => {
            let mut outcomes = outcomes.into_iter();
            for (_, sender) in answers {
                drop(sender.send(outcomes.next().ok_or(ProposeError::Unknown)));
            }
        }
        Ok(Err(_foreign)) => {
            let again = batch.commands.into_iter().zip(answers);
            return again
                .map(|(command, (bytes, answer))| Waiting {
                    command,
                    bytes,
                    answer,
                })
                .collect();
        }
        Err(WriteError::NotLeader) => answers.into_iter().for_each(fail(ProposeError::NotLeader)),
        Err(WriteError::Unknown) => answers.into_iter().for_each(fail(ProposeError::Unknown)),
    }
    Vec::new()
}

/// The caller may have gone away; its command has taken effect or not all the same.
fn answer(waiting: Waiting, answer: Answer) {
    drop(waiting.answer.send(answer));
}

#[cfg(test)]
mod tests {
    use epoch_core::RequestId;
    use epoch_core::{Holder, OpenId, Scope, SessionId};
    use uuid::Uuid;

    use super::*;

    fn waiting(scope_bytes: usize) -> Waiting {
        let command = Command::Acquire {
            scope: Scope::parse(&"s".repeat(scope_bytes)).unwrap(),
            session: SessionId {
                open_id: OpenId(Uuid::nil()),
                index: 1,
                offset: 0,
            },
            request_id: RequestId::new(1).unwrap(),
            terms: epoch_machine::Terms::default(),
            wait: epoch_machine::Wait::default(),
            reissue: false,
        };
        Waiting {
            bytes: command_bytes(&command),
            command,
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn a_batch_stays_within_its_bytes_and_nothing_is_left_out() {
        let (proposer, mut queue) = Proposer::new();
        for _ in 0..2_000 {
            proposer.0.try_send(waiting(512)).unwrap();
        }
        let (mut left, mut sizes, mut total) = (Vec::new(), Vec::new(), 0);
        while total < 2_000 {
            let commands: Vec<_> = gather(&mut left, &mut queue)
                .into_iter()
                .map(|one| one.command)
                .collect();
            total += commands.len();
            let leadership = Leadership {
                term: u64::MAX,
                node: u64::MAX,
            };
            let batch = Batch {
                leadership,
                wall_ms: u64::MAX,
                commands,
            };
            sizes.push(epoch_store::codec::encode_batch(&batch).len());
        }
        assert_eq!(total, 2_000);
        assert!(
            sizes.len() > 1 && sizes.iter().all(|size| *size <= BATCH_BYTES_MAX),
            "{sizes:?}"
        );
    }

    #[test]
    fn holder_and_scope_of_the_largest_size_fit_one_batch() {
        let open = Command::Open {
            open_id: OpenId(Uuid::nil()),
            holder: Holder::parse(&"h".repeat(256)).unwrap(),
            ttl: epoch_machine::Ttl::from_ms(1_000).unwrap(),
            stall_limit: None,
            principal: None,
            holder_key: None,
        };
        assert!(command_bytes(&open) < BATCH_BYTES_MAX / 100);
    }
}
