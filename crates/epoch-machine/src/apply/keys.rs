//! The signing keys that are to be in the next trust bundle, and those that are not.

use epoch_core::{Bundle, KeyId, KeyOffer, NodeId, Principal};

use super::Applying;
use crate::admin::{AdminKey, AdminRow, Offer, Retired};
use crate::audit::AuditAction;
use crate::outcome::{Outcome, Refusal};
use crate::state::{KEYS_OF_NODE_MAX, OFFERS_MAX, RETIRED_KEPT};

impl Applying<'_> {
    pub(super) fn offer_key(&mut self, offer: &KeyOffer) -> Result<Outcome, Refusal> {
        let state = &*self.state;
        let current = state.bundle().ok_or(Refusal::OfferInvalid)?.bundle();
        let (node, key) = (offer.node(), offer.key());
        if current.find(key.id()).is_some() {
            return Ok(Outcome::KeyOffered);
        }
        let endorsed = offer
            .check(current, |kid| !state.is_retired(kid))
            .map_err(|_untrusted| Refusal::OfferInvalid)?;
        // Without being asked, a node may only ask for the operator's help: who has stolen a key
        // cannot have it replaced whenever he likes.
        let endorsed = endorsed && state.is_rotation_wanted(node);
        if state.is_retired(key.id()) || *key == current.terms().root {
            return Err(Refusal::OfferInvalid);
        }
        let of_another = |kept: &Offer| kept.node != node && kept.key == *key;
        if state.offers().any(of_another) {
            return Err(Refusal::OfferInvalid);
        }
        match state.offer(node) {
            // What was asked for has come.
            Some(kept) if kept.endorsed && kept.key == *key => return Ok(Outcome::KeyOffered),
            Some(kept) if kept.endorsed => return Err(Refusal::OfferInvalid),
            Some(_) => {}
            None => self.make_room_for_offer(node)?,
        }
        if endorsed {
            self.state.rows.remove_admin(&AdminKey::Rotation(node));
        }
        self.state.add_admin(AdminRow::Offer(Offer {
            node,
            key: key.clone(),
            endorsed,
        }));
        Ok(Outcome::KeyOffered)
    }

    /// Offers of nodes in the bundle always have room: others', of which there may be any number,
    /// make way.
    fn make_room_for_offer(&mut self, node: NodeId) -> Result<(), Refusal> {
        let state = &mut *self.state;
        if state.offers().count() < OFFERS_MAX {
            return Ok(());
        }
        let nodes = state.bundle().map(|current| current.bundle().nodes());
        let nodes = nodes.unwrap_or_default();
        if !nodes.contains(&node) {
            return Err(Refusal::OfferLimit);
        }
        let others = state.offers().map(|offer| offer.node);
        if let Some(last) = others.filter(|node| !nodes.contains(node)).max() {
            state.rows.remove_admin(&AdminKey::Offer(last));
        }
        Ok(())
    }

    /// After another bundle has come: drops what it has done or voided. Offers that the root key
    /// has passed over were endorsed under keys that it may have passed over, too, so these nodes
    /// are asked again.
    pub(super) fn settle_offers(&mut self, before: Option<&Bundle>, by_root: bool) {
        let state = &mut *self.state;
        let Some(current) = state.bundle().cloned() else {
            return;
        };
        let current = current.bundle();
        let offers: Vec<_> = state.offers().cloned().collect();
        for offer in offers {
            let taken = current.find(offer.key.id()).is_some();
            if taken || (by_root && offer.endorsed) {
                state.rows.remove_admin(&AdminKey::Offer(offer.node));
            }
            if !taken && by_root && offer.endorsed {
                state.add_admin(AdminRow::Rotation(offer.node));
            }
        }
        let is_new = |kid| before.is_none_or(|before| before.find(kid).is_none());
        let rotations: Vec<_> = state.rotations().collect();
        for node in rotations {
            let mut keys = current.keys_of(node);
            let done = keys.any(|key| is_new(key.key.id()));
            let may_have_more = (1..KEYS_OF_NODE_MAX).contains(&current.keys_of(node).count());
            if done || !may_have_more {
                state.rows.remove_admin(&AdminKey::Rotation(node));
            }
        }
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
        if let Some(node) = offered.map(|offer| offer.node) {
            state.rows.remove_admin(&AdminKey::Offer(node));
        } else if current.find(kid).is_none() {
            return Err(Refusal::KeyUnknown);
        } else {
            // Retired keys sign no bundle, and it takes a majority of this one's nodes.
            let kids = current.keys().iter().map(|key| key.key.id());
            let stay = kids.filter(|id| *id != kid && !state.is_retired(*id));
            if current.nodes_among(stay) < current.majority() {
                return Err(Refusal::LastKey);
            }
        }
        self.note_retired(kid);
        Ok(Outcome::KeyRetired { retired: true })
    }

    /// A retired key never comes back by an offer, and its private half is erased.
    pub(super) fn note_retired(&mut self, kid: KeyId) {
        let state = &mut *self.state;
        if state.is_retired(kid) {
            return;
        }
        if state.retired().count() >= RETIRED_KEPT {
            // One that is still in the bundle would be as good as new.
            let current = state.bundle().map(|current| current.bundle());
            let in_bundle = |kid| current.is_some_and(|current| current.find(kid).is_some());
            let gone = state.retired().filter(|retired| !in_bundle(retired.kid));
            let oldest = gone.min_by_key(|retired| (retired.time_ms, retired.kid));
            if let Some(oldest) = oldest {
                state.rows.remove_admin(&AdminKey::Retired(oldest.kid));
            }
        }
        let time_ms = state.now_ms;
        state.add_admin(AdminRow::Retired(Retired { kid, time_ms }));
    }
}
