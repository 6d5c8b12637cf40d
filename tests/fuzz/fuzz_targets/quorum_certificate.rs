//! See `epoch_fuzz`.
#![no_main]

epoch_fuzz::program!("quorum_certificate");
