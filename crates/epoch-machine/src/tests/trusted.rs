//! Whose keys are in the bundle, followed by commands and answers alone: a second opinion on what
//! may bring one in.

use std::collections::{BTreeMap, BTreeSet};

use epoch_core::{Bundle, KeyId, KeyOffer, NodeId, SignedBundle, TextKind};

use crate::command::{Batch, Command};
use crate::outcome::{Outcome, Refusal};
use crate::state::State;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trusted {
    /// The newest one.
    bundle: Option<Bundle>,
    /// Keys that were retired, or have left the bundle: more of them than the state remembers.
    gone: BTreeSet<KeyId>,
    /// Nodes that operators have asked for keys since they brought one.
    asked: BTreeSet<NodeId>,
    /// Keys that nodes brought when asked.
    brought: BTreeMap<NodeId, KeyId>,
}

impl Trusted {
    pub(super) fn of(state: &State) -> Self {
        let brought = state.offers().filter(|offer| offer.endorsed);
        Self {
            bundle: state.bundle().map(|newest| newest.bundle().clone()),
            gone: state.retired().map(|retired| retired.kid).collect(),
            asked: state.rotations().collect(),
            brought: brought.map(|offer| (offer.node, offer.key.id())).collect(),
        }
    }

    /// Takes over what was done, as long as it is what may have been done.
    pub(super) fn follow(
        &mut self,
        after: &State,
        batch: &Batch,
        outcomes: &[Outcome],
    ) -> Result<(), String> {
        for (command, outcome) in batch.commands.iter().zip(outcomes) {
            self.learn(command, outcome)
                .map_err(|why| format!("{why}: {command:?} came to {outcome:?}"))?;
        }
        let of_after = Self::of(after);
        let same = self.bundle == of_after.bundle
            && self.asked == of_after.asked
            && self.brought == of_after.brought
            && of_after.gone.is_subset(&self.gone);
        if same {
            Ok(())
        } else {
            Err(format!("{self:?} was answered, and it is {of_after:?}"))
        }
    }

    fn learn(&mut self, command: &Command, outcome: &Outcome) -> Result<(), String> {
        match (command, outcome) {
            (Command::PutBundle { bundle, .. }, Outcome::BundlePut) => self.put(bundle)?,
            (Command::OfferKey(offer), Outcome::KeyOffered) => self.offered(offer),
            (Command::RotateKeys { .. }, Outcome::RotationWanted { nodes }) => {
                let without = |node: &&NodeId| !self.brought.contains_key(node);
                self.asked.extend(nodes.iter().filter(without));
            }
            (Command::RetireKey { kid, .. }, Outcome::KeyRetired { retired }) => {
                if *retired == self.gone.contains(kid) {
                    return Err("it was retired before, or was not".to_owned());
                }
                self.gone.insert(*kid);
                self.brought.retain(|_, brought| brought != kid);
                self.can_go_on()?;
            }
            (Command::RetireKey { kid, .. }, Outcome::Refused(Refusal::LastKey)) => {
                let without = Self {
                    gone: self.gone.iter().chain([kid]).copied().collect(),
                    bundle: self.bundle.clone(),
                    ..Self::default()
                };
                if without.can_go_on().is_ok() {
                    return Err("it was not needed".to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether enough nodes are left to sign the next bundle.
    fn can_go_on(&self) -> Result<(), String> {
        let Some(bundle) = &self.bundle else {
            return Ok(());
        };
        let kids = bundle.keys().iter().map(|key| key.key.id());
        let nodes = bundle.nodes_among(kids.filter(|kid| !self.gone.contains(kid)));
        if nodes * 2 > bundle.nodes().len() {
            Ok(())
        } else {
            Err("nobody could sign the next bundle".to_owned())
        }
    }

    fn offered(&mut self, offer: &KeyOffer) {
        let Some(bundle) = &self.bundle else {
            return;
        };
        let (node, kid) = (offer.node(), offer.key().id());
        let endorsed = offer.check(bundle, |kid| !self.gone.contains(&kid)) == Ok(true);
        if endorsed && bundle.find(kid).is_none() && self.asked.remove(&node) {
            self.brought.insert(node, kid);
        }
    }

    fn put(&mut self, signed: &SignedBundle) -> Result<(), String> {
        let new = signed.bundle();
        let is_new = |before: &Bundle| new.rank() > before.rank();
        if !self.bundle.as_ref().is_none_or(is_new) {
            return Ok(());
        }
        let has_signed = |(kid, signature): &(KeyId, [u8; 64]), by: &Bundle| {
            let key = by.find(*kid);
            key.is_some_and(|by| {
                let payload = signed.payload();
                by.key.has_signed(TextKind::Bundle, payload, signature)
            })
        };
        let root = &new.terms().root;
        let by_root = signed.signatures().iter().any(|(kid, signature)| {
            *kid == root.id() && root.has_signed(TextKind::Bundle, signed.payload(), signature)
        });
        let before = self.bundle.replace(new.clone());
        let before_kids = before.iter().flat_map(Bundle::keys).map(|key| key.key.id());
        let left: Vec<_> = before_kids.filter(|kid| new.find(*kid).is_none()).collect();
        match &before {
            Some(before) if !by_root => {
                let good = signed.signatures().iter();
                let good = good.filter(|one| has_signed(one, before));
                if before.nodes_among(good.map(|(kid, _)| *kid)) * 2 <= before.nodes().len() {
                    return Err("too few nodes signed it".to_owned());
                }
                for key in new.keys() {
                    let kid = key.key.id();
                    let known = before.find(kid) == Some(key);
                    if self.gone.contains(&kid) {
                        return Err(format!("{kid} is retired"));
                    }
                    if !known && self.brought.remove(&key.node) != Some(kid) {
                        return Err(format!("{kid} was never brought by node {}", key.node));
                    }
                }
            }
            Some(before) => {
                if root != &before.terms().root {
                    return Err("another root signed it".to_owned());
                }
                // What was brought and passed over is to be brought again.
                let passed = std::mem::take(&mut self.brought).into_iter();
                let passed = passed.filter(|(_, kid)| new.find(*kid).is_none());
                self.asked.extend(passed.map(|(node, _)| node));
            }
            None if !by_root => return Err("the root did not sign it".to_owned()),
            None => {}
        }
        self.gone.extend(left);
        self.asked.retain(|node| {
            let keys: Vec<_> = new.keys_of(*node).map(|key| key.key.id()).collect();
            let known = |kid: &KeyId| before.as_ref().is_some_and(|it| it.find(*kid).is_some());
            (1..3).contains(&keys.len()) && keys.iter().all(known)
        });
        Ok(())
    }
}
