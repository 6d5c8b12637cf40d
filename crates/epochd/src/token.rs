//! Bearer tokens: only their hashes are kept.

use aws_lc_rs::digest;
use epoch_machine::TokenHash;

/// What is kept of a token.
pub(crate) fn hash_of_token(token: &str) -> TokenHash {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    TokenHash(hash)
}
