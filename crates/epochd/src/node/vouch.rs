//! What a node signs at another's request: only what it finds in its own state.

use std::sync::Arc;
use std::time::Duration;

use epoch_core::{
    Bundle, Claims, GrantHash, KeyId, KeyOffer, NodeId, Signature, SigningKey, TextKind,
    Thumbprint, error_chain,
};
use epoch_machine::{CERTIFICATE_LIFE_S, State};
use epoch_proto::raft::vouch_service_server::VouchService;
use epoch_proto::raft::{
    CertifyByPeerRequest, Envelope, OfferKeyRequest, OfferKeyResponse, SignBundleRequest, Vouched,
};
use tonic::{Request, Response, Status};

use super::{Node, trust};
use crate::clock;
use crate::tls::PeerName;

/// How far the asking node's clock may be from this one's, in seconds.
const CLOCKS_APART_S_MAX: u64 = 30;
/// How long this node's state may take to come to a grant.
const BEHIND_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Serves peers.
#[derive(Debug, Clone)]
pub(crate) struct Voucher(pub(crate) Arc<Node>);

impl Voucher {
    fn open(
        &self,
        sender: Option<&PeerName>,
        envelope: Option<Envelope>,
    ) -> Result<Envelope, Status> {
        let envelope = envelope.ok_or_else(|| Status::invalid_argument("no envelope"))?;
        self.0.consensus.check_from(sender, &envelope)?;
        if self.0.consensus.contact().own_loss().is_some() {
            return Err(Status::failed_precondition("this node has lost its state"));
        }
        Ok(envelope)
    }
}

#[tonic::async_trait]
impl VouchService for Voucher {
    async fn certify(
        &self,
        request: Request<CertifyByPeerRequest>,
    ) -> Result<Response<Vouched>, Status> {
        let (sender, message) = taken(request);
        let CertifyByPeerRequest { envelope, payload } = message;
        self.open(sender.as_ref(), envelope)?;
        let node = &self.0;
        let claims = Claims::from_json(node.seed.cluster_id, &payload)
            .map_err(|error| Status::invalid_argument(error_chain(&error)))?;
        if claims.to_json() != payload {
            return Err(Status::invalid_argument(
                "the payload is not in its usual form",
            ));
        }
        check_times(&claims)?;
        let until = tokio::time::Instant::now() + BEHIND_MAX;
        while node.state.read().index() < claims.position().index {
            if tokio::time::Instant::now() >= until {
                return Err(Status::unavailable("this node is behind the grant"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let state = node.state.read();
        if !is_granted(&state, &claims) && !is_revoked(node, &claims) {
            let why = "this node's state has no such grant";
            return Err(Status::failed_precondition(why));
        }
        let signer = node.keys.signer(&state).ok_or_else(no_key)?;
        drop(state);
        Ok(Response::new(vouched(
            &signer,
            TextKind::Certificate,
            &payload,
        )))
    }

    async fn sign_bundle(
        &self,
        request: Request<SignBundleRequest>,
    ) -> Result<Response<Vouched>, Status> {
        let (sender, message) = taken(request);
        let SignBundleRequest {
            envelope,
            sequence,
            issued_at_s,
        } = message;
        self.open(sender.as_ref(), envelope)?;
        if clock::wall().as_secs().abs_diff(issued_at_s) > CLOCKS_APART_S_MAX {
            return Err(Status::failed_precondition("our clocks differ too much"));
        }
        let node = &self.0;
        let state = node.state.read();
        let next = state
            .due_bundle(issued_at_s)
            .filter(|next| next.terms().sequence == sequence)
            .ok_or_else(|| Status::failed_precondition("no such bundle is due here"))?;
        let voter = node.keys.voter(&state).ok_or_else(no_key)?;
        Ok(Response::new(vouched(
            &voter,
            TextKind::Bundle,
            &next.to_json(),
        )))
    }

    async fn offer_key(
        &self,
        request: Request<OfferKeyRequest>,
    ) -> Result<Response<OfferKeyResponse>, Status> {
        let (sender, message) = taken(request);
        let OfferKeyRequest { envelope, offer } = message;
        let envelope = self.open(sender.as_ref(), envelope)?;
        let offer = KeyOffer::parse(&offer)
            .map_err(|error| Status::invalid_argument(error_chain(&error)))?;
        if offer.node() != envelope.from {
            return Err(Status::permission_denied("a node offers its own keys only"));
        }
        if self.0.serving().is_none() {
            return Err(Status::unavailable("this node does not lead any more"));
        }
        let proposed = trust::propose_offer(&self.0, offer).await;
        proposed.map_err(Status::unavailable)?;
        Ok(Response::new(OfferKeyResponse {}))
    }
}

/// A message, and whose certificate it came under.
fn taken<T>(request: Request<T>) -> (Option<PeerName>, T) {
    (request.extensions().get().copied(), request.into_inner())
}

fn no_key() -> Status {
    Status::unavailable("this node has no key that signs yet")
}

fn vouched(key: &SigningKey, kind: TextKind, payload: &str) -> Vouched {
    Vouched {
        kid: key.id().to_string(),
        signature: key.signature(kind, payload).to_vec().into(),
    }
}

/// A peer's signature of a payload, if it is a good one by a key of that peer in the bundle of now: a
/// bad one would void all the others.
pub(crate) fn verified(
    node: &Node,
    peer: NodeId,
    kind: TextKind,
    payload: &str,
    vouched: &Vouched,
) -> Option<(KeyId, Signature)> {
    let kid: KeyId = vouched.kid.parse().ok()?;
    let signature = Signature::try_from(vouched.signature.as_ref()).ok()?;
    let state = node.state.read();
    let key = state.bundle()?.bundle().find(kid)?;
    let holds = key.node == peer && key.key.has_signed(kind, payload, &signature);
    holds.then_some((kid, signature))
}

/// This node's own signature of the next bundle.
pub(super) fn own_vote(node: &Node, next: &Bundle) -> Option<(KeyId, Signature)> {
    let voter = node.keys.voter(&node.state.read())?;
    Some((
        voter.id(),
        voter.signature(TextKind::Bundle, &next.to_json()),
    ))
}

/// The times come with the request: no earlier and no later than an honest node would say.
fn check_times(claims: &Claims) -> Result<(), Status> {
    let validity = claims.validity();
    let apart = clock::wall().as_secs().abs_diff(validity.issued_at_s);
    let life = validity.expires_at_s.saturating_sub(validity.issued_at_s);
    if apart > CLOCKS_APART_S_MAX {
        return Err(Status::failed_precondition("our clocks differ too much"));
    }
    if life > CERTIFICATE_LIFE_S {
        return Err(Status::invalid_argument("no certificate lives so long"));
    }
    Ok(())
}

/// Whether the claims are those of an epoch that was burnt a moment ago.
fn is_revoked(node: &Node, claims: &Claims) -> bool {
    let index = claims.position().index;
    claims.grant().is_none()
        && claims.incarnation() == node.seed.incarnation
        && node
            .watches
            .has_revoked(claims.scope(), claims.epoch(), index)
}

/// Whether the claims are those of a current grant. The audience is its holder's to choose.
fn is_granted(state: &State, claims: &Claims) -> bool {
    let (Some(named), Some(grant)) = (claims.grant(), state.held(claims.scope())) else {
        return false;
    };
    let holder_key = state
        .session(&grant.session)
        .and_then(|session| session.holder_key);
    claims.incarnation() == state.incarnation()
        && claims.epoch() == grant.epoch
        && claims.position() == grant.position
        && named.holder == grant.holder
        && named.hash == GrantHash::of(&grant.session, grant.request_id)
        && claims.confirmation() == holder_key.map(Thumbprint::from_bytes)
}
