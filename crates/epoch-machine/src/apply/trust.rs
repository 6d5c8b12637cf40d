//! Trust bundles, and the keys that are to be in the next ones.

use std::sync::Arc;

use epoch_core::{KeyId, KeyOffer, NodeId, Pin, Principal, SignedBundle, Statement, StatementKind};

use super::Applying;
use crate::admin::{AdminKey, AdminRow, Offer, Retired};
use crate::audit::AuditAction;
use crate::outcome::{Outcome, Refusal};
use crate::state::{BUNDLES_MAX, KEYS_OF_NODE_MAX, RETIRED_KEPT};

impl Applying<'_> {
    /// Its signatures say whether it counts; `by` is who brought it, where an operator did.
    pub(super) fn put_bundle(
        &mut self,
        by: Option<&Principal>,
        bundle: &Arc<SignedBundle>,
    ) -> Result<Outcome, Refusal> {
        let terms = bundle.bundle().terms();
        let (sequence, by_root) = (terms.sequence, bundle.names_signer(terms.root.id()));
        let came = self.put_bundle_unaudited(bundle, by_root);
        if !by_root {
            return came;
        }
        let target = format!("bundle {sequence}, signed by the root key");
        self.audited(by, AuditAction::BundlePut, &target, came)
    }

    fn put_bundle_unaudited(
        &mut self,
        bundle: &Arc<SignedBundle>,
        by_root: bool,
    ) -> Result<Outcome, Refusal> {
        let state = &mut *self.state;
        let terms = bundle.bundle().terms();
        if (terms.cluster, terms.incarnation) != (state.cluster_id, state.incarnation) {
            return Err(Refusal::BundleInvalid);
        }
        let fits = match state.bundle() {
            Some(current) if current == &**bundle => return Ok(Outcome::BundlePut),
            Some(current) => {
                let current = current.bundle();
                bundle.check_successor(current, &current.terms().root)
            }
            None => bundle.check_first(&terms.root),
        };
        fits.map_err(|_untrusted| Refusal::BundleInvalid)?;
        if by_root {
            // The chain begins anew: what is before it leads nowhere any more.
            let old: Vec<_> = state.bundle_keys().collect();
            for key in old {
                state.rows.remove_admin(&key);
            }
        } else if state.bundle_keys().count() >= BUNDLES_MAX {
            return Err(Refusal::BundleLimit);
        }
        let left = state.bundle().map(|current| {
            let keys = current.bundle().keys().iter().map(|key| key.key.id());
            let gone = keys.filter(|kid| bundle.bundle().find(*kid).is_none());
            gone.collect::<Vec<_>>()
        });
        for key in bundle.bundle().keys() {
            if state
                .offer(key.node)
                .is_some_and(|offer| offer.key == key.key)
            {
                state.rows.remove_admin(&AdminKey::Offer(key.node));
            }
        }
        state.add_admin(AdminRow::Bundle(Arc::clone(bundle)));
        for kid in left.unwrap_or_default() {
            self.note_retired(kid);
        }
        Ok(Outcome::BundlePut)
    }

    /// A key that has left the bundle never comes back by an offer, and its private half is erased.
    fn note_retired(&mut self, kid: KeyId) {
        if self.state.is_retired(kid) {
            return;
        }
        while self.state.retired().count() >= RETIRED_KEPT {
            let oldest = self.state.retired().min_by_key(|retired| retired.time_ms);
            let Some(oldest) = oldest.map(|retired| retired.kid) else {
                break;
            };
            self.state.rows.remove_admin(&AdminKey::Retired(oldest));
        }
        let time_ms = self.state.now_ms;
        self.state
            .add_admin(AdminRow::Retired(Retired { kid, time_ms }));
    }

    pub(super) fn offer_key(&mut self, offer: &Arc<KeyOffer>) -> Result<Outcome, Refusal> {
        let state = &mut *self.state;
        let current = state.bundle().ok_or(Refusal::OfferInvalid)?.bundle();
        let (node, key) = (offer.node(), offer.key());
        if current.find(key.id()).is_some() {
            return Ok(Outcome::KeyOffered);
        }
        let endorsed = offer
            .check(current, |kid| !state.is_retired(kid))
            .map_err(|_untrusted| Refusal::OfferInvalid)?;
        // Without being asked, a node may only ask for the operator's help.
        let endorsed = endorsed && state.is_rotation_wanted(node);
        if state.is_retired(key.id()) || *key == current.terms().root {
            return Err(Refusal::OfferInvalid);
        }
        let kept = state.offer(node);
        if kept.is_some_and(|kept| kept.endorsed && !endorsed) {
            return Err(Refusal::OfferInvalid);
        }
        state.rows.remove_admin(&AdminKey::Rotation(node));
        state.add_admin(AdminRow::Offer(Offer {
            node,
            key: key.clone(),
            endorsed,
        }));
        Ok(Outcome::KeyOffered)
    }

    pub(super) fn rotate_keys(
        &mut self,
        by: Option<&Principal>,
        node: Option<NodeId>,
    ) -> Result<Outcome, Refusal> {
        let came = self.rotate_keys_unaudited(by, node);
        let target = node.map_or("all nodes".to_owned(), |node| format!("node {node}"));
        self.audited(by, AuditAction::KeyRotate, &target, came)
    }

    fn rotate_keys_unaudited(
        &mut self,
        by: Option<&Principal>,
        node: Option<NodeId>,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let state = &mut *self.state;
        let current = state.bundle().ok_or(Refusal::NodeUnknown)?.bundle();
        let nodes: Vec<_> = match node {
            None => current.nodes().into_iter().collect(),
            Some(node) if current.nodes().contains(&node) => vec![node],
            Some(_) => return Err(Refusal::NodeUnknown),
        };
        let full = |node: &NodeId| current.keys_of(*node).count() >= KEYS_OF_NODE_MAX;
        if nodes.iter().any(full) {
            return Err(Refusal::KeyLimit);
        }
        for node in &nodes {
            // One that is on its way is as good as another.
            if !state.offer(*node).is_some_and(|offer| offer.endorsed) {
                state.add_admin(AdminRow::Rotation(*node));
            }
        }
        Ok(Outcome::RotationWanted { nodes })
    }

    pub(super) fn retire_key(
        &mut self,
        by: Option<&Principal>,
        kid: KeyId,
    ) -> Result<Outcome, Refusal> {
        let came = self.retire_key_unaudited(by, kid);
        self.audited(by, AuditAction::KeyRetire, &kid.to_string(), came)
    }

    fn retire_key_unaudited(
        &mut self,
        by: Option<&Principal>,
        kid: KeyId,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let state = &mut *self.state;
        let current = state.bundle().ok_or(Refusal::KeyUnknown)?.bundle();
        if state.is_retired(kid) {
            return Ok(Outcome::KeyRetired { retired: false });
        }
        let offered = state.offers().find(|offer| offer.key.id() == kid);
        let offered = offered.map(|offer| offer.node);
        if offered.is_none() && current.find(kid).is_none() {
            return Err(Refusal::KeyUnknown);
        }
        // The next bundle needs a key to name, and this one's keys to sign it.
        let stays = |id: KeyId| id != kid && !state.is_retired(id);
        if offered.is_none() && !current.keys().iter().any(|key| stays(key.key.id())) {
            return Err(Refusal::LastKey);
        }
        if let Some(node) = offered {
            state.rows.remove_admin(&AdminKey::Offer(node));
        }
        self.note_retired(kid);
        Ok(Outcome::KeyRetired { retired: true })
    }

    pub(super) fn put_statement(
        &mut self,
        by: Option<&Principal>,
        text: &Arc<str>,
    ) -> Result<Outcome, Refusal> {
        let verified = self.statement(text);
        let target = match verified.as_ref().map(Statement::kind) {
            Ok(StatementKind::Clock) => "clock".to_owned(),
            Ok(StatementKind::MaxFuture { seconds }) => format!("max_future of {seconds} s"),
            Err(_) => "a statement".to_owned(),
        };
        let came = verified.map(|statement| {
            let topic = statement.kind().into();
            let text = Arc::clone(text);
            self.state.add_admin(AdminRow::Statement { topic, text });
            Outcome::StatementPut
        });
        self.audited(by, AuditAction::StatementPut, &target, came)
    }

    fn statement(&self, text: &str) -> Result<Statement, Refusal> {
        let bundle = self.state.bundle().ok_or(Refusal::StatementInvalid)?;
        let pin = Pin {
            cluster: self.state.cluster_id,
            root: bundle.bundle().terms().root.clone(),
        };
        Statement::verify(text, &pin, self.state.now_ms)
            .map_err(|_invalid| Refusal::StatementInvalid)
    }
}
