//! The seed of a random test: printed, so that a failure can be run again.

use std::env;

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// The seed from `EPOCH_SEED`, or a fresh one; printed with how to use it again.
///
/// # Errors
/// `EPOCH_SEED` is not a number.
#[expect(clippy::print_stderr, reason = "the seed has to be seen")]
pub fn seed() -> Result<u64> {
    let seed = match env::var("EPOCH_SEED") {
        Ok(text) => text.parse().context("EPOCH_SEED must be a number")?,
        Err(_unset) => rand::random(),
    };
    eprintln!("seed {seed} (EPOCH_SEED={seed} draws the same victims and times)");
    Ok(seed)
}

/// A random source of its own for each user of one seed.
#[must_use]
pub fn source(seed: u64, user: u64) -> StdRng {
    // Odd multiplier: users of one seed never share a stream.
    StdRng::seed_from_u64(seed ^ user.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
