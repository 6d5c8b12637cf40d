//! Passing a call on to the leader, over its peer listener.

use std::time::Duration;

use epoch_machine::Wait;
use epoch_proto::v1;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::record_service_client::RecordServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use tonic::transport::Channel;

use super::Result;
use super::failure::Failure;

/// Longer than a proposal may take on the leader, so that its answer arrives.
const TIMEOUT: Duration = Duration::from_secs(6);

fn request<T>(message: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(timeout);
    request
}

macro_rules! forward {
    ($($name:ident: $client:ident.$call:ident, $request:ident => $response:ident;)*) => {
        $(pub(super) async fn $name(
            channel: Channel,
            message: v1::$request,
        ) -> Result<v1::$response> {
            let answer = $client::new(channel).$call(request(message, TIMEOUT)).await;
            answer.map(tonic::Response::into_inner).map_err(|status| Failure::relayed(&status))
        })*
    };
}

forward! {
    open: SessionServiceClient.open, OpenRequest => Session;
    close: SessionServiceClient.close, CloseRequest => CloseResponse;
    get_session: SessionServiceClient.get, GetSessionRequest => SessionState;
    list_sessions: SessionServiceClient.list, ListSessionsRequest => ListSessionsResponse;
    acquire_many: EpochServiceClient.acquire_many, AcquireManyRequest => AcquireManyResponse;
    cancel_wait: EpochServiceClient.cancel_wait, CancelWaitRequest => CancelWaitResponse;
    release: EpochServiceClient.release, ReleaseRequest => ReleaseResponse;
    transfer: EpochServiceClient.transfer, TransferRequest => TransferResponse;
    revoke: EpochServiceClient.revoke, RevokeRequest => RevokeResponse;
    certify: EpochServiceClient.certify, CertifyRequest => CertifyResponse;
    get: EpochServiceClient.get, GetRequest => ScopeState;
    list: EpochServiceClient.list, ListRequest => ListResponse;
    put_record: RecordServiceClient.put, PutRecordRequest => PutRecordResponse;
    get_record: RecordServiceClient.get, GetRecordRequest => Record;
    delete_record: RecordServiceClient.delete, DeleteRecordRequest => DeleteRecordResponse;
}

/// An acquire takes as long as it waits.
pub(super) async fn acquire(
    channel: Channel,
    message: v1::AcquireRequest,
    wait: Wait,
) -> Result<v1::Grant> {
    let timeout = TIMEOUT + Duration::from_millis(wait.ms());
    let answer = EpochServiceClient::new(channel)
        .acquire(request(message, timeout))
        .await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| Failure::relayed(&status))
}

/// One keepalive, as a stream of one message.
pub(super) async fn keep_alive(
    channel: Channel,
    message: v1::KeepAliveRequest,
) -> Result<v1::KeepAliveResponse> {
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
