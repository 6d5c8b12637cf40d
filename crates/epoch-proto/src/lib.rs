//! The wire formats: code generated from `proto/`, and the one mapping between reasons and the
//! status codes of gRPC and HTTP.

pub mod base64url;
pub mod duration;
mod status;

pub use status::{ERROR_DOMAIN, grpc_code, http_status, reason_of, refusal};

/// The public API.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("epochd.v1");
}

/// What nodes say to each other, and what they store.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod raft {
    tonic::include_proto!("epochd.raft.v1");
}

/// The public API's descriptors, for reflection.
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/public.bin"));
