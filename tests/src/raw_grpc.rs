//! Any gRPC call by its name, with its request as JSON: for tests that make every call there is.

use anyhow::{Context as _, Result, anyhow};
use bytes::{Buf as _, BufMut as _, Bytes};
use epoch_proto::v1;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Takes messages as they are on the wire.
#[derive(Debug, Default, Clone, Copy)]
struct AsIs;

impl Codec for AsIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

fn encoded<T: Message + DeserializeOwned>(json: Value) -> Result<Bytes> {
    let message: T = serde_json::from_value(json)?;
    Ok(message.encode_to_vec().into())
}

macro_rules! requests {
    ($($call:literal => $request:ident;)*) => {
        /// A call's request, from JSON with the proto's names.
        ///
        /// # Errors
        /// No such call, or the JSON does not fit.
        pub fn request(call: &str, json: Value) -> Result<Bytes> {
            match call {
                $($call => encoded::<v1::$request>(json),)*
                _ => Err(anyhow!("no call {call}")),
            }
        }

        /// Every call.
        pub const CALLS: &[&str] = &[$($call,)*];
    };
}

requests! {
    "SessionService.Open" => OpenRequest;
    "SessionService.KeepAlive" => KeepAliveRequest;
    "SessionService.Close" => CloseRequest;
    "SessionService.Get" => GetSessionRequest;
    "SessionService.List" => ListSessionsRequest;
    "EpochService.Acquire" => AcquireRequest;
    "EpochService.AcquireMany" => AcquireManyRequest;
    "EpochService.CancelWait" => CancelWaitRequest;
    "EpochService.Release" => ReleaseRequest;
    "EpochService.Transfer" => TransferRequest;
    "EpochService.Revoke" => RevokeRequest;
    "EpochService.Certify" => CertifyRequest;
    "EpochService.Get" => GetRequest;
    "EpochService.List" => ListRequest;
    "EpochService.Watch" => WatchRequest;
    "RecordService.Put" => PutRecordRequest;
    "RecordService.Get" => GetRecordRequest;
    "RecordService.Delete" => DeleteRecordRequest;
    "TrustService.Bundle" => BundleRequest;
    "TrustService.Keys" => KeysRequest;
    "TrustService.Rotate" => RotateRequest;
    "TrustService.Retire" => RetireRequest;
    "TrustService.PutBundle" => PutBundleRequest;
    "TrustService.PutStatement" => PutStatementRequest;
    "PermissionService.Grant" => GrantPermissionRequest;
    "PermissionService.Revoke" => RevokePermissionRequest;
    "PermissionService.List" => ListPermissionsRequest;
    "PermissionService.AddToken" => AddTokenRequest;
    "PermissionService.RemoveToken" => RemoveTokenRequest;
    "PermissionService.SetLimits" => SetLimitsRequest;
    "ClusterService.Status" => StatusRequest;
    "ClusterService.Audit" => AuditRequest;
}

/// Makes a call; its first answer, as it is on the wire, or the refusal.
///
/// # Errors
/// The call cannot be made at all.
pub async fn call(
    channel: &Channel,
    name: &str,
    request: Bytes,
    token: Option<&str>,
) -> Result<std::result::Result<Bytes, Status>> {
    let (service, method) = name.split_once('.').context("not Service.Method")?;
    let path = format!("/epochd.v1.{service}/{method}").parse()?;
    let mut request = Request::new(tokio_stream::once(request));
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse()?;
        request.metadata_mut().insert("authorization", bearer);
    }
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    // A call of one answer is a stream of one to its client.
    let answered = client.streaming(request, path, AsIs).await;
    let mut answers = match answered {
        Ok(answers) => answers.into_inner(),
        Err(refused) => return Ok(Err(refused)),
    };
    Ok(match answers.message().await {
        Ok(first) => Ok(first.unwrap_or_default()),
        Err(refused) => Err(refused),
    })
}
