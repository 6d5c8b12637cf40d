//! Bad input, over JSON and gRPC: the right reason, no panic, and the node goes on.

mod grpc;
mod json;
mod raw;
mod setting;
mod values;
