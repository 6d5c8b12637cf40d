//! What the rare rows say of signing keys: the bundles, what is to be in the next one, and what the
//! next one is.

use std::collections::{BTreeMap, BTreeSet};

use epoch_core::{
    BUNDLE_KEYS_MAX, Bundle, BundleKey, EPOCH_EXCLUSIVE_MAX, KeyId, NodeId, SignedBundle,
    VerifyingKey,
};

use super::State;
use crate::admin::{AdminKey, KeptStatement, Offer, Retired, StatementTopic};

/// A certificate's life in seconds: hygiene, not the fence; its holder asks for a fresh one.
pub const CERTIFICATE_LIFE_S: u64 = 12 * 3_600;
/// How long after its successor began to sign a key may leave the bundle, in seconds: no
/// certificate under it is valid any more, whatever clocks differ by.
const VERIFIES_S: u64 = CERTIFICATE_LIFE_S + 600;

/// How a signing key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStanding {
    /// Is to be in the next bundle.
    Offered,
    /// Offered by a node that has lost its keys, or was not asked: only the root key can put it in
    /// a bundle.
    Unendorsed,
    /// In the bundle, and too young to sign.
    Aging,
    /// The newest that signs.
    Signing,
    /// Signs no more, while certificates under it may be valid.
    Verifying,
    /// Is not to be in the next bundle.
    Retiring,
}

/// A signing key and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKey {
    /// Whose.
    pub node: NodeId,
    /// The key.
    pub key: VerifyingKey,
    /// When it signs from, in seconds since 1970; 0 for one that always did, or is in no bundle.
    pub since_s: u64,
    /// How it stands.
    pub standing: KeyStanding,
}

impl State {
    /// The newest bundle; none before the first is applied.
    #[must_use]
    pub fn bundle(&self) -> Option<&SignedBundle> {
        let all = AdminKey::Bundle(0)..=AdminKey::Bundle(u64::MAX);
        let (_, row) = self.rows.admin().range(all).next_back()?;
        row.bundle()
    }

    /// The chain of bundles from the last one that the root key signed, those above a sequence
    /// number, oldest first.
    pub fn bundles_after(&self, sequence: u64) -> impl Iterator<Item = &SignedBundle> {
        let all = AdminKey::Bundle(sequence.saturating_add(1))..=AdminKey::Bundle(u64::MAX);
        let rows = self.rows.admin().range(all);
        rows.filter_map(|(_, row)| row.bundle())
    }

    /// The one of a sequence number, if the chain has it.
    pub(crate) fn bundle_of(&self, sequence: u64) -> Option<&SignedBundle> {
        let row = self.rows.admin().get(&AdminKey::Bundle(sequence))?;
        row.bundle()
    }

    pub(crate) fn bundle_keys(&self) -> impl Iterator<Item = AdminKey> {
        self.bundles_after(0)
            .map(|bundle| AdminKey::Bundle(bundle.bundle().terms().sequence))
    }

    /// The operator's statements, as signed texts; some may have expired.
    pub fn statements(&self) -> impl Iterator<Item = &str> {
        let topics = [StatementTopic::Clock, StatementTopic::MaxFuture];
        let kept = topics
            .into_iter()
            .filter_map(|topic| self.kept_statement(topic));
        kept.map(|kept| &*kept.text)
    }

    pub(crate) fn kept_statement(&self, topic: StatementTopic) -> Option<&KeptStatement> {
        let row = self.rows.admin().get(&AdminKey::Statement(topic))?;
        row.statement()
    }

    pub(crate) fn offer(&self, node: NodeId) -> Option<&Offer> {
        self.rows.admin().get(&AdminKey::Offer(node))?.offer()
    }

    pub(crate) fn offers(&self) -> impl Iterator<Item = &Offer> {
        let all = AdminKey::Offer(0)..=AdminKey::Offer(NodeId::MAX);
        let rows = self.rows.admin().range(all);
        rows.filter_map(|(_, row)| row.offer())
    }

    /// The key that a node has offered and that is in no bundle yet.
    #[must_use]
    pub fn offered(&self, node: NodeId) -> Option<KeyId> {
        self.offer(node).map(|offer| offer.key.id())
    }

    /// Whether a node is asked for a new key.
    #[must_use]
    pub fn is_rotation_wanted(&self, node: NodeId) -> bool {
        self.rows.admin().contains_key(&AdminKey::Rotation(node))
    }

    pub(crate) fn rotations(&self) -> impl Iterator<Item = NodeId> {
        let all = AdminKey::Rotation(0)..=AdminKey::Rotation(NodeId::MAX);
        let rows = self.rows.admin().range(all);
        rows.filter_map(|(_, row)| row.rotation())
    }

    /// Whether a key has left the bundle, or is to.
    #[must_use]
    pub fn is_retired(&self, kid: KeyId) -> bool {
        self.rows.admin().contains_key(&AdminKey::Retired(kid))
    }

    pub(crate) fn retired(&self) -> impl Iterator<Item = Retired> {
        let kid = |byte| KeyId::from_bytes([byte; 32]);
        let all = AdminKey::Retired(kid(0))..=AdminKey::Retired(kid(u8::MAX));
        let rows = self.rows.admin().range(all);
        rows.filter_map(|(_, row)| row.retired())
    }

    /// All signing keys, by node: those of the newest bundle, then those that are offered.
    #[must_use]
    pub fn signing_keys(&self) -> Vec<NodeKey> {
        let Some(current) = self.bundle() else {
            return Vec::new();
        };
        let now_s = self.now_ms / 1_000;
        let signing = self.signing(current.bundle(), now_s);
        let in_bundle = current.bundle().keys().iter().map(|key| {
            let kid = key.key.id();
            let standing = match signing.get(&key.node) {
                _ if self.is_retired(kid) => KeyStanding::Retiring,
                _ if key.since_s > now_s => KeyStanding::Aging,
                Some(newest) if newest.key.id() == kid => KeyStanding::Signing,
                Some(_) | None => KeyStanding::Verifying,
            };
            NodeKey {
                node: key.node,
                key: key.key.clone(),
                since_s: key.since_s,
                standing,
            }
        });
        let offered = self.offers().map(|offer| NodeKey {
            node: offer.node,
            key: offer.key.clone(),
            since_s: 0,
            standing: match offer.endorsed {
                true => KeyStanding::Offered,
                false => KeyStanding::Unendorsed,
            },
        });
        in_bundle.chain(offered).collect()
    }

    /// The next bundle, if it is due at a time, in seconds since 1970: because its keys would be
    /// others, or because a third of the newest one's life is over. The same on every node.
    #[must_use]
    pub fn due_bundle(&self, now_s: u64) -> Option<Bundle> {
        let current = self.bundle()?.bundle();
        let keys = self.next_keys(current, now_s);
        let terms = current.terms();
        let same = keys.iter().eq(current.keys());
        // One that the root key signed may live shorter than those that follow it.
        let life_s = terms.expires_at_s.saturating_sub(terms.issued_at_s);
        let old = now_s >= terms.issued_at_s.saturating_add(life_s / 3);
        if same && !old {
            return None;
        }
        // Not before the one before it was issued, and never without a key.
        current.next(now_s, keys).ok()
    }

    /// When the next key that is too young becomes old enough to sign, in milliseconds since 1970.
    #[must_use]
    pub fn next_key_ms(&self) -> Option<u64> {
        let keys = self.bundle()?.bundle().keys().iter();
        let from = keys.map(|key| key.since_s.saturating_mul(1_000));
        from.filter(|from_ms| *from_ms > self.now_ms).min()
    }

    fn next_keys(&self, current: &Bundle, now_s: u64) -> Vec<BundleKey> {
        // As they stand in the bundle: of two that sign from the same second, one is the newer, too.
        let order = |key: &BundleKey| (key.since_s, *key.key.as_bytes());
        let newer = |key: &BundleKey| {
            let later = current
                .keys_of(key.node)
                .filter(|other| order(other) > order(key) && !self.is_retired(other.key.id()));
            later.map(|other| other.since_s).min()
        };
        let verifies = |key: &&BundleKey| {
            newer(key).is_none_or(|since_s| now_s < since_s.saturating_add(VERIFIES_S))
        };
        let kept = current.keys().iter().filter(verifies);
        let kept = kept.filter(|key| !self.is_retired(key.key.id())).cloned();
        let new = self.offers().filter(|offer| offer.endorsed);
        let new = new.map(|offer| BundleKey {
            node: offer.node,
            key: offer.key.clone(),
            since_s: now_s.saturating_add(current.terms().max_age_s),
        });
        // What finds no room waits: a bundle that cannot be would keep retired keys in use.
        let mut keys: Vec<_> = kept.chain(new).take(BUNDLE_KEYS_MAX).collect();
        keys.sort_by(|a, b| {
            let order = |key: &BundleKey| (key.node, key.since_s, *key.key.as_bytes());
            order(a).cmp(&order(b))
        });
        keys
    }

    /// The newest key that signs, of each node.
    fn signing<'b>(&self, bundle: &'b Bundle, now_s: u64) -> BTreeMap<NodeId, &'b BundleKey> {
        let keys = bundle.keys().iter();
        let sign = keys.filter(|key| key.since_s <= now_s && !self.is_retired(key.key.id()));
        // Keys are ordered by node, then by when they sign from: of each node, the last one counts.
        sign.map(|key| (key.node, key)).collect()
    }

    /// What of the rows about signing keys cannot be, if anything. Signatures are not verified
    /// again.
    pub(crate) fn untrue_of_trust(&self) -> Option<&'static str> {
        let bundles: Vec<_> = self.bundles_after(0).collect();
        let Some(current) = self.bundle() else {
            let any = self.offers().next().is_some() || self.rotations().next().is_some();
            return any.then_some("a key wanted or offered without a bundle");
        };
        let current = current.bundle();
        let own = (self.cluster_id, self.incarnation, &current.terms().root);
        let is_own = |bundle: &&SignedBundle| {
            let terms = bundle.bundle().terms();
            (terms.cluster, terms.incarnation, &terms.root) == own
        };
        let by_root = |bundle: &SignedBundle| bundle.names_signer(own.2.id());
        let follow = bundles.windows(2).all(|pair| match pair {
            [one, next] => {
                let sequence = |bundle: &SignedBundle| bundle.bundle().terms().sequence;
                sequence(one).checked_add(1) == Some(sequence(next)) && !by_root(next)
            }
            _ => true,
        });
        let is_offer = |offer: &Offer| {
            let kid = offer.key.id();
            let wanted = self.is_rotation_wanted(offer.node);
            let stale = current.find(kid).is_some() || self.is_retired(kid) || offer.key == *own.2;
            let endorsed = current.nodes().contains(&offer.node) && !wanted;
            let node = (1..EPOCH_EXCLUSIVE_MAX).contains(&offer.node);
            node && !stale && (!offer.endorsed || endorsed)
        };
        let offered: BTreeSet<_> = self.offers().map(|offer| offer.key.id()).collect();
        let nodes = current.nodes();
        let untrue = [
            (
                !bundles.iter().all(is_own),
                "a bundle of another cluster, incarnation or root",
            ),
            (
                !bundles.first().is_some_and(|first| by_root(first)),
                "a chain of bundles without root",
            ),
            (!follow, "a bundle that does not follow the one before it"),
            (!self.offers().all(is_offer), "a key that nobody may offer"),
            (
                offered.len() != self.offers().count(),
                "a key offered twice",
            ),
            (
                !self.rotations().all(|node| nodes.contains(&node)),
                "a key wanted of an unknown node",
            ),
        ];
        let found = untrue.into_iter().find(|(is_so, _)| *is_so);
        found.map(|(_, what)| what)
    }
}
