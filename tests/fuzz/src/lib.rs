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

mod mutate;
mod signed;
mod stored;
pub mod world;

mod requests;

pub use self::mutate::mutate;

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

/// A fuzz target's program, for libFuzzer: half of the changes it makes know JSON.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            $crate::run($name, input);
        });

        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let input = data.get(..size).unwrap_or_default();
            match $crate::mutate(input, max_size, seed).filter(|_| seed % 2 == 0) {
                Some(changed) => {
                    data[..changed.len()].copy_from_slice(&changed);
                    changed.len()
                }
                None => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
            }
        });
    };
}
