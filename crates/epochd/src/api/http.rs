//! The calls over JSON, with JWKS and health beside them.

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use epoch_core::Reason;
use epoch_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::Body;
use super::failure::Failure;
use super::{Api, Result};

/// Names the leader's client address in every answer.
const LEADER_HEADER: HeaderName = HeaderName::from_static("epochd-leader");
/// How long a resource may keep the key set, in seconds: the time after which a new key may sign.
const JWKS_MAX_AGE: HeaderValue = HeaderValue::from_static("public, max-age=600");

/// What later versions offer here: refused as such, so that a client can tell it from a typing
/// error.
const LATER: &[&str] = &[
    "/v1/record",
    "/v1/watch",
    "/v1/acquire-many",
    "/v1/transfer",
    "/v1/cancel-wait",
    "/v1/bundle",
];

/// The JSON surface, to be merged with the gRPC routes; `layered` gets all of them.
pub(crate) fn router(api: Api, grpc: Router) -> Router {
    let json = Router::new()
        .route("/v1/sessions", post(open))
        .route("/v1/sessions/{id}", delete(close))
        .route("/v1/sessions/{id}/keepalive", post(keep_alive))
        .route("/v1/acquire", post(acquire))
        .route("/v1/release", post(release))
        .route("/v1/certify", post(certify))
        .route("/v1/revoke", post(revoke))
        .route("/v1/scope", get(scope))
        .route("/v1/scopes", get(scopes))
        .route("/v1/cluster", get(cluster))
        .route("/.well-known/jwks.json", get(jwks))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .method_not_allowed_fallback(no_such_method)
        .with_state(api.clone());
    json.merge(grpc)
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(api, name_leader))
}

async fn name_leader(State(api): State<Api>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let leader = api
        .leader_address()
        .and_then(|address| HeaderValue::try_from(address).ok());
    if let Some(leader) = leader {
        response.headers_mut().insert(LEADER_HEADER, leader);
    }
    response
}

/// gRPC clients are answered in their own way.
fn is_grpc(request: &Request) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

async fn no_such_path(request: Request) -> Response {
    let path = request.uri().path();
    let failure = if LATER.iter().any(|later| path.starts_with(later)) {
        Failure::unimplemented(path)
    } else if is_grpc(&request) {
        Failure::unimplemented(&format!("the method {path}"))
    } else {
        Failure::new(Reason::NotFound, format_args!("there is no {path}"))
    };
    if is_grpc(&request) {
        return tonic::Status::from(failure).into_http::<axum::body::Body>();
    }
    failure.into_response()
}

async fn no_such_method(request: Request) -> Response {
    let failure = Failure {
        reason: Reason::NotFound,
        message: format!(
            "{} is not a method of {}; use the one that is",
            request.method(),
            request.uri().path()
        ),
        details: Vec::new(),
    };
    failure.problem(StatusCode::METHOD_NOT_ALLOWED)
}

fn parse<T: DeserializeOwned>(body: Body) -> Result<T> {
    let body = body.0?;
    // A list in the order of the fields would be read as one, whatever its author meant by it.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Failure::new(
            Reason::InvalidArgument,
            "the body: it is not a JSON object",
        ));
    }
    serde_json::from_slice(&body)
        .map_err(|error| Failure::new(Reason::InvalidArgument, format_args!("the body: {error}")))
}

/// The session id of a path.
fn parse_id(path: std::result::Result<Path<String>, PathRejection>) -> Result<String> {
    let Path(id) = path.map_err(|rejection| {
        Failure::new(
            Reason::InvalidArgument,
            format_args!("the path: {}", rejection.body_text()),
        )
    })?;
    Ok(id)
}

fn parse_query<T>(query: std::result::Result<Query<T>, QueryRejection>) -> Result<T> {
    let Query(query) = query.map_err(|rejection| {
        Failure::new(
            Reason::InvalidArgument,
            format_args!("the query: {}", rejection.body_text()),
        )
    })?;
    Ok(query)
}

/// Refuses what would be read with U+FFFD in its place: two names must never become one.
fn check_query(uri: &Uri) -> Result<()> {
    let query = uri.query().unwrap_or_default();
    match percent_encoding::percent_decode_str(query).decode_utf8() {
        Ok(_text) => Ok(()),
        Err(error) => Err(Failure::new(
            Reason::InvalidArgument,
            format_args!("the query: {error}"),
        )),
    }
}

impl Api {
    fn json<T: Serialize>(&self, result: Result<T>) -> Response {
        match self.counted(result) {
            Ok(answer) => axum::Json(answer).into_response(),
            Err(failure) => failure.into_response(),
        }
    }
}

macro_rules! calls {
    ($($handler:ident => $call:ident;)*) => {
        $(async fn $handler(State(api): State<Api>, body: Body) -> Response {
            let result = match parse(body) {
                Ok(request) => api.$call(request).await,
                Err(failure) => Err(failure),
            };
            api.json(result)
        })*
    };
}

calls! {
    open => open;
    acquire => acquire;
    release => release;
    certify => certify;
    revoke => revoke;
}

/// The body of a keepalive: nothing yet, so that an empty one will do.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct KeepAliveBody {}

async fn keep_alive(State(api): State<Api>, path: IdPath, body: Body) -> Response {
    let body = Body(body.0.map(|body| match body.is_empty() {
        true => "{}".into(),
        false => body,
    }));
    let result = match parse_id(path).and_then(|id| Ok((id, parse::<KeepAliveBody>(body)?))) {
        Ok((id, KeepAliveBody {})) => api.keep_alive(&id).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

async fn close(State(api): State<Api>, path: IdPath) -> Response {
    let result = match parse_id(path) {
        Ok(session_id) => api.close(v1::CloseRequest { session_id }).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

type IdPath = std::result::Result<Path<String>, PathRejection>;
type Query_<T> = std::result::Result<Query<T>, QueryRejection>;

async fn scope(State(api): State<Api>, uri: Uri, query: Query_<v1::GetRequest>) -> Response {
    let result = match check_query(&uri).and_then(|()| parse_query(query)) {
        Ok(request) => api.get(request).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

async fn scopes(State(api): State<Api>, uri: Uri, query: Query_<v1::ListRequest>) -> Response {
    let result = match check_query(&uri).and_then(|()| parse_query(query)) {
        Ok(request) => api.list(request).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

async fn cluster(State(api): State<Api>) -> Response {
    axum::Json(api.status()).into_response()
}

async fn jwks(State(api): State<Api>) -> Response {
    let mut response = axum::Json(api.jwks()).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, JWKS_MAX_AGE);
    response
}

async fn ready(State(api): State<Api>) -> Response {
    if api.node.is_ready() {
        "ok".into_response()
    } else {
        Failure::new(Reason::NoLeader, "no leader is known yet").into_response()
    }
}
