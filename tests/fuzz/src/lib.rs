//! Fuzz targets: whatever arrives from outside never panics, and is never taken for what it is not.
//!
//! A target is a function of bytes that says whether it took them as valid, and panics where a
//! promise about them does not hold. `scripts/fuzz TARGET` runs one under libFuzzer; the tests of
//! this package run every file of the corpus through every target.
//!
//! Nobody guesses a signature, so a text that begins with `!` is signed here first: see
//! [`world::text`].

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "to panic is how a target says that a promise does not hold"
)]

mod signed;
mod stored;
pub mod world;

mod requests;

/// Whether the input was taken as valid.
pub type Target = fn(&[u8]) -> bool;

/// All targets by name.
pub const TARGETS: [(&str, Target); 12] = [
    ("batch", stored::batch),
    ("bundle", signed::bundle),
    ("certificate", signed::certificate),
    ("grpc", requests::grpc),
    ("http", requests::http),
    ("key_offer", signed::key_offer),
    ("key_set", stored::key_set),
    ("proof", signed::proof),
    ("quorum_certificate", signed::quorum_certificate),
    ("root_key", stored::root_key),
    ("statement", signed::statement),
    ("stored_trust", stored::stored_trust),
];

/// Runs the input through one target.
///
/// # Panics
/// A promise does not hold, or there is no such target.
pub fn run(name: &str, input: &[u8]) -> bool {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    let (_, target) = found.expect("one of the targets");
    target(input)
}
