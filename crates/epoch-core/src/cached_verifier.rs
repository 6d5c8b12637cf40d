//! A verifier that remembers what it has verified, for the many writes under one certificate.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip::SipHasher13;

use crate::certificate::Certificate;
use crate::jws::TextKind;
use crate::keys::KeySet;
use crate::signed_bundle::SignedBundle;
use crate::statement::StatementError;
use crate::trust::Trust;
use crate::trust_error::TrustError;
use crate::verify::Verifier;
use crate::verify_error::VerifyError;

/// Most certificates remembered.
pub const CACHED_CERTIFICATES_MAX: usize = 16_384;
/// Most bytes of certificates' text remembered; their claims take about twice that.
pub const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A [`Verifier`] that can be shared between threads and remembers what it has verified, found by a
/// keyed hash and compared whole.
pub struct CachedVerifier {
    hasher: SipHasher13,
    state: Mutex<State>,
}

struct State {
    verifier: Arc<Verifier>,
    /// Half of what may be remembered; when it is full it becomes the old half, and what was not
    /// asked for since the last time is forgotten.
    young: Half,
    old: Half,
}

#[derive(Default)]
struct Half {
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
}

struct Entry {
    token: Box<str>,
    certificate: Arc<Certificate>,
}

impl CachedVerifier {
    /// A cache before `verifier`. `hash_key` is 16 secret random bytes, which the caller draws: who
    /// knew them could make certificates that push each other out.
    #[must_use]
    pub fn new(verifier: Verifier, hash_key: &[u8; 16]) -> Self {
        Self {
            hasher: SipHasher13::new_with_key(hash_key),
            state: Mutex::new(State {
                verifier: Arc::new(verifier),
                young: Half::default(),
                old: Half::default(),
            }),
        }
    }

    /// As [`Verifier::verify`]; of a certificate that is remembered, only what time can change is
    /// checked again.
    ///
    /// # Errors
    /// As [`Verifier::verify`].
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Arc<Certificate>, VerifyError> {
        if token.len() > TextKind::Certificate.bytes_max() {
            return self.verifier().verify(token, now_ms).map(Arc::new);
        }
        let hash = self.hasher.hash(token.as_bytes());
        let verifier = {
            let mut state = self.state();
            if let Some(certificate) = state.find(hash, token) {
                state.verifier.check_again(certificate.claims(), now_ms)?;
                return Ok(certificate);
            }
            Arc::clone(&state.verifier)
        };
        let certificate = Arc::new(verifier.verify(token, now_ms)?);
        self.remember(&verifier, hash, token, &certificate);
        Ok(certificate)
    }

    fn remember(
        &self,
        verifier: &Arc<Verifier>,
        hash: u64,
        token: &str,
        certificate: &Arc<Certificate>,
    ) {
        let mut state = self.state();
        // Not if keys were replaced meanwhile: it was verified under the old ones.
        if Arc::ptr_eq(verifier, &state.verifier) {
            state.insert(hash, token.into(), Arc::clone(certificate));
        }
    }

    /// The verifier as it is now.
    #[must_use]
    pub fn verifier(&self) -> Arc<Verifier> {
        Arc::clone(&self.state().verifier)
    }

    /// As [`Verifier::adopt`]; forgets all certificates if anything was adopted.
    ///
    /// # Errors
    /// As [`Verifier::adopt`].
    pub fn adopt(&self, chain: &[SignedBundle]) -> Result<bool, TrustError> {
        self.change(|verifier| verifier.adopt(chain))
    }

    /// As [`Verifier::adopt_statement`]; forgets all certificates if it was adopted.
    ///
    /// # Errors
    /// As [`Verifier::adopt_statement`].
    pub fn adopt_statement(&self, text: &str, now_ms: u64) -> Result<bool, StatementError> {
        self.change(|verifier| verifier.adopt_statement(text, now_ms))
    }

    /// As [`Verifier::replace_keys`]; forgets all certificates.
    ///
    /// # Errors
    /// As [`Verifier::replace_keys`].
    pub fn replace_keys(&self, keys: KeySet) -> Result<(), TrustError> {
        self.change(|verifier| verifier.replace_keys(keys).map(|()| true))
            .map(|_always| ())
    }

    /// What is trusted under the pinned root, to be stored after each adoption.
    #[must_use]
    pub fn trust(&self) -> Option<Trust> {
        self.verifier().trust().cloned()
    }

    fn change<E>(&self, change: impl FnOnce(&mut Verifier) -> Result<bool, E>) -> Result<bool, E> {
        let mut state = self.state();
        let mut verifier = (*state.verifier).clone();
        let changed = change(&mut verifier)?;
        if changed {
            state.verifier = Arc::new(verifier);
            state.young = Half::default();
            state.old = Half::default();
        }
        Ok(changed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, hash: u64, token: &str) -> Option<Arc<Certificate>> {
        if let Some(entry) = self.young.entries.get(&hash)
            && *entry.token == *token
        {
            return Some(Arc::clone(&entry.certificate));
        }
        let entry = self.old.entries.get(&hash)?;
        if *entry.token != *token {
            return None;
        }
        let entry = self.old.take(hash)?;
        let certificate = Arc::clone(&entry.certificate);
        self.insert(hash, entry.token, entry.certificate);
        Some(certificate)
    }

    fn insert(&mut self, hash: u64, token: Box<str>, certificate: Arc<Certificate>) {
        let full = self.young.entries.len() >= CACHED_CERTIFICATES_MAX / 2
            || self.young.bytes.saturating_add(token.len()) > CACHED_BYTES_MAX / 2;
        if full {
            self.old = std::mem::take(&mut self.young);
        }
        let _replaced = self.young.take(hash);
        self.young.bytes = self.young.bytes.saturating_add(token.len());
        self.young
            .entries
            .insert(hash, Entry { token, certificate });
    }
}

impl Half {
    fn take(&mut self, hash: u64) -> Option<Entry> {
        let entry = self.entries.remove(&hash)?;
        self.bytes = self.bytes.saturating_sub(entry.token.len());
        Some(entry)
    }
}

impl fmt::Debug for CachedVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let cached = state.young.entries.len() + state.old.entries.len();
        f.debug_struct("CachedVerifier")
            .field("cached", &cached)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
