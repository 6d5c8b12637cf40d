//! The leader's clockwork: leases, waits and lock delays follow the log, and what has run out is
//! proposed to end.

use std::sync::Arc;
use std::time::Duration;

use epoch_machine::{Batch, Command, Event, Leadership, SessionKey};
use tokio::sync::mpsc;

use super::Node;
use super::queues::WaitId;
use crate::clock;

const TICK: Duration = Duration::from_millis(50);
/// Ticks further apart than this mean that the process was paused. Well below the silence after
/// which a paused leader is deposed anyway.
const GAP_MAX: Duration = Duration::from_millis(250);

/// Never ends.
pub(super) async fn run(node: Arc<Node>, mut events: mpsc::UnboundedReceiver<(u64, Event)>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some((index, event)) = events.recv() => note(&node, index, &event),
            _ = tick.tick() => end_due(&node),
        }
    }
}

/// Takes note of what the log says at `index`.
fn note(node: &Node, index: u64, event: &Event) {
    let now = clock::boot();
    node.leases().note(event, now);
    node.queues().note(index, event, now);
    node.delays().note(event, now);
}

fn end_due(node: &Arc<Node>) {
    let Some(leadership) = node.serving() else {
        return;
    };
    let now = clock::boot();
    let sessions = node.leases().tick(now, GAP_MAX);
    let (waits, gone) = node.queues().tick(now, GAP_MAX);
    let scopes = node.delays().tick(now, GAP_MAX);
    let spawn = |what: Due| {
        if !what.is_empty() {
            tokio::spawn(end(Arc::clone(node), leadership, what));
        }
    };
    spawn(Due::Sessions(sessions));
    spawn(Due::Waits(waits));
    spawn(Due::Callers(gone));
    spawn(Due::Delays(scopes));
}

/// What has run out.
enum Due {
    /// Sessions without keepalives.
    Sessions(Vec<SessionKey>),
    /// Waits whose time is over.
    Waits(Vec<WaitId>),
    /// Waits whose callers went away, granted or not.
    Callers(Vec<WaitId>),
    /// Lock delays that are over.
    Delays(Vec<Arc<str>>),
}

impl Due {
    fn is_empty(&self) -> bool {
        match self {
            Self::Sessions(sessions) => sessions.is_empty(),
            Self::Waits(waits) | Self::Callers(waits) => waits.is_empty(),
            Self::Delays(scopes) => scopes.is_empty(),
        }
    }

    fn commands(&self, node: &Node) -> Vec<Command> {
        let end_wait = |(session, request_id): &WaitId| Command::EndWait {
            session: *session,
            request_id: *request_id,
        };
        let state = node.state.read();
        match self {
            Self::Sessions(sessions) => sessions
                .iter()
                .map(|session| Command::Expire { session: *session })
                .collect(),
            Self::Waits(waits) => waits.iter().map(end_wait).collect(),
            // A grant that nobody has heard of is given back.
            Self::Callers(waits) => waits
                .iter()
                .map(|wait| match state.granted(wait.0, wait.1) {
                    Some(grant) => Command::Release {
                        scope: grant.scope,
                        session: grant.session,
                        epoch: grant.epoch,
                    },
                    None => end_wait(wait),
                })
                .collect(),
            Self::Delays(scopes) => scopes
                .iter()
                .filter_map(|name| {
                    let (scope, epoch) = state.delay(name)?;
                    Some(Command::EndDelay { scope, epoch })
                })
                .collect(),
        }
    }

    fn ended(self, node: &Node) {
        match self {
            Self::Sessions(sessions) => {
                let mut leases = node.leases();
                sessions.into_iter().for_each(|one| leases.ended(one));
            }
            Self::Waits(waits) => node.queues().ended(&waits),
            Self::Callers(waits) => node.queues().left(&waits),
            Self::Delays(scopes) => node.delays().ended(&scopes),
        }
    }

    fn failed(&self, node: &Node, leadership: Leadership) {
        // Under another leadership all of it begins anew.
        if node.serving() != Some(leadership) {
            return;
        }
        match self {
            Self::Sessions(sessions) => node.leases().expire_failed(leadership, sessions),
            Self::Waits(waits) => node.queues().end_failed(waits),
            Self::Callers(waits) => node.queues().leave_failed(waits),
            Self::Delays(scopes) => node.delays().failed(scopes),
        }
    }
}

/// Proposes ends in a batch of their own, stamped with the leadership whose clock they ran out by:
/// under any other leadership it is void, since only this one knows of its keepalives and callers.
async fn end(node: Arc<Node>, leadership: Leadership, due: Due) {
    let batch = Batch {
        leadership,
        wall_ms: clock::wall_ms(),
        commands: due.commands(&node),
    };
    if batch.commands.is_empty() {
        return due.ended(&node);
    }
    match node.consensus.write(&batch).await {
        Ok(Ok(_outcomes)) => due.ended(&node),
        Ok(Err(_)) | Err(_) => due.failed(&node, leadership),
    }
}
