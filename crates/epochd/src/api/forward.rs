//! Passing a call on to the leader, over its peer listener.

use std::time::Duration;

use epoch_core::Reason;
use epoch_machine::Wait;
use epoch_proto::v1;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::permission_service_client::PermissionServiceClient;
use epoch_proto::v1::record_service_client::RecordServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::trust_service_client::TrustServiceClient;
use tonic::transport::Channel;

use super::Result;
use super::credential::Credential;
use super::failure::Failure;

/// Longer than a proposal may take on the leader, so that its answer arrives.
const TIMEOUT: Duration = Duration::from_secs(6);

/// The leader, and who asks it.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) channel: Channel,
    pub(super) credential: Credential,
}

impl Leader {
    fn request<T>(&self, message: T, timeout: Duration) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(timeout);
        self.credential.pass_on(&mut request);
        request
    }
}

macro_rules! forward {
    ($($name:ident: $client:ident.$call:ident, $request:ident => $response:ident;)*) => {
        $(pub(super) async fn $name(
            leader: Leader,
            message: v1::$request,
        ) -> Result<v1::$response> {
            let request = leader.request(message, TIMEOUT);
            let answer = $client::new(leader.channel).$call(request).await;
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
    rotate: TrustServiceClient.rotate, RotateRequest => RotateResponse;
    retire: TrustServiceClient.retire, RetireRequest => RetireResponse;
    put_bundle: TrustServiceClient.put_bundle, PutBundleRequest => PutBundleResponse;
    put_statement: TrustServiceClient.put_statement, PutStatementRequest => PutStatementResponse;
    grant_permission: PermissionServiceClient.grant, GrantPermissionRequest => GrantPermissionResponse;
    revoke_permission: PermissionServiceClient.revoke, RevokePermissionRequest => RevokePermissionResponse;
    list_permissions: PermissionServiceClient.list, ListPermissionsRequest => ListPermissionsResponse;
    add_token: PermissionServiceClient.add_token, AddTokenRequest => AddTokenResponse;
    remove_token: PermissionServiceClient.remove_token, RemoveTokenRequest => RemoveTokenResponse;
    set_limits: PermissionServiceClient.set_limits, SetLimitsRequest => SetLimitsResponse;
}

/// An acquire takes as long as it waits.
pub(super) async fn acquire(
    leader: Leader,
    message: v1::AcquireRequest,
    wait: Wait,
) -> Result<v1::Grant> {
    let timeout = TIMEOUT + Duration::from_millis(wait.ms());
    let request = leader.request(message, timeout);
    let answer = EpochServiceClient::new(leader.channel)
        .acquire(request)
        .await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| Failure::relayed(&status))
}

/// Keepalives, as a stream of them all; their answers, in the same order.
pub(super) async fn keep_alives(
    leader: Leader,
    messages: impl ExactSizeIterator<Item = v1::KeepAliveRequest> + Send + 'static,
) -> Vec<Result<v1::KeepAliveResponse>> {
    let count = messages.len();
    let mut answers = Vec::with_capacity(count);
    let exchange = async {
        let mut request = tonic::Request::new(tokio_stream::iter(messages));
        leader.credential.pass_on(&mut request);
        let mut client = SessionServiceClient::new(leader.channel);
        let stream = client.keep_alive(request).await?;
        let mut stream = stream.into_inner();
        while answers.len() < count
            && let Some(answer) = stream.message().await?
        {
            answers.push(kept(answer));
        }
        Ok::<_, tonic::Status>(())
    };
    let why = match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(Err(status)) => Failure::relayed(&status),
        Ok(Ok(())) | Err(_) => Failure::new(Reason::NoQuorum, "the leader did not answer"),
    };
    answers.resize_with(count, || Err(why.clone()));
    answers
}

fn kept(answer: v1::KeepAliveResponse) -> Result<v1::KeepAliveResponse> {
    let Some(text) = answer.reason.as_deref() else {
        return Ok(answer);
    };
    Err(Failure {
        reason: Reason::parse(text).unwrap_or(Reason::Internal),
        message: answer.message.unwrap_or_default(),
        details: Vec::new(),
    })
}
