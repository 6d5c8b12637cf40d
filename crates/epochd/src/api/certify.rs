//! Certificates, signed by the node that leads, after the grant is applied.

use epoch_core::{Claims, Fence, GrantHash, Position, Scope, Validity};
use epoch_machine::Grant;
use uuid::Uuid;

use super::failure::Failure;
use crate::clock;
use crate::node::Node;

/// A certificate's life: hygiene, not the fence; the holder asks for a fresh one.
const CERTIFICATE_SECONDS: u64 = 12 * 3_600;

/// The certificate of a current grant.
pub(super) fn grant(node: &Node, grant: &Grant, audience: &[String]) -> Result<String, Failure> {
    let holder = epoch_core::Grant {
        holder: grant.holder.clone(),
        hash: GrantHash::of(&grant.session, grant.request_id),
    };
    sign(
        node,
        &grant.scope,
        grant.epoch,
        grant.position,
        Some(holder),
        audience,
    )
}

/// The certificate of an epoch that nobody holds: good for barriers only.
pub(super) fn holderless(
    node: &Node,
    scope: &Scope,
    epoch: epoch_core::Epoch,
    position: Position,
) -> Result<String, Failure> {
    sign(node, scope, epoch, position, None, &[])
}

fn sign(
    node: &Node,
    scope: &Scope,
    epoch: epoch_core::Epoch,
    position: Position,
    grant: Option<epoch_core::Grant>,
    audience: &[String],
) -> Result<String, Failure> {
    let issued_at_s = clock::wall().as_secs();
    let validity = Validity {
        issued_at_s,
        expires_at_s: issued_at_s.saturating_add(CERTIFICATE_SECONDS),
        jti: Uuid::now_v7().to_string(),
    };
    let fence = Fence {
        incarnation: node.seed.incarnation,
        epoch,
        position,
        grant,
    };
    let token = Claims::new(node.seed.cluster_id, scope.clone(), fence, validity)
        .and_then(|claims| claims.with_audiences(audience.to_vec()))
        .and_then(|claims| node.key.sign(&claims))
        .map_err(|error| Failure::new(epoch_core::Reason::Internal, error))?;
    node.metrics.certificates.increment(1);
    Ok(token)
}
