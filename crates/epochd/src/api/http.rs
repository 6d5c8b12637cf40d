//! The calls over JSON, with JWKS and health beside them.

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use epoch_core::Reason;
use epoch_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{self, About};
use super::body::Body;
use super::credential::Credential;
use super::failure::Failure;
use super::{Api, Result};
use crate::tls::TlsIdentity;

/// Names the leader's client address in every answer.
const LEADER_HEADER: HeaderName = HeaderName::from_static("epochd-leader");
/// The JSON surface, to be merged with the gRPC routes; `layered` gets all of them.
pub(crate) fn router(api: Api, grpc: Router) -> Router {
    let json = Router::new()
        .route("/v1/sessions", post(open).get(list_sessions))
        .route("/v1/sessions/{id}", delete(close).get(session))
        .route("/v1/sessions/{id}/keepalive", post(keep_alive))
        .route("/v1/acquire", post(acquire))
        .route("/v1/acquire-many", post(acquire_many))
        .route("/v1/cancel-wait", post(cancel_wait))
        .route("/v1/release", post(release))
        .route("/v1/transfer", post(transfer))
        .route("/v1/certify", post(certify))
        .route("/v1/revoke", post(revoke))
        .route("/v1/scope", get(scope))
        .route("/v1/scopes", get(scopes))
        .route("/v1/watch", get(watch))
        .route(
            "/v1/record",
            get(record).put(put_record).delete(delete_record),
        )
        .route("/v1/bundle", get(bundle).post(put_bundle))
        .route("/v1/keys", get(keys))
        .route("/v1/keys/rotate", post(rotate))
        .route("/v1/keys/retire", post(retire))
        .route("/v1/statement", post(put_statement))
        .route("/v1/permissions", get(list_permissions))
        .route("/v1/permissions/grant", post(grant_permission))
        .route("/v1/permissions/revoke", post(revoke_permission))
        .route("/v1/tokens/add", post(add_token))
        .route("/v1/tokens/remove", post(remove_token))
        .route("/v1/limits", post(set_limits))
        .route("/v1/audit", get(audit))
        .route("/v1/cluster", get(cluster))
        .route("/.well-known/jwks.json", get(jwks))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .method_not_allowed_fallback(no_such_method)
        .with_state(api.clone());
    json.merge(grpc)
        .fallback(no_such_path)
        .layer(middleware::from_fn(identify_client))
        .layer(middleware::from_fn_with_state(api, name_leader))
}

/// What the admin listener serves.
pub(crate) fn admin_router(api: Api) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(api)
        .layer(middleware::from_fn(identify_client))
}

async fn metrics(api: Api) -> Response {
    match api.counted(api.admit(access::METRICS, About::Nothing)) {
        Ok(_operator) => api.node.metrics.render().into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// Puts what a client shows of itself beside its request, which is under way until it is answered.
async fn identify_client(mut request: Request, next: Next) -> Response {
    let identity = request.extensions().get::<TlsIdentity>().cloned();
    let uris = identity.as_ref().map(|identity| &*identity.uris);
    let credential = Credential::of_client(request.headers(), uris.unwrap_or_default());
    request.extensions_mut().insert(credential);
    let under_way = identity.and_then(|identity| identity.place.begin());
    let answer = next.run(request).await;
    match under_way {
        Some(under_way) => under_way.with_answer(answer),
        None => answer,
    }
}

/// Puts what another node says of a caller beside the request that it passes on.
pub(crate) async fn identify_by_peer(mut request: Request, next: Next) -> Response {
    let credential = Credential::of_peer(request.headers());
    request.extensions_mut().insert(credential);
    next.run(request).await
}

/// The calls, for whoever makes the request.
impl FromRequestParts<Self> for Api {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &Self,
    ) -> std::result::Result<Self, Self::Rejection> {
        Ok(api.asked_by(&parts.extensions))
    }
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
    let failure = if is_grpc(&request) {
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
        $(async fn $handler(api: Api, body: Body) -> Response {
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
    acquire_many => acquire_many;
    cancel_wait => cancel_wait;
    release => release;
    transfer => transfer;
    certify => certify;
    revoke => revoke;
    put_bundle => put_bundle;
    rotate => rotate;
    retire => retire;
    put_statement => put_statement;
    grant_permission => grant_permission;
    revoke_permission => revoke_permission;
    add_token => add_token;
    remove_token => remove_token;
    set_limits => set_limits;
}

/// The body of a keepalive, which may be empty: the session is in the path.
#[derive(serde::Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct KeepAliveBody {
    grants: Option<String>,
    progress: Option<u64>,
}

async fn keep_alive(api: Api, path: IdPath, body: Body) -> Response {
    let body = Body(body.0.map(|body| match body.is_empty() {
        true => "{}".into(),
        false => body,
    }));
    let result = match parse_id(path).and_then(|id| Ok((id, parse::<KeepAliveBody>(body)?))) {
        Ok((session_id, KeepAliveBody { grants, progress })) => {
            let request = v1::KeepAliveRequest {
                session_id,
                grants,
                progress,
            };
            api.keep_alive(request).await
        }
        Err(failure) => Err(failure),
    };
    api.json(result)
}

#[derive(serde::Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct SessionQuery {
    limit: u32,
    page: Option<String>,
}

async fn session(api: Api, path: IdPath, uri: Uri, query: Query_<SessionQuery>) -> Response {
    let parsed = parse_id(path).and_then(|id| {
        check_query(&uri)?;
        Ok((id, parse_query(query)?))
    });
    let result = match parsed {
        Ok((session_id, SessionQuery { limit, page })) => {
            let request = v1::GetSessionRequest {
                session_id,
                limit,
                page,
            };
            api.get_session(request).await
        }
        Err(failure) => Err(failure),
    };
    api.json(result)
}

/// A record's scope is in the query, as it is when it is read; what is written is in the body.
async fn put_record(
    api: Api,
    uri: Uri,
    query: Query_<v1::GetRecordRequest>,
    body: Body,
) -> Response {
    let parsed = in_scope(&uri, query, body, |request: &mut v1::PutRecordRequest| {
        &mut request.scope
    });
    let result = match parsed {
        Ok(request) => api.put_record(request).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

async fn delete_record(
    api: Api,
    uri: Uri,
    query: Query_<v1::GetRecordRequest>,
    body: Body,
) -> Response {
    let parsed = in_scope(
        &uri,
        query,
        body,
        |request: &mut v1::DeleteRecordRequest| &mut request.scope,
    );
    let result = match parsed {
        Ok(request) => api.delete_record(request).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

/// A body whose scope stands in the query.
fn in_scope<T: DeserializeOwned>(
    uri: &Uri,
    query: Query_<v1::GetRecordRequest>,
    body: Body,
    scope_of: impl Fn(&mut T) -> &mut String,
) -> Result<T> {
    check_query(uri)?;
    let v1::GetRecordRequest { scope } = parse_query(query)?;
    let mut request: T = parse(body)?;
    let given = scope_of(&mut request);
    if !given.is_empty() && *given != scope {
        return Err(Failure::field(
            "scope",
            "the body names another than the query: give it in the query",
        ));
    }
    *given = scope;
    Ok(request)
}

async fn close(api: Api, path: IdPath) -> Response {
    let result = match parse_id(path) {
        Ok(session_id) => api.close(v1::CloseRequest { session_id }).await,
        Err(failure) => Err(failure),
    };
    api.json(result)
}

type IdPath = std::result::Result<Path<String>, PathRejection>;
type Query_<T> = std::result::Result<Query<T>, QueryRejection>;

macro_rules! reads {
    ($($handler:ident => $call:ident, $request:ident;)*) => {
        $(async fn $handler(
            api: Api,
            uri: Uri,
            query: Query_<v1::$request>,
        ) -> Response {
            let result = match check_query(&uri).and_then(|()| parse_query(query)) {
                Ok(request) => api.$call(request).await,
                Err(failure) => Err(failure),
            };
            api.json(result)
        })*
    };
}

reads! {
    scope => get, GetRequest;
    scopes => list, ListRequest;
    list_sessions => list_sessions, ListSessionsRequest;
    record => get_record, GetRecordRequest;
    keys => keys, KeysRequest;
    list_permissions => list_permissions, ListPermissionsRequest;
    audit => audit, AuditRequest;
}

/// One JSON object a line, as they come; a refusal is the last line, as `{"error": …}`.
async fn watch(api: Api, uri: Uri, query: Query_<v1::WatchRequest>) -> Response {
    let request = check_query(&uri).and_then(|()| parse_query(query));
    let said = match request {
        Ok(request) => api.watch(request).await,
        Err(failure) => Err(failure),
    };
    let said = match api.counted(said) {
        Ok(said) => said,
        Err(failure) => return failure.into_response(),
    };
    let lines = futures::StreamExt::map(said, move |said| {
        let line = match api.counted(said) {
            Ok(said) => serde_json::to_string(&said),
            Err(failure) => serde_json::to_string(&serde_json::json!({"error": {
                "reason": failure.reason.as_str(),
                "detail": failure.message,
            }})),
        };
        line.map(|line| line + "\n")
    });
    let mut response = Response::new(axum::body::Body::from_stream(lines));
    let content_type = HeaderValue::from_static("application/x-ndjson");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

async fn cluster(api: Api) -> Response {
    let status = api.status().await;
    api.json(status)
}

async fn bundle(api: Api, uri: Uri, query: Query_<v1::BundleRequest>) -> Response {
    let answer = match check_query(&uri).and_then(|()| parse_query(query)) {
        Ok(request) => api.bundle(request).await,
        Err(failure) => Err(failure),
    };
    let fresh_s = api.key_set_fresh_s();
    cached(api.json(answer), fresh_s)
}

async fn jwks(api: Api) -> Response {
    let fresh_s = api.key_set_fresh_s();
    cached(axum::Json(api.jwks()).into_response(), fresh_s)
}

/// An answer that caches may keep for so many seconds; a refusal they may not.
fn cached(mut response: Response, fresh_s: u64) -> Response {
    let kept = match response.status().is_success() {
        true => HeaderValue::try_from(format!("public, max-age={fresh_s}")),
        false => Ok(HeaderValue::from_static("no-store")),
    };
    if let Ok(kept) = kept {
        response.headers_mut().insert(header::CACHE_CONTROL, kept);
    }
    response
}

async fn ready(api: Api) -> Response {
    if api.node.is_ready() {
        "ok".into_response()
    } else {
        Failure::new(Reason::NoLeader, "no leader is known yet").into_response()
    }
}
