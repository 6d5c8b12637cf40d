//! A trust bundle with its signatures, and whom they make it valid for.

use crate::bundle::Bundle;
use crate::bundle_error::BundleError;
use crate::jws::{Signature, SignedText, TextKind, check_signers, compose_checked};
use crate::keys::{KeyId, VerifyingKey};
use crate::trust_error::TrustError;

/// A bundle with its signatures, none of which is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBundle {
    payload: String,
    bundle: Bundle,
    signatures: Vec<(KeyId, Signature)>,
}

impl SignedBundle {
    /// Reads a signed text.
    ///
    /// # Errors
    /// Not a text of this kind, or not a bundle.
    pub fn parse(text: &str) -> Result<Self, BundleError> {
        let text = SignedText::parse(TextKind::Bundle, text)?;
        let mut signatures = Vec::with_capacity(text.parts().len());
        for part in text.parts() {
            if !part.usual_header {
                return Err(BundleError::HeaderUnusual);
            }
            signatures.push((part.kid, part.signature()?));
        }
        let payload = String::from_utf8(text.payload()?).map_err(|error| {
            let detail = error.to_string();
            BundleError::Malformed { detail }
        })?;
        Self::from_parts(payload, signatures)
    }

    /// Puts a stored bundle together again: its payload, once, and the signatures.
    ///
    /// # Errors
    /// Not a bundle; no signature, too many, or two of one key.
    pub fn from_parts(
        payload: String,
        signatures: Vec<(KeyId, Signature)>,
    ) -> Result<Self, BundleError> {
        let bundle = Bundle::from_json(payload.as_bytes())?;
        check_signers(TextKind::Bundle, payload.len(), &signatures)?;
        Ok(Self {
            payload,
            bundle,
            signatures,
        })
    }

    /// The signed text.
    #[must_use]
    pub fn to_text(&self) -> String {
        compose_checked(TextKind::Bundle, &self.payload, &self.signatures)
    }

    /// What it says.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The payload as signed.
    #[must_use]
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// The signatures.
    #[must_use]
    pub fn signatures(&self) -> &[(KeyId, Signature)] {
        &self.signatures
    }

    /// Whether one of the signatures, verified or not, is by this key.
    #[must_use]
    pub fn names_signer(&self, id: KeyId) -> bool {
        self.signatures.iter().any(|(kid, _)| *kid == id)
    }

    /// Checks that a chain may begin with it: the root key signed it, and nobody else, and it names
    /// that root.
    ///
    /// # Errors
    /// Another root, not signed by it, or a signature that does not verify.
    pub fn check_first(&self, root: &VerifyingKey) -> Result<(), TrustError> {
        self.check_root(root)?;
        if !self.names_signer(root.id()) {
            let rank = self.bundle.rank();
            return Err(TrustError::NotRootSigned { rank });
        }
        self.check_signatures(|kid| (kid == root.id()).then_some(root))
    }

    /// Checks that it may follow `current`: the root key signed it and it is newer; or more than
    /// half of the nodes in `current` signed it, and it is the next one under the same terms.
    /// Reads no clock.
    ///
    /// # Errors
    /// One variant for each check. A signature that does not verify, or is by a key that is neither
    /// the root nor in `current`, is never passed over.
    pub fn check_successor(&self, current: &Bundle, root: &VerifyingKey) -> Result<(), TrustError> {
        self.check_root(root)?;
        let (found, expected) = (self.bundle.terms().cluster, current.terms().cluster);
        if found != expected {
            return Err(TrustError::OtherCluster { found, expected });
        }
        self.check_signatures(|kid| {
            if kid == root.id() {
                return Some(root);
            }
            current.find(kid).map(|key| &key.key)
        })?;
        let (rank, last) = (self.bundle.rank(), current.rank());
        if self.names_signer(root.id()) {
            return if rank > last {
                Ok(())
            } else {
                Err(TrustError::NotNewer { rank, last })
            };
        }
        if rank.incarnation != last.incarnation {
            return Err(TrustError::NotRootSigned { rank });
        }
        if Some(rank.sequence) != last.sequence.checked_add(1) {
            return Err(TrustError::NotNext { rank, last });
        }
        let found = current.nodes_among(self.signatures.iter().map(|(kid, _)| *kid));
        let needed = current.majority();
        if found < needed {
            return Err(TrustError::TooFewNodes { found, needed });
        }
        // What the root laid down (lifetimes, ages) a majority of nodes cannot change.
        let same_terms = current
            .next(self.bundle.terms().issued_at_s, self.bundle.keys().to_vec())
            .is_ok_and(|next| next == self.bundle);
        if same_terms {
            Ok(())
        } else {
            Err(TrustError::TermsChanged { rank })
        }
    }

    /// Verifies the signatures by the root or by keys that the bundle has itself: all that can be,
    /// where the bundle before it is not known.
    pub(crate) fn check_known(&self, root: &VerifyingKey) -> Result<(), TrustError> {
        self.check_root(root)?;
        let text = self.to_text();
        for part in SignedText::parse(TextKind::Bundle, &text)?.parts() {
            let own = self.bundle.find(part.kid).map(|key| &key.key);
            let known = if part.kid == root.id() {
                Some(root)
            } else {
                own
            };
            if let Some(key) = known {
                part.check(key)?;
            }
        }
        Ok(())
    }

    fn check_root(&self, root: &VerifyingKey) -> Result<(), TrustError> {
        let found = &self.bundle.terms().root;
        if found == root {
            return Ok(());
        }
        Err(TrustError::OtherRoot {
            found: found.id(),
            expected: root.id(),
        })
    }

    fn check_signatures<'k>(
        &self,
        key: impl Fn(KeyId) -> Option<&'k VerifyingKey>,
    ) -> Result<(), TrustError> {
        let text = self.to_text();
        for part in SignedText::parse(TextKind::Bundle, &text)?.parts() {
            let key = key(part.kid).ok_or(TrustError::UnknownSigner { kid: part.kid })?;
            part.check(key)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
