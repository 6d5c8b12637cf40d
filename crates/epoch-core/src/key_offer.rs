//! A node's new signing key, before it is in a bundle: signed by the key itself, so that nobody offers
//! one that he does not have, and by a key of the same node that the bundle of now has, so that
//! nobody else puts a key in its place.

use serde_json::json;

use crate::bundle::Bundle;
use crate::bundle_error::BundleError;
use crate::bundle_terms::in_bounds;
use crate::certificate::issuer;
use crate::fields::{self, number, only_members, text};
use crate::id::{ClusterId, EPOCH_EXCLUSIVE_MAX, Incarnation, NodeId};
use crate::json;
use crate::jws::{SignedText, TextKind};
use crate::jws_error::JwsError;
use crate::keys::{KeyId, VerifyingKey};

/// Why an offer does not count under a bundle. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A signature does not verify.
    #[error("a signature of the offer: {0}")]
    Jws(#[from] JwsError),
    /// Another cluster's.
    #[error("the key is offered to cluster {found}, not to {expected}; make the offer again")]
    OtherCluster {
        /// What was given.
        found: ClusterId,
        /// The cluster of the bundle.
        expected: ClusterId,
    },
    /// Another life's of the cluster.
    #[error("the key is offered to incarnation {found}, not to {expected}; make the offer again")]
    OtherIncarnation {
        /// What was given.
        found: Incarnation,
        /// The incarnation of the bundle.
        expected: Incarnation,
    },
    /// The key itself must sign, so that nobody offers one that he does not have.
    #[error("the offered key {kid} has not signed its offer; sign it with that key, too")]
    NotPossessed {
        /// The key.
        kid: KeyId,
    },
    /// Nobody else may sign than the key itself and keys of its node.
    #[error(
        "the offer is signed by the key {kid}, which is none of node {node} in the bundle; offer \
         the key under one that is, or alone"
    )]
    UnknownSigner {
        /// Who signed.
        kid: KeyId,
        /// Whose key is offered.
        node: NodeId,
    },
}

/// An offer, well-formed; whether its signatures hold is for [`check`](KeyOffer::check) to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOffer {
    text: String,
    cluster: ClusterId,
    incarnation: Incarnation,
    node: NodeId,
    key: VerifyingKey,
}

impl KeyOffer {
    /// Reads a signed text.
    ///
    /// # Errors
    /// Not a text of this kind, not an offer, or of a node that cannot be.
    pub fn parse(text_of_offer: &str) -> Result<Self, BundleError> {
        let signed = SignedText::parse(TextKind::KeyOffer, text_of_offer)?;
        let payload = signed.payload()?;
        let map = json::object(&payload).map_err(|detail| BundleError::Malformed { detail })?;
        only_members(&map, "the offer", &["iss", "incarnation", "node", "x"])?;
        let malformed = fields::FieldError::Malformed {
            claim: "x",
            expected: "32 bytes as base64url without padding",
        };
        let node = number(&map, "node")?;
        in_bounds("node", node, 1..=EPOCH_EXCLUSIVE_MAX - 1)?;
        Ok(Self {
            text: text_of_offer.to_owned(),
            cluster: fields::cluster(&map)?,
            incarnation: fields::incarnation(&map, "incarnation")?,
            node,
            key: text(&map, "x")?.parse().map_err(|_malformed| malformed)?,
        })
    }

    /// The payload of an offer, to be signed.
    #[must_use]
    pub fn payload(
        cluster: ClusterId,
        incarnation: Incarnation,
        node: NodeId,
        key: &VerifyingKey,
    ) -> String {
        json!({
            "iss": issuer(cluster),
            "incarnation": incarnation.to_string(),
            "node": node,
            "x": key.to_base64url(),
        })
        .to_string()
    }

    /// The signed text.
    #[must_use]
    pub fn to_text(&self) -> &str {
        &self.text
    }

    /// Whose key.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// Verifies it under the bundle of now: whether a key of the same node endorses it, one that
    /// `trusted` takes.
    ///
    /// # Errors
    /// One variant for each check.
    pub fn check(
        &self,
        current: &Bundle,
        trusted: impl Fn(KeyId) -> bool,
    ) -> Result<bool, OfferError> {
        let terms = current.terms();
        let (found, expected) = (self.cluster, terms.cluster);
        if found != expected {
            return Err(OfferError::OtherCluster { found, expected });
        }
        let (found, expected) = (self.incarnation, terms.incarnation);
        if found != expected {
            return Err(OfferError::OtherIncarnation { found, expected });
        }
        let mut possessed = false;
        let mut endorsed = false;
        for part in SignedText::parse(TextKind::KeyOffer, &self.text)?.parts() {
            if part.kid == self.key.id() {
                part.check(&self.key)?;
                possessed = true;
                continue;
            }
            let by = current.find(part.kid).filter(|key| key.node == self.node);
            let by = by.ok_or(OfferError::UnknownSigner {
                kid: part.kid,
                node: self.node,
            })?;
            part.check(&by.key)?;
            endorsed |= trusted(part.kid);
        }
        if !possessed {
            return Err(OfferError::NotPossessed { kid: self.key.id() });
        }
        Ok(endorsed)
    }
}

#[cfg(test)]
mod tests;
