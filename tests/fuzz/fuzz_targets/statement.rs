//! See `epoch_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    epoch_fuzz::run("statement", input);
});
