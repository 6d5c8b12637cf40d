//! See `epoch_fuzz`.
#![no_main]

epoch_fuzz::program!("proof");
