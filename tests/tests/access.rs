//! Every call and route, as nobody, as tenants of other scopes, as a reader, and with another's
//! session: what is denied is denied alike whether it exists or not.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use epoch_core::{BundleKey, ClusterId, FirstTerms, Incarnation, RootKey, VerifyingKey};
use epoch_proto::v1;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::json_client::JsonClient;
use epoch_tests::raw_grpc::{self, CALLS};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

/// What a call names: everything of it exists, or nothing.
#[derive(Debug, Clone)]
struct Named {
    scope: String,
    epoch: u64,
    session: String,
    hash: String,
    principal: String,
    label: String,
    kid: String,
    bundle: String,
}

/// A call in both its forms: its JSON route with the body, and the proto's request.
#[derive(Debug)]
struct Call {
    name: &'static str,
    method: &'static str,
    path: String,
    body: Option<Value>,
    request: Value,
}

fn call(name: &'static str, method: &'static str, path: &str, body: Value) -> Call {
    Call {
        name,
        method,
        path: path.to_owned(),
        body: (method != "GET").then(|| body.clone()),
        request: body,
    }
}

/// Every call there is, of these names.
#[expect(clippy::too_many_lines, reason = "one entry a call")]
fn calls(named: &Named) -> Vec<Call> {
    let Named {
        scope,
        epoch,
        session,
        hash,
        principal,
        label,
        kid,
        bundle,
    } = named;
    let held = json!({"scope": scope, "epoch": epoch, "session_id": session});
    let acquire = json!({"scope": scope, "session_id": session, "request_id": 77});
    let of_session = json!({"session_id": session});
    let of_scope = json!({"scope": scope});
    let query = format!("scope={scope}");
    let record = json!({"epoch": epoch, "session_id": session});
    let with_scope = |mut request: Value| {
        request["scope"] = json!(scope);
        request
    };
    let put = json!({"epoch": epoch, "session_id": session, "value": "AA"});
    let none = json!({});
    let session_path = |rest: &str| format!("/v1/sessions/{session}{rest}");
    let mut calls = vec![
        call(
            "SessionService.Open",
            "POST",
            "/v1/sessions",
            json!({"holder": format!("{principal}/x"), "ttl": "10s"}),
        ),
        call("SessionService.List", "GET", "/v1/sessions", none.clone()),
        call(
            "EpochService.Acquire",
            "POST",
            "/v1/acquire",
            acquire.clone(),
        ),
        call(
            "EpochService.AcquireMany",
            "POST",
            "/v1/acquire-many",
            json!({"scopes": [scope], "session_id": session, "request_id": 78}),
        ),
        call(
            "EpochService.CancelWait",
            "POST",
            "/v1/cancel-wait",
            acquire,
        ),
        call("EpochService.Release", "POST", "/v1/release", held.clone()),
        call(
            "EpochService.Transfer",
            "POST",
            "/v1/transfer",
            json!({"scope": scope, "epoch": epoch, "session_id": session, "to": hash}),
        ),
        call(
            "EpochService.Revoke",
            "POST",
            "/v1/revoke",
            of_scope.clone(),
        ),
        call("EpochService.Certify", "POST", "/v1/certify", held),
        call(
            "EpochService.Get",
            "GET",
            &format!("/v1/scope?{query}"),
            of_scope.clone(),
        ),
        call(
            "EpochService.List",
            "GET",
            &format!("/v1/scopes?prefix={scope}"),
            json!({"prefix": scope}),
        ),
        call(
            "EpochService.Watch",
            "GET",
            &format!("/v1/watch?{query}"),
            of_scope.clone(),
        ),
        call(
            "RecordService.Get",
            "GET",
            &format!("/v1/record?{query}"),
            of_scope,
        ),
        call("TrustService.Bundle", "GET", "/v1/bundle", none.clone()),
        call("TrustService.Keys", "GET", "/v1/keys", none.clone()),
        call(
            "TrustService.Rotate",
            "POST",
            "/v1/keys/rotate",
            json!({"node": 1}),
        ),
        call(
            "TrustService.Retire",
            "POST",
            "/v1/keys/retire",
            json!({"kid": kid}),
        ),
        call(
            "TrustService.PutBundle",
            "POST",
            "/v1/bundle",
            json!({"bundle": bundle}),
        ),
        call(
            "TrustService.PutStatement",
            "POST",
            "/v1/statement",
            json!({"statement": "a.b.c"}),
        ),
        call(
            "PermissionService.Grant",
            "POST",
            "/v1/permissions/grant",
            json!({"principal": principal, "prefix": scope, "verbs": ["read"]}),
        ),
        call(
            "PermissionService.Revoke",
            "POST",
            "/v1/permissions/revoke",
            json!({"principal": principal, "prefix": scope}),
        ),
        call(
            "PermissionService.List",
            "GET",
            "/v1/permissions",
            none.clone(),
        ),
        call(
            "PermissionService.AddToken",
            "POST",
            "/v1/tokens/add",
            json!({"principal": principal, "label": label, "hash": kid}),
        ),
        call(
            "PermissionService.RemoveToken",
            "POST",
            "/v1/tokens/remove",
            json!({"principal": principal, "label": label}),
        ),
        call(
            "PermissionService.SetLimits",
            "POST",
            "/v1/limits",
            json!({"principal": principal}),
        ),
        call("ClusterService.Status", "GET", "/v1/cluster", none.clone()),
        call("ClusterService.Audit", "GET", "/v1/audit", none),
    ];
    for (name, method, path, body) in [
        (
            "SessionService.KeepAlive",
            "POST",
            session_path("/keepalive"),
            json!({}),
        ),
        (
            "SessionService.Close",
            "DELETE",
            session_path(""),
            json!({}),
        ),
        ("SessionService.Get", "GET", session_path(""), json!({})),
    ] {
        calls.push(Call {
            request: of_session.clone(),
            ..call(name, method, &path, body)
        });
    }
    for (name, method, body) in [
        ("RecordService.Put", "PUT", put),
        ("RecordService.Delete", "DELETE", record),
    ] {
        calls.push(Call {
            request: with_scope(body.clone()),
            ..call(name, method, &format!("/v1/record?{query}"), body)
        });
    }
    calls
}

/// Well-formed, and of another cluster: who may do nothing must not learn even that.
fn foreign_bundle() -> Result<String> {
    let cluster = ClusterId(Uuid::from_u128(1));
    let root = RootKey::from_seed(cluster, Incarnation(Uuid::from_u128(2)), &[3; 32])?;
    let terms = FirstTerms {
        issued_at_s: 1,
        lifetime_s: 60,
        max_age_s: 10,
    };
    let key = BundleKey {
        node: 1,
        key: VerifyingKey::new([4; 32]),
        since_s: 0,
    };
    Ok(root.sign_first(terms, vec![key])?.to_text())
}

/// What an answer shows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied {
        /// gRPC's code or HTTP's status.
        code: u16,
        reason: String,
        message: String,
    },
}

impl Answer {
    fn reason(&self) -> &str {
        match self {
            Self::Allowed => "",
            Self::Denied { reason, .. } => reason,
        }
    }
}

async fn over_json(client: &JsonClient, call: &Call, token: Option<&str>) -> Result<Answer> {
    let client = client.with_token(token);
    let body = call.body.as_ref().map(Value::to_string).unwrap_or_default();
    let json = call.body.as_ref().map(|_| "application/json");
    if call.name == "EpochService.Watch" {
        // One that is allowed goes on for ever.
        let (status, problem) = client.head_of(&call.path).await?;
        return Ok(match status {
            200 => Answer::Allowed,
            code => denied(code, &problem),
        });
    }
    let answer = client
        .raw(call.method, &call.path, json, body.into_bytes())
        .await?;
    Ok(match answer.status {
        200 => Answer::Allowed,
        code => denied(code, &answer.body),
    })
}

fn denied(code: u16, problem: &Value) -> Answer {
    let of = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
    Answer::Denied {
        code,
        reason: of("reason"),
        message: of("detail"),
    }
}

async fn over_grpc(channel: &Channel, call: &Call, token: Option<&str>) -> Result<Answer> {
    let request = raw_grpc::request(call.name, call.request.clone())?;
    let answered = raw_grpc::call(channel, call.name, request, token).await?;
    Ok(match answered {
        // A refused keepalive is an answer like others.
        Ok(answer) if call.name == "SessionService.KeepAlive" => {
            let kept = v1::KeepAliveResponse::decode(answer)?;
            match kept.reason {
                None => Answer::Allowed,
                Some(reason) => Answer::Denied {
                    code: 0,
                    reason,
                    message: kept.message.unwrap_or_default(),
                },
            }
        }
        Ok(_answer) => Answer::Allowed,
        Err(status) => Answer::Denied {
            code: u16::try_from(i32::from(status.code()))?,
            reason: epoch_proto::reason_of(&status)
                .map_or_else(String::new, |reason| reason.to_string()),
            message: status.message().to_owned(),
        },
    })
}

/// Who asks.
#[derive(Debug)]
struct Caller {
    who: &'static str,
    token: Option<String>,
    /// The reason for each call, by its name; nothing where it is allowed.
    expected: fn(&str) -> &'static str,
}

const SESSION_CALLS: [&str; 6] = [
    "SessionService.KeepAlive",
    "SessionService.Close",
    "SessionService.Get",
    "EpochService.CancelWait",
    "EpochService.Release",
    "EpochService.Transfer",
];
/// Open to whoever has any permission.
const FOR_MEMBERS: [&str; 3] = [
    "SessionService.List",
    "TrustService.Keys",
    "ClusterService.Status",
];
const READS: [&str; 4] = [
    "EpochService.Get",
    "EpochService.List",
    "EpochService.Watch",
    "RecordService.Get",
];

fn as_nobody(name: &str) -> &'static str {
    match name {
        "TrustService.Bundle" => "",
        _ => "UNAUTHENTICATED",
    }
}

/// May acquire and read, but other scopes.
fn as_tenant(name: &str) -> &'static str {
    match name {
        "TrustService.Bundle" => "",
        name if FOR_MEMBERS.contains(&name) => "",
        // There is no such session to close.
        "SessionService.Close" => "",
        name if SESSION_CALLS.contains(&name) => "SESSION_EXPIRED",
        _ => "PERMISSION_DENIED",
    }
}

fn as_reader(name: &str) -> &'static str {
    match name {
        name if READS.contains(&name) => "",
        name => as_tenant(name),
    }
}

/// May acquire and read the same scopes, and has the other's session id.
fn as_thief(name: &str) -> &'static str {
    const IN_SESSION: [&str; 5] = [
        "EpochService.Acquire",
        "EpochService.AcquireMany",
        "EpochService.Certify",
        "RecordService.Put",
        "RecordService.Delete",
    ];
    match name {
        name if IN_SESSION.contains(&name) => "SESSION_EXPIRED",
        name => as_reader(name),
    }
}

/// A cluster with tenants, one of whom holds a scope.
struct House {
    cluster: Cluster,
    channels: Vec<Channel>,
    callers: Vec<Caller>,
    exists: Named,
    missing: Named,
}

async fn house() -> Result<House> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let open = cluster.client(leader)?.clone();
    let operator = add_principal(&open, None, "ops", "", &["operate", "read", "revoke"]).await?;
    let by = Some(operator.as_str());
    let owner = add_principal(&open, by, "team-a", "a/", &["acquire", "read"]).await?;
    let other = add_principal(&open, by, "team-b", "b/", &["acquire", "read"]).await?;
    let reader = add_principal(&open, by, "reader", "a/", &["read"]).await?;
    let thief = add_principal(&open, by, "team-c", "a/", &["acquire", "read"]).await?;

    let owner = open.with_token(Some(&owner));
    let session = owner
        .post("/v1/sessions", &json!({"holder": "team-a/1", "ttl": "1h"}))
        .await?
        .ok()?;
    let session_id = text(&session, "session_id")?.to_owned();
    let acquire = json!({"scope": "a/held", "session_id": session_id, "request_id": 1});
    let grant = owner.post("/v1/acquire", &acquire).await?.ok()?;
    let keys = owner.get("/v1/keys", &[]).await?.ok()?;
    let kid = text(&keys["keys"][0], "kid")?.to_owned();
    let epoch = number(&grant, "epoch")?;
    let (open_id, place) = session_id.split_once('.').context("no session id")?;
    let exists = Named {
        scope: "a/held".to_owned(),
        epoch,
        hash: text(&session, "session")?.to_owned(),
        principal: "team-a".to_owned(),
        label: "test".to_owned(),
        kid,
        bundle: foreign_bundle()?,
        session: format!("{open_id}.{place}"),
    };
    let missing = Named {
        scope: "a/free".to_owned(),
        epoch: epoch - 1,
        session: format!("00000000-0000-4000-8000-000000000000.{place}"),
        hash: "A".repeat(43),
        principal: "team-x".to_owned(),
        label: "none".to_owned(),
        kid: "A".repeat(43),
        bundle: foreign_bundle()?,
    };
    let caller = |who, token: Option<String>, expected| Caller {
        who,
        token,
        expected,
    };
    let callers = vec![
        caller("nobody", None, as_nobody as fn(&str) -> &'static str),
        caller(
            "an unknown token",
            Some("epochd_none".to_owned()),
            as_nobody,
        ),
        caller("another tenant", Some(other), as_tenant),
        caller("a reader", Some(reader), as_reader),
        caller("one with the session's id", Some(thief), as_thief),
    ];
    let mut channels = Vec::new();
    for client in cluster.clients() {
        let endpoint = Endpoint::new(client.url().to_owned())?;
        channels.push(endpoint.connect().await?);
    }
    cluster.all_ready().await?;
    Ok(House {
        cluster,
        channels,
        callers,
        exists,
        missing,
    })
}

/// A principal with a permission and a token, which is returned.
async fn add_principal(
    client: &JsonClient,
    by: Option<&str>,
    principal: &str,
    prefix: &str,
    verbs: &[&str],
) -> Result<String> {
    let token = format!("epochd_{principal}_secret");
    let client = client.with_token(by);
    let hash = epoch_tests::token_hash(&token);
    let add = json!({"principal": principal, "label": "test", "hash": hash});
    client.post("/v1/tokens/add", &add).await?.ok()?;
    let grant = json!({"principal": principal, "prefix": prefix, "verbs": verbs});
    client.post("/v1/permissions/grant", &grant).await?.ok()?;
    Ok(token)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_denied_alike_whether_it_exists_or_not() -> Result<()> {
    let House {
        mut cluster,
        channels,
        callers,
        exists,
        missing,
    } = house().await?;
    let [of_what_exists, of_what_is_missing] = [&exists, &missing].map(calls);
    let named: BTreeSet<_> = of_what_exists.iter().map(|call| call.name).collect();
    assert_eq!(named, CALLS.iter().copied().collect(), "a call is left out");
    let clients = cluster.clients();
    for caller in &callers {
        let token = caller.token.as_deref();
        for (one, other) in of_what_exists.iter().zip(&of_what_is_missing) {
            let expected = (caller.expected)(one.name);
            // Over a follower as over the leader.
            for (client, channel) in clients.iter().zip(&channels) {
                for over_json_too in [true, false] {
                    let ask = async |call: &Call| match over_json_too {
                        true => over_json(client, call, token).await,
                        false => over_grpc(channel, call, token).await,
                    };
                    let (found, absent) = (ask(one).await?, ask(other).await?);
                    let context = format!("{} by {}: {found:?}, {absent:?}", one.name, caller.who);
                    if one.name == "SessionService.Close" {
                        assert_eq!(found, absent, "{context}");
                    }
                    if expected.is_empty() {
                        assert_ne!(found.reason(), "PERMISSION_DENIED", "{context}");
                        assert_ne!(found.reason(), "UNAUTHENTICATED", "{context}");
                    } else {
                        assert_eq!(found.reason(), expected, "{context}");
                        assert_eq!(found, absent, "{context}");
                    }
                }
            }
        }
    }
    let holder = cluster.client(1)?.with_token(Some("epochd_team-a_secret"));
    let held = holder
        .get("/v1/scope", &[("scope", "a/held")])
        .await?
        .ok()?;
    assert_eq!(
        number(&held, "epoch")?,
        exists.epoch,
        "somebody got through"
    );
    ensure!(callers.len() == 5, "somebody is left out");
    cluster.unharmed()
}

/// Acquires one scope after another until that is denied; how many it got.
async fn acquire_until_denied(client: JsonClient, session: String, worker: u64) -> Result<u64> {
    for n in 1_u64.. {
        let body = json!({
            "scope": format!("a/{worker}/{n}"),
            "session_id": session,
            "request_id": worker * 1_000_000 + n,
        });
        let answer = client.post("/v1/acquire", &body).await?;
        match answer.reason() {
            None => ensure!(answer.status == 200, "{answer:?}"),
            Some("PERMISSION_DENIED") => return Ok(n - 1),
            Some(_) => anyhow::bail!("{answer:?}"),
        }
    }
    Ok(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_taken_away_under_way_is_gone_on_every_node_alike() -> Result<()> {
    let House { mut cluster, .. } = house().await?;
    let [owner, operator] = ["team-a", "ops"].map(|name| format!("epochd_{name}_secret"));
    let clients = cluster.clients();
    let first = clients.first().context("no node")?.with_token(Some(&owner));
    let open = json!({"holder": "team-a/2", "ttl": "1h"});
    let session = first.post("/v1/sessions", &open).await?.ok()?;
    let session = text(&session, "session_id")?.to_owned();
    let mut workers = tokio::task::JoinSet::new();
    for (worker, client) in (1..).zip(clients.iter().cycle().take(9)) {
        let client = client.with_token(Some(&owner));
        workers.spawn(acquire_until_denied(client, session.clone(), worker));
    }
    // With grants of all of them under way.
    epoch_tests::wait::until("each has some", async || {
        let held = first
            .get("/v1/scopes", &[("prefix", "a/"), ("limit", "1000")])
            .await?;
        let held = held.ok()?;
        let count = held["scopes"].as_array().context("no list")?.len();
        ensure!(count > 50, "{count}");
        Ok(())
    })
    .await?;
    let operator = clients
        .first()
        .context("no node")?
        .with_token(Some(&operator));
    let revoke = json!({"principal": "team-a", "prefix": "a/"});
    let revoked = operator
        .post("/v1/permissions/revoke", &revoke)
        .await?
        .ok()?;
    ensure!(revoked["revoked"] == true, "{revoked}");
    let late = json!({"scope": "a/late", "session_id": session, "request_id": 1});
    let late = first.post("/v1/acquire", &late).await?;
    assert_eq!(late.reason(), Some("PERMISSION_DENIED"), "{late:?}");
    let mut granted = 0;
    while let Some(ended) = workers.join_next().await {
        granted += ended??;
    }
    ensure!(granted > 50, "{granted} grants");
    // Whatever was proposed before it and applied after it, every node made the same of it.
    cluster.call_as("epochd_ops_secret");
    cluster.stop_and_compare().await?;
    cluster.unharmed()
}
