//! One request of every kind, over HTTP and over gRPC.

use epoch_core::TextKind;
use epoch_fuzz::world::{self, NOW_S, ROOT, holder, key, signed_by};
use epoch_proto::v1;
use prost::Message;
use serde::Serialize;

use super::{Seed, seed, session};

/// Where JSON has the request.
enum Place<'a> {
    /// In the body, under this method.
    Body(&'a str, &'a str),
    /// In the query, as it is written here.
    Query(&'a str),
}

fn both(method: &str, place: &Place<'_>, request: &(impl Message + Serialize)) -> [Seed; 2] {
    let name = format!("valid-{}", method.replace('/', "-"));
    let http = match place {
        Place::Body(method, path) => {
            let body = serde_json::to_string(request).unwrap();
            format!("{method} /v1/{path}\nauthorization: Bearer secret\n\n{body}")
        }
        Place::Query(target) => format!("GET /v1/{target}"),
    };
    let mut grpc = format!("/epochd.v1.{method}\n").into_bytes();
    request.encode(&mut grpc).unwrap();
    [seed("http", &name, http), seed("grpc", &name, grpc)]
}

pub(super) fn all() -> Vec<Seed> {
    let mut all = of_sessions();
    all.extend(of_grants());
    all.extend(of_records());
    all.extend(of_trust());
    all.extend(of_operators());
    all.extend([
        seed(
            "http",
            "refused-field",
            "POST /v1/acquire\n\n{\"scopes\":1}",
        ),
        seed("http", "refused-query", "GET /v1/scope?scope=%ff"),
        seed("http", "refused-path", "PUT /v1/scope/a"),
        seed(
            "grpc",
            "refused-message",
            "/epochd.v1.EpochService/Acquire\n\n",
        ),
    ]);
    all
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn scope() -> String {
    "reports/research-note".to_owned()
}

fn of_sessions() -> Vec<Seed> {
    let session_id = session().to_string();
    let path = format!("sessions/{session_id}");
    let keepalive = format!("{path}/keepalive");
    let open = v1::OpenRequest {
        holder: "agent-a".to_owned(),
        ttl: seconds(60),
        open_id: Some(session().open_id.to_string()),
        stall_limit: seconds(3_600),
        holder_key: Some(holder().thumbprint().to_string()),
    };
    let keep_alive = v1::KeepAliveRequest {
        session_id: session_id.clone(),
        grants: None,
        progress: Some(7),
    };
    let get = v1::GetSessionRequest {
        session_id: session_id.clone(),
        limit: 10,
        page: None,
    };
    let list = v1::ListSessionsRequest {
        holder: "agent-a".to_owned(),
        limit: 10,
        page: None,
    };
    let close = v1::CloseRequest { session_id };
    let query = format!("{path}?limit=10");
    let mut all = [
        both(
            "SessionService/Open",
            &Place::Body("POST", "sessions"),
            &open,
        ),
        both("SessionService/Get", &Place::Query(&query), &get),
        both(
            "SessionService/List",
            &Place::Query("sessions?holder=agent-a&limit=10"),
            &list,
        ),
        both(
            "SessionService/Close",
            &Place::Body("DELETE", &path),
            &close,
        ),
        both(
            "SessionService/KeepAlive",
            &Place::Body("POST", &keepalive),
            &keep_alive,
        ),
    ]
    .concat();
    // Over HTTP, the session is in the path only.
    let body = format!("POST /v1/{keepalive}\n\n{{\"progress\":7}}");
    all.retain(|(target, name, _)| *target != "http" || !name.ends_with("KeepAlive"));
    all.push(seed("http", "valid-SessionService-KeepAlive", body));
    all
}

fn of_grants() -> Vec<Seed> {
    let session_id = session().to_string();
    let acquire = v1::AcquireRequest {
        scope: scope(),
        session_id: session_id.clone(),
        request_id: 9,
        audience: vec!["files".to_owned()],
        wait: seconds(30),
        reissue: true,
        lock_delay: seconds(1),
        metadata: "run 7".to_owned(),
        signatures: 1,
    };
    let acquire_many = v1::AcquireManyRequest {
        scopes: vec![scope(), "a".to_owned()],
        session_id: session_id.clone(),
        request_id: 9,
        lock_delay: seconds(1),
        ..v1::AcquireManyRequest::default()
    };
    let cancel = v1::CancelWaitRequest {
        scope: scope(),
        session_id: session_id.clone(),
        request_id: 9,
    };
    let release = v1::ReleaseRequest {
        scope: scope(),
        epoch: 42,
        session_id: session_id.clone(),
    };
    let transfer = v1::TransferRequest {
        scope: scope(),
        epoch: 42,
        session_id: session_id.clone(),
        to: session().hash().to_string(),
    };
    let revoke = v1::RevokeRequest {
        scope: scope(),
        epoch: Some(42),
        signatures: 1,
    };
    let certify = v1::CertifyRequest {
        scope: scope(),
        epoch: 42,
        session_id,
        audience: vec!["files".to_owned()],
        signatures: 1,
    };
    let get = v1::GetRequest {
        scope: scope(),
        queue_limit: 5,
    };
    let list = v1::ListRequest {
        prefix: "reports/".to_owned(),
        limit: 5,
        ..v1::ListRequest::default()
    };
    let watch = v1::WatchRequest {
        prefix: "reports/".to_owned(),
        ..v1::WatchRequest::default()
    };
    let post = |path| Place::Body("POST", path);
    let one = "scope?scope=reports%2Fresearch-note&queue_limit=5";
    [
        both("EpochService/Acquire", &post("acquire"), &acquire),
        both(
            "EpochService/AcquireMany",
            &post("acquire-many"),
            &acquire_many,
        ),
        both("EpochService/CancelWait", &post("cancel-wait"), &cancel),
        both("EpochService/Release", &post("release"), &release),
        both("EpochService/Transfer", &post("transfer"), &transfer),
        both("EpochService/Revoke", &post("revoke"), &revoke),
        both("EpochService/Certify", &post("certify"), &certify),
        both("EpochService/Get", &Place::Query(one), &get),
        both(
            "EpochService/List",
            &Place::Query("scopes?prefix=reports/&limit=5"),
            &list,
        ),
        both(
            "EpochService/Watch",
            &Place::Query("watch?prefix=reports/"),
            &watch,
        ),
    ]
    .concat()
}

fn of_records() -> Vec<Seed> {
    let put = v1::PutRecordRequest {
        scope: scope(),
        epoch: 42,
        session_id: session().to_string(),
        value: b"draft".to_vec(),
        expected_revision: Some(0),
        intent_id: Some("intent".to_owned()),
    };
    let delete = v1::DeleteRecordRequest {
        scope: scope(),
        epoch: 42,
        session_id: session().to_string(),
        expected_revision: Some(1),
        intent_id: None,
    };
    let record = "record?scope=reports/research-note";
    [
        both("RecordService/Put", &Place::Body("PUT", record), &put),
        both(
            "RecordService/Delete",
            &Place::Body("DELETE", record),
            &delete,
        ),
        both(
            "RecordService/Get",
            &Place::Query(record),
            &v1::GetRecordRequest { scope: scope() },
        ),
    ]
    .concat()
}

fn of_trust() -> Vec<Seed> {
    let bundle = world::bundle().to_json();
    let put_bundle = v1::PutBundleRequest {
        bundle: signed_by(TextKind::Bundle, &[ROOT], &bundle).unwrap(),
    };
    let put_statement = v1::PutStatementRequest {
        statement: signed_by(TextKind::Statement, &[ROOT], "{}").unwrap(),
    };
    let retire = v1::RetireRequest {
        kid: key(4).id().to_string(),
    };
    let after = v1::BundleRequest { after: NOW_S };
    let rotate = v1::RotateRequest { node: 2 };
    let post = |path| Place::Body("POST", path);
    let get = Place::Query;
    [
        both(
            "TrustService/Bundle",
            &get("bundle?after=1767225600"),
            &after,
        ),
        both("TrustService/Keys", &get("keys"), &v1::KeysRequest {}),
        both("TrustService/Rotate", &post("keys/rotate"), &rotate),
        both("TrustService/Retire", &post("keys/retire"), &retire),
        both("TrustService/PutBundle", &post("bundle"), &put_bundle),
        both(
            "TrustService/PutStatement",
            &post("statement"),
            &put_statement,
        ),
    ]
    .concat()
}

fn of_operators() -> Vec<Seed> {
    let grant = v1::GrantPermissionRequest {
        principal: "agent-a".to_owned(),
        prefix: "reports/".to_owned(),
        verbs: vec!["acquire".to_owned(), "read".to_owned()],
    };
    let revoke = v1::RevokePermissionRequest {
        principal: "agent-a".to_owned(),
        prefix: "reports/".to_owned(),
    };
    let add = v1::AddTokenRequest {
        principal: "agent-a".to_owned(),
        label: "ci-1".to_owned(),
        hash: holder().thumbprint().to_string(),
        ttl: seconds(3_600),
    };
    let remove = v1::RemoveTokenRequest {
        principal: "agent-a".to_owned(),
        label: "ci-1".to_owned(),
    };
    let limits = v1::SetLimitsRequest {
        principal: "agent-a".to_owned(),
        limits: Some(v1::Limits {
            sessions: Some(7),
            ..v1::Limits::default()
        }),
    };
    let audit = v1::AuditRequest {
        limit: 5,
        page: None,
        denials: true,
    };
    let list = v1::ListPermissionsRequest {
        limit: 5,
        page: None,
    };
    let post = |path| Place::Body("POST", path);
    let get = Place::Query;
    [
        both(
            "PermissionService/Grant",
            &post("permissions/grant"),
            &grant,
        ),
        both(
            "PermissionService/Revoke",
            &post("permissions/revoke"),
            &revoke,
        ),
        both("PermissionService/List", &get("permissions?limit=5"), &list),
        both("PermissionService/AddToken", &post("tokens/add"), &add),
        both(
            "PermissionService/RemoveToken",
            &post("tokens/remove"),
            &remove,
        ),
        both("PermissionService/SetLimits", &post("limits"), &limits),
        both(
            "ClusterService/Audit",
            &get("audit?limit=5&denials=true"),
            &audit,
        ),
        both(
            "ClusterService/Status",
            &get("cluster"),
            &v1::StatusRequest {},
        ),
    ]
    .concat()
}
