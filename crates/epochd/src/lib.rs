//! One node of the cluster: consensus, services, settings.
//!
//! - [`raft`]: the narrow interface to consensus, the only user of openraft.
//! - [`node`]: what a node does besides: batching, leases, leadership, leadership checks.
//! - [`watch`]: the latest events of grants, and who waits for more.
//! - [`api`]: the calls, over gRPC and JSON.
//! - [`tls`]: who is at the other end of a connection. [`connections`]: how many there may be, and
//!   for how long.
//! - [`server`]: the listeners. [`init`], [`dev`]: making and running clusters.
#![cfg_attr(test, allow(clippy::indexing_slicing, reason = "tests may panic"))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the map above is for those who read the code"
)]

mod api;
pub mod clock;
mod connections;
pub mod dev;
pub mod fatal;
mod first_trust;
pub mod init;
pub mod inspect;
mod metrics;
mod node;
mod raft;
mod seed;
pub mod server;
pub mod settings;
mod tls;
mod token;
mod watch;

pub use seed::Addresses;
