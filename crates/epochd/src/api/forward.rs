//! Passing a call on to the leader, over its peer listener.

use epoch_proto::v1;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use tonic::transport::Channel;

use super::Result;
use super::failure::Failure;

/// Longer than a proposal may take on the leader, so that its answer arrives.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(6);

fn request<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(TIMEOUT);
    request
}

macro_rules! forward {
    ($($name:ident: $client:ident, $request:ident => $response:ident;)*) => {
        $(pub(super) async fn $name(
            channel: Channel,
            message: v1::$request,
        ) -> Result<v1::$response> {
            let answer = $client::new(channel).$name(request(message)).await;
            answer.map(tonic::Response::into_inner).map_err(|status| Failure::relayed(&status))
        })*
    };
}

forward! {
    open: SessionServiceClient, OpenRequest => Session;
    close: SessionServiceClient, CloseRequest => CloseResponse;
    acquire: EpochServiceClient, AcquireRequest => Grant;
    release: EpochServiceClient, ReleaseRequest => ReleaseResponse;
    revoke: EpochServiceClient, RevokeRequest => RevokeResponse;
    certify: EpochServiceClient, CertifyRequest => CertifyResponse;
    get: EpochServiceClient, GetRequest => ScopeState;
    list: EpochServiceClient, ListRequest => ListResponse;
}

/// One keepalive, as a stream of one message.
pub(super) async fn keep_alive(
    channel: Channel,
    session_id: &str,
) -> Result<v1::KeepAliveResponse> {
    let message = v1::KeepAliveRequest {
        session_id: session_id.to_owned(),
        ..v1::KeepAliveRequest::default()
    };
    let no_answer = || Failure::new(epoch_core::Reason::NoQuorum, "the leader did not answer");
    let exchange = async {
        let mut client = SessionServiceClient::new(channel);
        let answers = client.keep_alive(tokio_stream::once(message)).await;
        let mut answers = answers
            .map_err(|status| Failure::relayed(&status))?
            .into_inner();
        let answer = answers
            .message()
            .await
            .map_err(|status| Failure::relayed(&status))?;
        answer.ok_or_else(no_answer)
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    let answer = answer.map_err(|_elapsed| no_answer())??;
    match answer.reason.as_deref() {
        None => Ok(answer),
        Some(text) => {
            let reason = epoch_core::Reason::parse(text).unwrap_or(epoch_core::Reason::Internal);
            let message = answer.message.unwrap_or_default();
            Err(Failure {
                reason,
                message,
                details: Vec::new(),
            })
        }
    }
}
