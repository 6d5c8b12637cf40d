//! Compiles the protocol with a pure Rust compiler: a fresh machine needs no protoc.

use std::error::Error;
use std::path::PathBuf;

/// Fields that JSON writes as "10s".
const DURATIONS: &[&str] = &[
    "OpenRequest.ttl",
    "OpenRequest.stall_limit",
    "Session.ttl",
    "Session.stall_limit",
    "SessionState.ttl",
    "SessionState.left",
    "SessionState.stall_limit",
    "SessionSummary.ttl",
    "SessionSummary.left",
    "SessionSummary.stall_limit",
    "KeepAliveResponse.ttl",
    "AcquireRequest.wait",
    "AcquireRequest.lock_delay",
    "AcquireManyRequest.lock_delay",
    "KeysResponse.max_age",
    "AddTokenRequest.ttl",
];
/// Fields that JSON leaves out where they are absent.
const OPTIONALS: &[&str] = &[
    "OpenRequest.open_id",
    "KeepAliveRequest.grants",
    "KeepAliveRequest.progress",
    "GetSessionRequest.page",
    "SessionState.next_page",
    "ListSessionsRequest.page",
    "ListSessionsResponse.next_page",
    "CancelWaitResponse.epoch",
    "ScopeState.metadata",
    "WatchRequest.after",
    "Event.ended",
    "Event.holder",
    "Event.session",
    "PutRecordRequest.expected_revision",
    "PutRecordRequest.intent_id",
    "Record.epoch",
    "DeleteRecordRequest.expected_revision",
    "DeleteRecordRequest.intent_id",
    "KeepAliveResponse.reason",
    "KeepAliveResponse.message",
    "RevokeRequest.epoch",
    "ScopeState.epoch",
    "ScopeState.holder",
    "ScopeState.session",
    "ScopeState.position",
    "ListRequest.page",
    "ListResponse.next_page",
    "StatusResponse.leader",
    "OpenRequest.holder_key",
    "Session.holder_key",
    "ListPermissionsRequest.page",
    "ListPermissionsResponse.next_page",
    "Principal.limits",
    "Token.expires_ms",
    "Limits.sessions",
    "Limits.grants",
    "Limits.waits",
    "Limits.requests_per_second",
    "SetLimitsRequest.limits",
    "AuditRequest.page",
    "AuditResponse.next_page",
    "AuditRecord.principal",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let public = "epochd/v1/epochd.proto";
    let internal = "epochd/raft/v1/raft.proto";
    for file in [public, internal] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }

    let descriptors = protox::compile([public, internal], [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // Reflection serves the public part only.
    let reflected = protox::compile([public], [&root])?;
    std::fs::write(out.join("public.bin"), prost_encode(&reflected))?;

    // JSON mirrors the public messages: same names, unknown fields refused, what is absent is
    // the default (and then refused by the same check as over gRPC).
    let json = "#[derive(serde::Serialize, serde::Deserialize)] \
                #[serde(default, deny_unknown_fields)]";
    let mut builder = tonic_prost_build::configure()
        .bytes(".epochd.raft.v1")
        .type_attribute(".epochd.v1", json);
    for duration in DURATIONS {
        builder = builder.field_attribute(
            format!("epochd.v1.{duration}"),
            "#[serde(with = \"crate::duration\", skip_serializing_if = \"Option::is_none\")]",
        );
    }
    builder = builder
        .field_attribute(
            "epochd.v1.PutRecordRequest.value",
            "#[serde(with = \"crate::base64url\")]",
        )
        .field_attribute(
            "epochd.v1.Record.value",
            "#[serde(with = \"crate::base64url::option\", skip_serializing_if = \"Option::is_none\")]",
        );
    for optional in OPTIONALS {
        builder = builder.field_attribute(
            format!("epochd.v1.{optional}"),
            "#[serde(skip_serializing_if = \"Option::is_none\")]",
        );
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}

fn prost_encode(set: &impl prost::Message) -> Vec<u8> {
    set.encode_to_vec()
}
