//! Certificates, signed after the grant is applied: by the node that leads, by a peer in its place
//! while its own key is too young, or by several.

use std::time::Duration;

use epoch_core::{
    Claims, Fence, GrantHash, KeyId, NodeId, Position, Reason, Scope, Signature, TextKind,
    Thumbprint, Validity, compose,
};
use epoch_machine::{CERTIFICATE_LIFE_S, Grant};
use epoch_proto::raft::CertifyByPeerRequest;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use uuid::Uuid;

use super::failure::Failure;
use crate::clock;
use crate::node::{Node, verified};

/// How long peers have to sign.
const SIGN_WITHIN: Duration = Duration::from_secs(3);

/// The certificate of a current grant, signed by so many nodes.
pub(super) async fn grant(
    node: &Node,
    grant: &Grant,
    audience: &[String],
    signatures: usize,
) -> Result<String, Failure> {
    let holder = epoch_core::Grant {
        holder: grant.holder.clone(),
        hash: GrantHash::of(&grant.session, grant.request_id),
    };
    let fence = Fence {
        incarnation: node.seed.incarnation,
        epoch: grant.epoch,
        position: grant.position,
        grant: Some(holder),
    };
    let holder_key = {
        let state = node.state.read();
        let session = state.session(&grant.session);
        session.and_then(|session| session.holder_key)
    };
    let mut claims = claims(node, &grant.scope, fence)
        .and_then(|claims| claims.with_audiences(audience.to_vec()))
        .map_err(internal)?;
    if let Some(key) = holder_key {
        claims = claims.with_confirmation(Thumbprint::from_bytes(key));
    }
    sign(node, &claims, signatures).await
}

/// The certificate of an epoch that nobody holds: good for barriers only.
pub(super) async fn holderless(
    node: &Node,
    scope: &Scope,
    epoch: epoch_core::Epoch,
    position: Position,
    signatures: usize,
) -> Result<String, Failure> {
    let fence = Fence {
        incarnation: node.seed.incarnation,
        epoch,
        position,
        grant: None,
    };
    let claims = claims(node, scope, fence).map_err(internal)?;
    sign(node, &claims, signatures).await
}

fn internal(error: epoch_core::ClaimsError) -> Failure {
    Failure::new(Reason::Internal, error)
}

fn claims(node: &Node, scope: &Scope, fence: Fence) -> Result<Claims, epoch_core::ClaimsError> {
    let issued_at_s = clock::wall().as_secs();
    let validity = Validity {
        issued_at_s,
        expires_at_s: issued_at_s.saturating_add(CERTIFICATE_LIFE_S),
        jti: Uuid::now_v7().to_string(),
    };
    Claims::new(node.seed.cluster_id, scope.clone(), fence, validity)
}

/// Signed by this node if it has a key that signs, and by as many others as it takes.
async fn sign(node: &Node, claims: &Claims, wanted: usize) -> Result<String, Failure> {
    node.metrics.certificates.increment(1);
    let signer = node.keys.signer(&node.state.read());
    if wanted == 1
        && let Some(signer) = &signer
    {
        return signer.sign(claims).map_err(internal);
    }
    let payload = claims.to_json();
    let mut parts: Vec<(KeyId, Signature)> = Vec::with_capacity(wanted);
    if let Some(signer) = &signer {
        parts.push((
            signer.id(),
            signer.signature(TextKind::Certificate, &payload),
        ));
    }
    let members = node.consensus.view_now().members.into_iter();
    let mut asked: FuturesUnordered<_> = members
        .filter(|(peer, _)| *peer != node.id)
        .map(|(peer, member)| {
            let payload = &payload;
            async move {
                let asking = ask(node, peer, &member.addresses.peer, payload);
                tokio::time::timeout(SIGN_WITHIN, asking)
                    .await
                    .ok()
                    .flatten()
            }
        })
        .collect();
    while parts.len() < wanted
        && let Some(part) = asked.next().await
    {
        parts.extend(part);
    }
    if parts.len() < wanted {
        return Err(Failure::new(
            Reason::NoQuorum,
            format_args!(
                "{} of {wanted} nodes signed the certificate; the grant itself is made",
                parts.len()
            ),
        ));
    }
    compose(TextKind::Certificate, &payload, &parts)
        .map_err(|error| Failure::new(Reason::Internal, error))
}

/// A peer's signature of the payload, if it is one.
async fn ask(
    node: &Node,
    peer: NodeId,
    address: &str,
    payload: &str,
) -> Option<(KeyId, Signature)> {
    let request = CertifyByPeerRequest {
        envelope: Some(node.consensus.envelope(peer)),
        payload: payload.to_owned(),
    };
    match node.voucher(peer, address).ok()?.certify(request).await {
        Ok(vouched) => verified(
            node,
            peer,
            TextKind::Certificate,
            payload,
            vouched.get_ref(),
        ),
        Err(status) => {
            tracing::debug!(peer, "no signature: {}", status.message());
            None
        }
    }
}
