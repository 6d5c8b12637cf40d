//! How much a test does, from the environment.

use std::env;

use anyhow::{Context as _, Result};

/// A count from the environment.
///
/// # Errors
/// It is set, and not a number.
pub fn setting(name: &str, default: u64) -> Result<u64> {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name} must be a number")),
        Err(_unset) => Ok(default),
    }
}
