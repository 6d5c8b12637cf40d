//! Pings everyone all the time, and lets the core campaign while a quorum has no leader.

use std::sync::Arc;
use std::time::Duration;

use super::Node;

const INTERVAL: Duration = Duration::from_millis(100);

/// Never ends.
pub(super) async fn run(node: Arc<Node>) {
    tokio::join!(ping_all(&node), node.consensus.keep_memory());
}

async fn ping_all(node: &Node) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut campaigning = false;
    loop {
        tick.tick().await;
        let view = node.consensus.view_now();
        node.consensus.contact().set_voters(view.voters());
        for (peer, member) in view.members {
            if peer != node.id {
                let consensus = node.consensus.clone();
                tokio::spawn(async move { consensus.ping(peer, &member.addresses.peer).await });
            }
        }
        let contact = node.consensus.contact();
        contact.report_lost();
        let allowed = contact.may_campaign();
        if allowed != campaigning {
            campaigning = allowed;
            tracing::debug!(allowed, "campaigning");
            node.consensus.set_campaigning(allowed);
        }
        if allowed && contact.may_initialize() {
            node.consensus.initialize_if_new().await;
        }
    }
}
