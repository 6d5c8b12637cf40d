//! What is read from files and from the log: keys, what is trusted, and commands.

use epoch_core::{KeySet, RootKey, Trust};
use epoch_store::codec::{decode_batch, encode_batch};

use crate::world::pin;

/// The file in which a resource keeps what it trusts.
pub(crate) fn stored_trust(input: &[u8]) -> bool {
    let Ok(trust) = Trust::from_json(pin(), input) else {
        return false;
    };
    let again = Trust::from_json(pin(), trust.to_json().as_bytes());
    assert_eq!(again, Ok(trust));
    true
}

/// The root key's file.
pub(crate) fn root_key(input: &[u8]) -> bool {
    let Ok(key) = RootKey::from_json(input) else {
        return false;
    };
    let stored = key.to_json().expect("a key that was read");
    let again = RootKey::from_json(stored.as_bytes()).expect("what was written");
    assert_eq!(again.pin(), key.pin());
    assert_eq!(again.incarnation(), key.incarnation());
    true
}

/// A plain key set, as it is fetched.
pub(crate) fn key_set(input: &[u8]) -> bool {
    let Ok(keys) = KeySet::from_jwks(input) else {
        return false;
    };
    let again = KeySet::from_jwks(keys.to_jwks().to_string().as_bytes());
    assert_eq!(again.as_ref(), Ok(&keys));
    true
}

/// A log entry.
pub(crate) fn batch(input: &[u8]) -> bool {
    let Ok(batch) = decode_batch(input) else {
        return false;
    };
    // One batch has one form, or nodes could store different bytes for the same entry.
    assert_eq!(*encode_batch(&batch), *input);
    true
}
