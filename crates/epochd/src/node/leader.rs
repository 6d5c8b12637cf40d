//! Taking up and giving up leadership.
//!
//! A leadership serves only once an empty batch of its own is applied and the state has a trust
//! bundle; leaderships are told apart by the whole leader id, never by role or term alone.

use std::sync::Arc;
use std::time::Duration;

use epoch_machine::{Batch, Leadership, Outcome};

use super::Node;
use crate::{clock, fatal};

/// A leader that cannot serve within so long makes room.
const SERVE_WITHIN: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_millis(50);

/// Never ends.
pub(super) async fn run(node: Arc<Node>) {
    let mut changes = node.consensus.changes();
    let mut current: Option<Leadership> = None;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = changes.wait() => {}
            _ = tick.tick() => {}
        }
        let view = node.consensus.view_now();
        if let Some(why) = view.fatal {
            fatal::stop(&format!(
                "the consensus core of node {} has ended: {why}",
                node.id
            ));
        }
        node.metrics.term.set(view.term as f64);
        if view.leading != current {
            if let Some(ended) = current {
                tracing::info!(node = node.id, term = ended.term, "no longer leading");
                give_up(&node);
            }
            if let Some(begun) = view.leading {
                tracing::info!(node = node.id, term = begun.term, "leading");
                tokio::spawn(take_up(Arc::clone(&node), begun));
            }
            current = view.leading;
        }
        if let Some(leadership) = current
            && !node.consensus.contact().may_speak(leadership)
        {
            give_up(&node);
            node.consensus.step_down(leadership).await;
        }
    }
}

fn give_up(node: &Node) {
    node.serving.send_replace(None);
    node.leases().end();
    node.queues().end();
    node.delays().end();
    node.metrics.is_leader.set(0.0);
}

/// Makes a leadership serve, or ends it.
async fn take_up(node: Arc<Node>, leadership: Leadership) {
    match tokio::time::timeout(SERVE_WITHIN, establish(&node, leadership)).await {
        Ok(()) => {}
        Err(_elapsed) => {
            tracing::warn!(
                node = node.id,
                term = leadership.term,
                "cannot serve within {SERVE_WITHIN:?}: stepping down"
            );
            while still_leads(&node, leadership) {
                node.consensus.step_down(leadership).await;
                tokio::time::sleep(RETRY).await;
            }
            return;
        }
    }
    if !still_leads(&node, leadership) {
        return;
    }
    {
        let state = node.state.read();
        let now = clock::boot();
        let sessions = state.sessions().map(|(key, session)| (key, session.ttl));
        node.leases().begin(leadership, now, sessions);
        node.queues().begin(state.index(), now, state.waits());
        node.delays().begin(now, state.delays());
    }
    node.serving.send_replace(Some(leadership));
    // The leadership may have ended just before: whoever ended it has not seen it serve.
    if !still_leads(&node, leadership) {
        give_up(&node);
        return;
    }
    node.metrics.is_leader.set(1.0);
    tracing::info!(node = node.id, term = leadership.term, "serving");
}

fn still_leads(node: &Node, leadership: Leadership) -> bool {
    node.consensus.leading() == Some(leadership)
}

/// Returns once an empty batch is applied, and what the seed begins with, or the leadership has
/// ended.
async fn establish(node: &Node, leadership: Leadership) {
    let mut commands = Vec::new();
    while still_leads(node, leadership) {
        let batch = Batch {
            leadership,
            wall_ms: clock::wall_ms(),
            commands: commands.clone(),
        };
        match node.consensus.write(&batch).await {
            Ok(Ok(outcomes)) => {
                if node.state.read().bundle().is_some() {
                    return;
                }
                for outcome in &outcomes {
                    if let Outcome::Refused(refusal) = outcome {
                        tracing::error!(%refusal, "what the seed begins with is refused");
                    }
                }
                commands = node.seed.first_commands();
            }
            Ok(Err(_)) | Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}
