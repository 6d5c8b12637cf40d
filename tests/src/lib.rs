//! Whole-system tests: what they share.
//!
//! Everything here works from outside: it starts the real binaries as processes, with real disks
//! and sockets, and speaks to them as any client would. What a run did is recorded as a history
//! and judged by the same promise checkers that the state machine is tested with.

pub mod agent;
pub mod binaries;
pub mod caller;
pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod command_line;
pub mod events;
pub mod folder;
pub mod grants;
pub mod herd;
pub mod history;
pub mod json_client;
pub mod keeper;
pub mod load;
pub mod node_log;
pub mod pipe;
pub mod ports;
pub mod proxy;
pub mod raw_grpc;
pub mod report;
pub mod scale;
pub mod seed;
pub mod setting;
pub mod shell;
pub mod slow_disk;
pub mod story;
pub mod tls;
pub mod wait;
pub mod waiter;
pub mod watchers;

/// What a cluster keeps of a bearer token.
#[must_use]
pub fn token_hash(token: &str) -> String {
    use base64::Engine as _;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest)
}
