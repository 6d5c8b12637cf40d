//! One node, called over JSON or gRPC, its answers sorted by what a client may conclude.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use epoch_proto::reason_of;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{AcquireRequest, KeepAliveRequest, OpenRequest, ReleaseRequest};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::cluster::Cluster;
use crate::json_client::{Answer, JsonClient};

/// The longest one try may take.
const TRY_BOUND: Duration = Duration::from_secs(5);

/// What a try taught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<T> {
    /// It was done.
    Done(T),
    /// It was refused, with this reason.
    Refused(String),
    /// It may or may not have been done: to be asked again, with the same id.
    Unknown(String),
}

impl<T> Reply<T> {
    /// What was done, turned into something else; an answer that lacks it counts as refused.
    pub fn map<U>(self, map: impl FnOnce(T) -> Option<U>) -> Reply<U> {
        match self {
            Self::Done(value) => map(value).map_or_else(
                || Reply::Refused("the answer lacks a field".to_owned()),
                Reply::Done,
            ),
            Self::Refused(reason) => Reply::Refused(reason),
            Self::Unknown(why) => Reply::Unknown(why),
        }
    }
}

/// A client of one node.
#[derive(Clone)]
pub enum Caller {
    /// Over JSON.
    Json(JsonClient),
    /// Over gRPC.
    Grpc(Channel),
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(client) => write!(f, "json {}", client.url()),
            Self::Grpc(_) => f.write_str("grpc"),
        }
    }
}

/// A gRPC channel to the listener at `url`, which connects when it is first used.
///
/// # Errors
/// `url` is none.
pub fn channel(url: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned())?;
    Ok(endpoint
        .connect_timeout(TRY_BOUND)
        .timeout(TRY_BOUND)
        .connect_lazy())
}

impl Caller {
    /// One caller for each node.
    ///
    /// # Errors
    /// The gRPC library cannot be set up.
    pub fn for_nodes(cluster: &Cluster, json: bool) -> Result<Vec<Self>> {
        let caller = |client: JsonClient| {
            Ok(if json {
                Self::Json(client.impatient())
            } else {
                Self::Grpc(channel(client.url())?)
            })
        };
        cluster.clients().into_iter().map(caller).collect()
    }

    /// Opens a session; its id.
    pub async fn open(&self, holder: &str, ttl: &str, open_id: &str) -> Reply<String> {
        match self {
            Self::Json(client) => {
                let body = json!({ "holder": holder, "ttl": ttl, "open_id": open_id });
                json_reply(client.post("/v1/sessions", &body).await)
                    .map(|body| Some(body["session_id"].as_str()?.to_owned()))
            }
            Self::Grpc(channel) => {
                let Some(seconds) = ttl.strip_suffix('s').and_then(|text| text.parse().ok()) else {
                    return Reply::Refused(format!("{ttl} is not in whole seconds"));
                };
                let request = OpenRequest {
                    holder: holder.to_owned(),
                    ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
                    open_id: Some(open_id.to_owned()),
                    ..OpenRequest::default()
                };
                let answer = SessionServiceClient::new(channel.clone())
                    .open(request)
                    .await;
                grpc_reply(answer).map(|session| Some(session.session_id))
            }
        }
    }

    /// Renews a session.
    pub async fn keep_alive(&self, session: &str) -> Reply<()> {
        match self {
            Self::Json(client) => {
                let path = format!("/v1/sessions/{session}/keepalive");
                json_reply(client.post(&path, &json!({})).await)
                    .map(|body| body["ttl"].as_str().map(drop))
            }
            Self::Grpc(channel) => grpc_keep_alive(channel, session).await,
        }
    }

    /// Tries to take a scope; the certificate.
    pub async fn acquire(&self, scope: &str, session: &str, request_id: u64) -> Reply<String> {
        match self {
            Self::Json(client) => json_reply(client.acquire(scope, session, request_id).await)
                .map(|body| Some(body["certificate"].as_str()?.to_owned())),
            Self::Grpc(channel) => {
                let request = AcquireRequest {
                    scope: scope.to_owned(),
                    session_id: session.to_owned(),
                    request_id,
                    ..AcquireRequest::default()
                };
                let answer = EpochServiceClient::new(channel.clone())
                    .acquire(request)
                    .await;
                grpc_reply(answer).map(|grant| Some(grant.certificate))
            }
        }
    }

    /// Gives a grant back; false when it was given back before.
    pub async fn release(&self, scope: &str, session: &str, epoch: u64) -> Reply<bool> {
        match self {
            Self::Json(client) => json_reply(client.release(scope, session, epoch).await)
                .map(|body| body["released"].as_bool()),
            Self::Grpc(channel) => {
                let (scope, session_id) = (scope.to_owned(), session.to_owned());
                let request = ReleaseRequest {
                    scope,
                    epoch,
                    session_id,
                };
                let answer = EpochServiceClient::new(channel.clone())
                    .release(request)
                    .await;
                grpc_reply(answer).map(|answer| Some(answer.released))
            }
        }
    }
}

async fn grpc_keep_alive(channel: &Channel, session: &str) -> Reply<()> {
    let request = KeepAliveRequest {
        session_id: session.to_owned(),
        ..KeepAliveRequest::default()
    };
    let renewing = async {
        let mut client = SessionServiceClient::new(channel.clone());
        let answers = client.keep_alive(tokio_stream::once(request)).await?;
        answers.into_inner().message().await
    };
    match tokio::time::timeout(TRY_BOUND, renewing).await {
        Err(_elapsed) => Reply::Unknown("no answer in time".to_owned()),
        Ok(Err(status)) => grpc_reply::<()>(Err(status)),
        Ok(Ok(None)) => Reply::Unknown("the stream ended without an answer".to_owned()),
        Ok(Ok(Some(answer))) => match answer.reason {
            None => Reply::Done(()),
            Some(reason) if is_unknown(&reason) => Reply::Unknown(reason),
            Some(reason) => Reply::Refused(reason),
        },
    }
}

/// Whether a reason leaves open what happened, or says that nothing did for now.
fn is_unknown(reason: &str) -> bool {
    matches!(reason, "NO_LEADER" | "NO_QUORUM" | "OVERLOADED")
}

fn json_reply(answer: Result<Answer>) -> Reply<Value> {
    match answer {
        Err(error) => Reply::Unknown(error.to_string()),
        Ok(answer) if answer.status == 200 => Reply::Done(answer.body),
        Ok(answer) => match answer.reason() {
            Some(reason) if is_unknown(reason) => Reply::Unknown(answer.text),
            Some(reason) => Reply::Refused(reason.to_owned()),
            None => Reply::Refused(format!("status {} without a reason", answer.status)),
        },
    }
}

fn grpc_reply<T>(answer: Result<tonic::Response<T>, Status>) -> Reply<T> {
    let status = match answer {
        Ok(answer) => return Reply::Done(answer.into_inner()),
        Err(status) => status,
    };
    match reason_of(&status) {
        Some(reason) if is_unknown(reason.as_str()) => Reply::Unknown(status.to_string()),
        Some(reason) => Reply::Refused(reason.as_str().to_owned()),
        // No answer of epochd's: a connection that broke, or was not to be had, or a time-out.
        None if matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
        ) || status.code() == Code::Internal =>
        {
            Reply::Unknown(status.to_string())
        }
        None => Reply::Refused(format!("{status}, without a reason")),
    }
}
