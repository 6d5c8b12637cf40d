//! The leader's clockwork: leases follow the log, and sessions whose time has run out are expired.

use std::sync::Arc;
use std::time::Duration;

use epoch_machine::{Batch, Command, Leadership, SessionKey};
use tokio::sync::mpsc;

use super::Node;
use crate::clock;
use crate::raft::SessionEvent;

const TICK: Duration = Duration::from_millis(50);
/// Ticks further apart than this mean that the process was paused. Well below the silence after
/// which a paused leader is deposed anyway.
const GAP_MAX: Duration = Duration::from_millis(250);

/// Never ends.
pub(super) async fn run(node: Arc<Node>, mut events: mpsc::UnboundedReceiver<SessionEvent>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => node.leases().note(event, clock::boot()),
            _ = tick.tick() => expire_due(&node),
        }
    }
}

fn expire_due(node: &Arc<Node>) {
    let (leadership, due) = {
        let mut leases = node.leases();
        (leases.leadership(), leases.tick(clock::boot(), GAP_MAX))
    };
    if let (Some(leadership), false) = (leadership, due.is_empty()) {
        tokio::spawn(expire(Arc::clone(node), leadership, due));
    }
}

/// Proposes the expiries in a batch of their own, stamped with the leadership whose leases ran
/// out: under any other leadership it is void, since only this one knows of its keepalives.
async fn expire(node: Arc<Node>, leadership: Leadership, due: Vec<SessionKey>) {
    let commands = due
        .iter()
        .map(|session| Command::Expire { session: *session })
        .collect();
    let batch = Batch {
        leadership,
        wall_ms: clock::wall_ms(),
        commands,
    };
    match node.consensus.write(&batch).await {
        Ok(Ok(_outcomes)) => {
            let mut leases = node.leases();
            for session in due {
                leases.note(SessionEvent::Ended(session), clock::boot());
            }
        }
        Ok(Err(_)) | Err(_) => node.leases().expire_failed(leadership, &due),
    }
}
