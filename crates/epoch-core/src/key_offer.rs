//! A node's new signing key, before it is in a bundle: signed by the key itself, so that nobody offers
//! one that he does not have, and by a key of the same node that the bundle of now has, so that
//! nobody else puts a key in its place.

use serde_json::json;

use crate::bundle::Bundle;
use crate::bundle_error::BundleError;
use crate::certificate::issuer;
use crate::fields::{self, number, only_members, text};
use crate::id::{ClusterId, Incarnation, NodeId};
use crate::json;
use crate::jws::{SignedText, TextKind};
use crate::keys::{KeyId, VerifyingKey};
use crate::trust_error::TrustError;

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
    /// Not a text of this kind, or not an offer.
    pub fn parse(text_of_offer: &str) -> Result<Self, BundleError> {
        let signed = SignedText::parse(TextKind::KeyOffer, text_of_offer)?;
        let payload = signed.payload()?;
        let map = json::object(&payload).map_err(|detail| BundleError::Malformed { detail })?;
        only_members(&map, "the offer", &["iss", "incarnation", "node", "x"])?;
        let malformed = fields::FieldError::Malformed {
            claim: "x",
            expected: "32 bytes as base64url without padding",
        };
        Ok(Self {
            text: text_of_offer.to_owned(),
            cluster: fields::cluster(&map)?,
            incarnation: fields::incarnation(&map, "incarnation")?,
            node: number(&map, "node")?,
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
    /// Another cluster's or incarnation's; not signed by the key itself; a signature that does not
    /// verify, or is by another key than one of the node's.
    pub fn check(
        &self,
        current: &Bundle,
        trusted: impl Fn(KeyId) -> bool,
    ) -> Result<bool, TrustError> {
        let terms = current.terms();
        if self.cluster != terms.cluster {
            return Err(TrustError::OtherCluster {
                found: self.cluster,
                expected: terms.cluster,
            });
        }
        let mut possessed = false;
        let mut endorsed = false;
        for part in SignedText::parse(TextKind::KeyOffer, &self.text)?.parts() {
            let unknown = TrustError::UnknownSigner { kid: part.kid };
            if part.kid == self.key.id() {
                part.check(&self.key)?;
                possessed = true;
                continue;
            }
            let by = current.find(part.kid).filter(|key| key.node == self.node);
            part.check(&by.ok_or(unknown)?.key)?;
            endorsed |= trusted(part.kid);
        }
        if !possessed || self.incarnation != terms.incarnation {
            return Err(TrustError::UnknownSigner { kid: self.key.id() });
        }
        Ok(endorsed)
    }
}
