//! Keeping the trust bundle as it should be: every node sees to its own keys, and the leader gathers
//! what the next bundle needs.
//!
//! The next bundle follows from the state and the time it is issued at, so each node that is asked to
//! sign makes it anew and signs what it made: what does not fit its own state gets no signature.

use std::sync::Arc;
use std::time::Duration;

use epoch_core::{Bundle, KeyId, KeyOffer, NodeId, Signature, SignedBundle, TextKind, error_chain};
use epoch_machine::{Batch, Command, Leadership, Outcome};
use epoch_proto::raft::{OfferKeyRequest, SignBundleRequest};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::Node;
use super::vouch::{own_vote, verified};
use crate::clock;

const INTERVAL: Duration = Duration::from_millis(250);
/// How long peers have to sign.
const SIGN_WITHIN: Duration = Duration::from_secs(2);

/// Never ends.
pub(super) async fn run(node: Arc<Node>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // What goes wrong is tried again, so it is said once.
    let mut said = None;
    loop {
        tick.tick().await;
        let why = tend(&node).await.err();
        if let Some(why) = why.as_ref().filter(|why| said.as_ref() != Some(*why)) {
            tracing::warn!(node = node.id, "trust: {why}");
        }
        said = why;
    }
}

async fn tend(node: &Arc<Node>) -> Result<(), String> {
    if !node.is_ready() {
        return Ok(());
    }
    node.keys
        .erase_spent(&node.state.read())
        .map_err(|error| error_chain(&error))?;
    if let Some(offer) = wanted_offer(node)? {
        offer_key(node, offer).await?;
    }
    if let Some(leadership) = node.serving() {
        renew_bundle(node, leadership).await?;
        let now_ms = clock::wall_ms();
        let is_late = node
            .state
            .read()
            .next_key_ms()
            .is_some_and(|at| at <= now_ms);
        if is_late {
            pass_time(node, leadership).await?;
        }
    }
    Ok(())
}

/// Moves the replicated time on where nothing else does: a key waits for it to be old enough.
async fn pass_time(node: &Node, leadership: Leadership) -> Result<(), String> {
    let batch = Batch {
        leadership,
        wall_ms: clock::wall_ms(),
        commands: Vec::new(),
    };
    match node.consensus.write(&batch).await {
        Ok(_applied) => Ok(()),
        Err(error) => Err(error_chain(&error)),
    }
}

/// What this node has to offer: a key that it was asked for, or one in place of those it has lost.
fn wanted_offer(node: &Node) -> Result<Option<KeyOffer>, String> {
    let state = node.state.read();
    let Some(bundle) = state.bundle() else {
        return Ok(None);
    };
    let offered = state.offered(node.id);
    let voter = node.keys.voter(&state);
    let is_wanted = state.is_rotation_wanted(node.id) || voter.is_none();
    let is_kept = |kid: KeyId| {
        let pending = node.keys.pending(&state);
        pending.is_some_and(|pending| pending.id() == kid)
    };
    if !is_wanted || offered.is_some_and(is_kept) {
        return Ok(None);
    }
    let pending = match node.keys.pending(&state) {
        Some(pending) => pending,
        None => node.keys.make().map_err(|error| error_chain(&error))?,
    };
    let terms = bundle.bundle().terms();
    let offer = pending.offer(terms.cluster, terms.incarnation, node.id, voter.as_deref());
    offer.map(Some).map_err(|error| error_chain(&error))
}

/// Has the leader propose it.
async fn offer_key(node: &Node, offer: KeyOffer) -> Result<(), String> {
    if node.serving().is_some() {
        return propose_offer(node, offer).await;
    }
    let leader = node.consensus.leader();
    let Some((leader, addresses)) = leader.filter(|(leader, _)| *leader != node.id) else {
        return Ok(());
    };
    let mut client = node
        .voucher(leader, &addresses.peer)
        .map_err(|error| error_chain(&error))?;
    let request = OfferKeyRequest {
        envelope: Some(node.consensus.envelope(leader)),
        offer: offer.to_text().to_owned(),
    };
    match tokio::time::timeout(SIGN_WITHIN, client.offer_key(request)).await {
        Ok(Ok(_taken)) => Ok(()),
        Ok(Err(status)) => Err(format!("the leader takes no key: {}", status.message())),
        Err(_elapsed) => Err("the leader has not answered the offer of a key".to_owned()),
    }
}

/// Proposes an offer, on the leader.
pub(super) async fn propose_offer(node: &Node, offer: KeyOffer) -> Result<(), String> {
    match node
        .proposer
        .propose(Command::OfferKey(Arc::new(offer)))
        .await
    {
        Ok(Outcome::KeyOffered) => Ok(()),
        Ok(other) => Err(format!("the offer of a key came to {other:?}")),
        Err(error) => Err(error_chain(&error)),
    }
}

/// Makes the next bundle if it is due, has a majority of nodes sign it, and proposes it.
async fn renew_bundle(node: &Arc<Node>, leadership: Leadership) -> Result<(), String> {
    let issued_at_s = clock::wall().as_secs();
    let (next, needed, nodes) = {
        let state = node.state.read();
        let Some(next) = state.due_bundle(issued_at_s) else {
            return Ok(());
        };
        let Some(current) = state.bundle() else {
            return Ok(());
        };
        (next, current.bundle().majority(), current.bundle().nodes())
    };
    let mut votes: Vec<(KeyId, Signature)> = Vec::new();
    votes.extend(own_vote(node, &next));
    let peers = node.consensus.view_now().members.into_iter();
    let peers = peers.filter(|(peer, _)| *peer != node.id && nodes.contains(peer));
    let mut asked: FuturesUnordered<_> = peers
        .map(|(peer, member)| {
            let (node, next) = (Arc::clone(node), &next);
            async move {
                let vote = ask_vote(&node, peer, &member.addresses.peer, next);
                tokio::time::timeout(SIGN_WITHIN, vote).await.ok().flatten()
            }
        })
        .collect();
    while votes.len() < needed
        && let Some(vote) = asked.next().await
    {
        votes.extend(vote);
    }
    drop(asked);
    if votes.len() < needed {
        return Err(format!(
            "bundle {} has {} of the {needed} signatures it needs",
            next.terms().sequence,
            votes.len()
        ));
    }
    if node.serving() != Some(leadership) {
        return Ok(());
    }
    let sequence = next.terms().sequence;
    let bundle =
        SignedBundle::from_parts(next.to_json(), votes).map_err(|error| error_chain(&error))?;
    let put = Command::PutBundle {
        by: None,
        bundle: Arc::new(bundle),
    };
    match node.proposer.propose(put).await {
        Ok(Outcome::BundlePut) => {
            tracing::info!(node = node.id, sequence, "trust bundle renewed");
            Ok(())
        }
        Ok(other) => Err(format!("bundle {sequence} came to {other:?}")),
        Err(error) => Err(error_chain(&error)),
    }
}

/// A peer's signature of the bundle, if it is one.
async fn ask_vote(
    node: &Node,
    peer: NodeId,
    address: &str,
    next: &Bundle,
) -> Option<(KeyId, Signature)> {
    let request = SignBundleRequest {
        envelope: Some(node.consensus.envelope(peer)),
        sequence: next.terms().sequence,
        issued_at_s: next.terms().issued_at_s,
    };
    match node.voucher(peer, address).ok()?.sign_bundle(request).await {
        Ok(vouched) => {
            let payload = next.to_json();
            verified(node, peer, TextKind::Bundle, &payload, vouched.get_ref())
        }
        Err(status) => {
            tracing::debug!(peer, "no signature: {}", status.message());
            None
        }
    }
}
