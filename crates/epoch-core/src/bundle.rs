//! A trust bundle: the keys that may sign for a cluster, and until when.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bundle_error::BundleError;
use crate::bundle_terms::{BundleRank, BundleTerms, in_bounds};
use crate::certificate::issuer;
use crate::fields::{self, FieldError, number, only_members, text};
use crate::id::{EPOCH_EXCLUSIVE_MAX, NodeId};
use crate::json;
use crate::jws::PARTS_MAX;
use crate::keys::{KeyId, VerifyingKey};

/// Most keys of a bundle.
pub const BUNDLE_KEYS_MAX: usize = 32;
/// Most nodes of a bundle: each may sign a part.
pub const BUNDLE_NODES_MAX: usize = PARTS_MAX;
/// Longest payload of a bundle, in bytes of JSON.
pub const BUNDLE_BYTES_MAX: usize = 4 * 1024;
/// A key that may sign, and whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleKey {
    /// The node, from 1.
    pub node: NodeId,
    /// Its public key.
    pub key: VerifyingKey,
    /// Since when it is in bundles, in seconds since 1970: it signs once the key set's maximum age
    /// has passed since. 0: at once.
    pub since_s: u64,
}

impl BundleKey {
    /// The order of keys in a bundle.
    fn order(&self) -> (NodeId, u64, &[u8; 32]) {
        (self.node, self.since_s, self.key.as_bytes())
    }
}

/// A trust bundle whose content is in bounds. Who signed it is told by
/// [`SignedBundle`](crate::SignedBundle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    terms: BundleTerms,
    keys: Vec<BundleKey>,
}

impl Bundle {
    /// A bundle of these keys, which are put in order.
    ///
    /// # Errors
    /// A number out of bounds, `exp` not after `iat`, no keys or too many, too many nodes, a key
    /// given twice, or the root key among them.
    pub fn new(terms: BundleTerms, mut keys: Vec<BundleKey>) -> Result<Self, BundleError> {
        terms.check()?;
        if keys.is_empty() || keys.len() > BUNDLE_KEYS_MAX {
            let count = keys.len();
            return Err(BundleError::KeyCount { count });
        }
        let mut names = BTreeSet::new();
        let mut nodes = BTreeSet::new();
        for BundleKey { node, key, since_s } in &keys {
            in_bounds("keys.node", *node, 1..=EPOCH_EXCLUSIVE_MAX - 1)?;
            in_bounds("keys.since", *since_s, 0..=EPOCH_EXCLUSIVE_MAX - 1)?;
            if *key == terms.root {
                return Err(BundleError::RootAmongKeys);
            }
            if !names.insert(key.id()) {
                return Err(BundleError::KeyTwice { kid: key.id() });
            }
            nodes.insert(*node);
        }
        if nodes.len() > BUNDLE_NODES_MAX {
            let count = nodes.len();
            return Err(BundleError::TooManyNodes { count });
        }
        keys.sort_by(|a, b| a.order().cmp(&b.order()));
        let bundle = Self { terms, keys };
        let len = bundle.to_json().len();
        if len > BUNDLE_BYTES_MAX {
            return Err(BundleError::TooLarge { len });
        }
        Ok(bundle)
    }

    /// The one that follows: the next number, the same root, lifetime, maximum age and incarnation;
    /// it lives from `issued_at_s` for the lifetime.
    ///
    /// # Errors
    /// Issued before this one, or as for [`new`](Self::new).
    pub fn next(&self, issued_at_s: u64, keys: Vec<BundleKey>) -> Result<Self, BundleError> {
        let earliest_s = self.terms.issued_at_s;
        if issued_at_s < earliest_s {
            return Err(BundleError::IssuedBefore {
                issued_at_s,
                earliest_s,
            });
        }
        let terms = BundleTerms {
            sequence: self.terms.sequence.saturating_add(1),
            issued_at_s,
            expires_at_s: issued_at_s.saturating_add(self.terms.lifetime_s),
            ..self.terms.clone()
        };
        Self::new(terms, keys)
    }

    /// All that it says besides its keys.
    #[must_use]
    pub fn terms(&self) -> &BundleTerms {
        &self.terms
    }

    /// How new it is.
    #[must_use]
    pub fn rank(&self) -> BundleRank {
        BundleRank {
            incarnation: self.terms.incarnation,
            sequence: self.terms.sequence,
        }
    }

    /// The keys, ordered by node, then by since when, then by their bytes.
    #[must_use]
    pub fn keys(&self) -> &[BundleKey] {
        &self.keys
    }

    /// The keys of one node.
    pub fn keys_of(&self, node: NodeId) -> impl Iterator<Item = &BundleKey> {
        self.keys.iter().filter(move |key| key.node == node)
    }

    /// Finds a key, and with it its node, by name.
    #[must_use]
    pub fn find(&self, id: KeyId) -> Option<&BundleKey> {
        self.keys.iter().find(|key| key.key.id() == id)
    }

    /// The nodes that have a key.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.keys.iter().map(|key| key.node).collect()
    }

    /// How many of these key names' different nodes are in the bundle.
    #[must_use]
    pub fn nodes_among(&self, keys: impl IntoIterator<Item = KeyId>) -> usize {
        let nodes = keys.into_iter().filter_map(|id| self.find(id));
        nodes.map(|key| key.node).collect::<BTreeSet<_>>().len()
    }

    /// How many nodes are more than half of them.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.nodes().len() / 2 + 1
    }

    /// The payload: JSON, the same bytes whoever signs it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let BundleTerms {
            cluster,
            incarnation,
            sequence,
            root,
            issued_at_s,
            expires_at_s,
            lifetime_s,
            max_age_s,
        } = &self.terms;
        let key = |BundleKey { node, key, since_s }: &BundleKey| WireKey {
            node: *node,
            x: key.to_base64url(),
            since: *since_s,
        };
        let wire = WireBundle {
            iss: issuer(*cluster),
            incarnation: incarnation.to_string(),
            sequence: *sequence,
            root: root.to_base64url(),
            iat: *issued_at_s,
            exp: *expires_at_s,
            lifetime: *lifetime_s,
            max_age: *max_age_s,
            keys: self.keys.iter().map(key).collect(),
        };
        // Strings and numbers always serialise; the fallback parses nowhere.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Too long, not strict JSON, a member that is missing, malformed or unknown, keys out of
    /// order, or as for [`new`](Self::new).
    pub fn from_json(payload: &[u8]) -> Result<Self, BundleError> {
        if payload.len() > BUNDLE_BYTES_MAX {
            let len = payload.len();
            return Err(BundleError::TooLarge { len });
        }
        let map = json::object(payload).map_err(|detail| BundleError::Malformed { detail })?;
        only_members(&map, "the bundle", &MEMBERS)?;
        let terms = BundleTerms {
            cluster: fields::cluster(&map)?,
            incarnation: fields::incarnation(&map, "incarnation")?,
            sequence: number(&map, "sequence")?,
            root: key(&map, "root")?,
            issued_at_s: number(&map, "iat")?,
            expires_at_s: number(&map, "exp")?,
            lifetime_s: number(&map, "lifetime")?,
            max_age_s: number(&map, "max_age")?,
        };
        let list = fields::value(&map, "keys")?.as_array();
        let list = list.ok_or(FieldError::Malformed {
            claim: "keys",
            expected: "a list",
        })?;
        let keys: Vec<_> = list.iter().map(bundle_key).collect::<Result<_, _>>()?;
        let bundle = Self::new(terms, keys.clone())?;
        if bundle.keys == keys {
            Ok(bundle)
        } else {
            Err(BundleError::KeyOrder)
        }
    }
}

fn key(map: &Map<String, Value>, claim: &'static str) -> Result<VerifyingKey, FieldError> {
    let malformed = FieldError::Malformed {
        claim,
        expected: "32 bytes as base64url without padding",
    };
    text(map, claim)?.parse().map_err(|_malformed| malformed)
}

fn bundle_key(item: &Value) -> Result<BundleKey, FieldError> {
    let map = item.as_object().ok_or(FieldError::Malformed {
        claim: "keys",
        expected: "a list of objects",
    })?;
    only_members(map, "a key of the bundle", &["node", "x", "since"])?;
    Ok(BundleKey {
        node: number(map, "keys.node")?,
        key: key(map, "keys.x")?,
        since_s: number(map, "keys.since")?,
    })
}

const MEMBERS: [&str; 9] = [
    "iss",
    "incarnation",
    "sequence",
    "root",
    "iat",
    "exp",
    "lifetime",
    "max_age",
    "keys",
];

#[derive(Serialize)]
struct WireBundle {
    iss: String,
    incarnation: String,
    sequence: u64,
    root: String,
    iat: u64,
    exp: u64,
    lifetime: u64,
    max_age: u64,
    keys: Vec<WireKey>,
}

#[derive(Serialize)]
struct WireKey {
    node: NodeId,
    x: String,
    since: u64,
}

#[cfg(test)]
mod tests;
