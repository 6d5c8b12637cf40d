//! The JSON surface, field by field: others script against it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use epoch_core::{SessionId, Verifier};
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{CloseRequest, KeepAliveRequest, OpenRequest};
use epoch_tests::caller::channel;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::json_client::{Answer, JsonClient};
use epoch_tests::{clock, load, wait};
use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// One cluster for one test, and its leader's client.
async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    Ok((cluster, client))
}

fn fields(document: &Value) -> BTreeSet<&str> {
    document
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

fn refused(answer: &Answer, status: u16, reason: &str) {
    assert_eq!(
        (answer.status, answer.reason()),
        (status, Some(reason)),
        "{answer:?}"
    );
    assert_eq!(
        answer.content_type, "application/problem+json",
        "{answer:?}"
    );
    assert_eq!(answer.body["status"], status, "{answer:?}");
    assert!(answer.body["title"].is_string(), "{answer:?}");
    assert!(answer.body["detail"].is_string(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_opened_kept_and_closed() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let open_id = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11";
    let open = json!({ "holder": "writer", "ttl": "10s", "open_id": open_id });
    let session = client.post("/v1/sessions", &open).await?.ok()?;
    let id = text(&session, "session_id")?;
    ensure!(
        id.parse::<SessionId>()?.open_id.to_string() == open_id,
        "another open id: {id}"
    );
    assert_eq!(session["ttl"], "10s");
    assert_eq!(session["holder"], "writer");
    let again = client.post("/v1/sessions", &open).await?.ok()?;
    assert_eq!(again, session, "the same open is the same session");
    let other = json!({ "holder": "another", "ttl": "10s", "open_id": open_id });
    refused(
        &client.post("/v1/sessions", &other).await?,
        422,
        "REQUEST_ID_REUSED",
    );

    let path = format!("/v1/sessions/{id}");
    let kept = client
        .post(&format!("{path}/keepalive"), &json!({}))
        .await?
        .ok()?;
    assert_eq!(
        kept,
        json!({ "session_id": id, "ttl": "10s", "grants_differ": false })
    );
    let closed = client.raw("DELETE", &path, None, Vec::new()).await?.ok()?;
    assert_eq!(closed, json!({ "closed": true }));
    let closed = client.raw("DELETE", &path, None, Vec::new()).await?.ok()?;
    assert_eq!(closed, json!({ "closed": false }));
    let kept = client
        .post(&format!("{path}/keepalive"), &json!({}))
        .await?;
    refused(&kept, 404, "SESSION_EXPIRED");
    let anew = client.post("/v1/sessions", &open).await?.ok()?;
    ensure!(
        anew["session_id"] != session["session_id"],
        "a closed session came back"
    );
    let shown = client.open("plain", "1500ms").await?;
    ensure!(shown.parse::<SessionId>().is_ok(), "no session id: {shown}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_is_acquired_certified_and_released() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let verifier = load::verifier(&cluster).await?;
    let session = client.open("writer", "60s").await?;
    let grant = client.acquire("reports/a", &session, 1).await?.ok()?;
    let expected = BTreeSet::from([
        "scope",
        "epoch",
        "holder",
        "session_id",
        "certificate",
        "incarnation",
        "position",
    ]);
    assert_eq!(fields(&grant), expected);
    let place = BTreeSet::from(["group", "term", "leader", "index", "offset"]);
    assert_eq!(fields(&grant["position"]), place);
    assert_eq!(
        (&grant["scope"], &grant["holder"]),
        (&json!("reports/a"), &json!("writer"))
    );
    assert_eq!(grant["session_id"], session.as_str());
    certified(&verifier, &grant, text(&grant, "certificate")?)?;

    // The same request is the same grant, wherever it is asked.
    for id in cluster.ids() {
        let again = cluster
            .client(id)?
            .acquire("reports/a", &session, 1)
            .await?
            .ok()?;
        assert_eq!(again["epoch"], grant["epoch"]);
        assert_eq!(again["position"], grant["position"]);
    }
    let epoch = number(&grant, "epoch")?;
    let held = client.acquire("reports/a", &session, 2).await?;
    refused(&held, 409, "ALREADY_HELD");
    assert_eq!(
        client.acquire("reports/b", &session, 1).await?.reason(),
        Some("REQUEST_ID_REUSED")
    );
    let other = client.open("other", "60s").await?;
    refused(
        &client.acquire("reports/a", &other, 1).await?,
        409,
        "SCOPE_HELD",
    );

    let ask = json!({ "scope": "reports/a", "epoch": epoch, "session_id": session });
    let fresh = client.post("/v1/certify", &ask).await?.ok()?;
    assert_eq!(fields(&fresh), BTreeSet::from(["certificate"]));
    certified(&verifier, &grant, text(&fresh, "certificate")?)?;

    let theirs = client.release("reports/a", &other, epoch).await?;
    refused(&theirs, 403, "PERMISSION_DENIED");
    let released = client.post("/v1/release", &ask).await?.ok()?;
    assert_eq!(released, json!({ "released": true }));
    assert_eq!(
        client.post("/v1/release", &ask).await?.ok()?,
        json!({ "released": false })
    );
    refused(
        &client.post("/v1/certify", &ask).await?,
        412,
        "EPOCH_SUPERSEDED",
    );
    refused(
        &client.acquire("reports/a", &session, 1).await?,
        412,
        "EPOCH_SUPERSEDED",
    );

    let next = client.acquire("reports/a", &other, 2).await?.ok()?;
    ensure!(
        number(&next, "epoch")? > epoch,
        "the next epoch is not higher"
    );
    refused(
        &client.post("/v1/release", &ask).await?,
        412,
        "EPOCH_SUPERSEDED",
    );
    cluster.unharmed()
}

fn certified(verifier: &Verifier, grant: &Value, certificate: &str) -> Result<()> {
    ensure!(
        certificate.len() < 1_024,
        "a certificate of {} bytes",
        certificate.len()
    );
    let verified = verifier.verify(certificate, clock::unix_ms())?;
    let position = serde_json::to_value(verified.fence().position)?;
    assert_eq!(position, grant["position"]);
    assert_eq!(verified.epoch().get(), number(grant, "epoch")?);
    assert_eq!(
        verified.incarnation().to_string(),
        text(grant, "incarnation")?
    );
    assert_eq!(verified.scope().as_str(), text(grant, "scope")?);
    assert_eq!(
        verified.grant().map(|grant| grant.holder.as_str()),
        grant["holder"].as_str()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoke_burns_an_epoch_that_nobody_holds() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let verifier = load::verifier(&cluster).await?;
    let session = client.open("writer", "60s").await?;
    let epoch = number(
        &client.acquire("reports/a", &session, 1).await?.ok()?,
        "epoch",
    )?;
    let stale = json!({ "scope": "reports/a", "epoch": epoch - 1 });
    refused(
        &client.post("/v1/revoke", &stale).await?,
        412,
        "EPOCH_SUPERSEDED",
    );
    let revoke = json!({ "scope": "reports/a", "epoch": epoch });
    let revoked = client.post("/v1/revoke", &revoke).await?.ok()?;
    assert_eq!(
        fields(&revoked),
        BTreeSet::from(["scope", "epoch", "certificate"])
    );
    let burnt = number(&revoked, "epoch")?;
    ensure!(burnt > epoch, "the burnt epoch is not higher");
    let certificate = verifier.verify(text(&revoked, "certificate")?, clock::unix_ms())?;
    ensure!(
        certificate.grant().is_none(),
        "the certificate has a holder"
    );
    assert_eq!(certificate.epoch().get(), burnt);
    let ask = json!({ "scope": "reports/a", "epoch": epoch, "session_id": session });
    refused(
        &client.post("/v1/certify", &ask).await?,
        412,
        "EPOCH_SUPERSEDED",
    );
    refused(
        &client.acquire("reports/a", &session, 1).await?,
        412,
        "EPOCH_SUPERSEDED",
    );
    assert_eq!(client.scope("reports/a").await?["held"], false);
    let next = client.acquire("reports/a", &session, 2).await?.ok()?;
    ensure!(
        number(&next, "epoch")? > burnt,
        "an epoch was given below the burnt one"
    );

    // Without an epoch, and of a scope that nobody holds.
    let revoked = client
        .post("/v1/revoke", &json!({ "scope": "never/held" }))
        .await?
        .ok()?;
    ensure!(number(&revoked, "epoch")? > 0, "no epoch");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_are_shown_and_listed_page_by_page() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let session = client.open("writer", "60s").await?;
    let unknown = client.scope("reports/unknown").await?;
    assert_eq!(
        unknown,
        json!({
            "scope": "reports/unknown", "held": false, "delayed": false, "waiting": 0, "queue": []
        })
    );

    let mut epochs = Vec::new();
    for request_id in 1..=12_u64 {
        let scope = format!("reports/{request_id:02}");
        let grant = client.acquire(&scope, &session, request_id).await?.ok()?;
        epochs.push((scope, number(&grant, "epoch")?));
    }
    let state = client.scope("reports/01").await?;
    let free = ["scope", "held", "delayed", "waiting", "queue"];
    let held = ["epoch", "holder", "session", "position"];
    let expected = free.into_iter().chain(held).collect();
    assert_eq!(fields(&state), expected);
    assert_eq!(
        (&state["held"], &state["holder"]),
        (&json!(true), &json!("writer"))
    );
    let hash = session.parse::<SessionId>()?.hash().to_string();
    assert_eq!(
        state["session"],
        hash.as_str(),
        "a session is shown as its hash only"
    );

    for limit in [1, 5, 12, 1_000] {
        let rows = client.scopes("reports/", limit).await?;
        let rows = rows
            .iter()
            .map(|row| Ok((text(row, "scope")?.to_owned(), number(row, "epoch")?)));
        assert_eq!(
            rows.collect::<Result<Vec<_>>>()?,
            epochs,
            "in pages of {limit}"
        );
    }
    let first = client
        .get("/v1/scopes", &[("prefix", "reports/"), ("limit", "5")])
        .await?
        .ok()?;
    assert_eq!(first["scopes"].as_array().map(Vec::len), Some(5));
    ensure!(first["next_page"].is_string(), "no next_page: {first}");
    let last = client
        .get("/v1/scopes", &[("prefix", "reports/1")])
        .await?
        .ok()?;
    assert_eq!(last["scopes"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        fields(&last),
        BTreeSet::from(["scopes", "cursor"]),
        "no next_page at the end"
    );
    let none = client
        .get("/v1/scopes", &[("prefix", "nothing/")])
        .await?
        .ok()?;
    assert_eq!(none["scopes"], json!([]));
    for (name, value) in [
        ("limit", "1001"),
        ("limit", "-1"),
        ("limit", "x"),
        ("page", "?"),
    ] {
        let answer = client.get("/v1/scopes", &[(name, value)]).await?;
        refused(&answer, 400, "INVALID_ARGUMENT");
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_any_client() -> Result<()> {
    let (mut cluster, _) = start().await?;
    load::verifier(&cluster).await?;
    for id in cluster.ids() {
        let client = cluster.client(id)?;
        let scope = format!("any/{id}");
        let session = client.open("writer", "60s").await?;
        let grant = client.acquire(&scope, &session, 1).await?.ok()?;
        client
            .post(&format!("/v1/sessions/{session}/keepalive"), &json!({}))
            .await?
            .ok()?;
        for other in cluster.ids() {
            let state = cluster.client(other)?.scope(&scope).await?;
            assert_eq!(
                state["epoch"], grant["epoch"],
                "node {other} does not see it"
            );
        }
        let epoch = number(&grant, "epoch")?;
        assert_eq!(
            client.release(&scope, &session, epoch).await?.ok()?["released"],
            true
        );

        let status = client.cluster().await?;
        for field in ["cluster_id", "incarnation"] {
            text(&status, field)?;
        }
        let leader = number(&status, "leader")?;
        assert!(number(&status, "term")? > 0 && number(&status, "applied")? > 0);
        let nodes = status["nodes"].as_array().context("no nodes")?;
        assert_eq!(nodes.len(), cluster.ids().len());
        for node in nodes {
            let expected = BTreeSet::from(["id", "client", "peer", "admin", "role"]);
            assert_eq!(fields(node), expected);
            let role = if number(node, "id")? == leader {
                "leader"
            } else {
                "voter"
            };
            assert_eq!(node["role"], role);
        }
        assert_eq!(client.get("/livez", &[]).await?.status, 200);
        assert_eq!(client.get("/readyz", &[]).await?.status, 200);
        let jwks = client.get("/.well-known/jwks.json", &[]).await?;
        assert!(jwks.content_type.contains("json"), "{}", jwks.content_type);
        assert_eq!(
            jwks.ok()?["keys"].as_array().map(Vec::len),
            Some(cluster.ids().len())
        );
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_not_kept_alive_expires_and_frees_its_scopes() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let session = client.open("gone", "3s").await?;
    let first = client.acquire("left", &session, 1).await?.ok()?;
    wait::until("the session expires", async || {
        let state = client.scope("left").await?;
        ensure!(state["held"] == false, "still held");
        Ok(())
    })
    .await?;
    refused(
        &client.acquire("left", &session, 2).await?,
        404,
        "SESSION_EXPIRED",
    );
    refused(
        &client.acquire("left", &session, 1).await?,
        404,
        "SESSION_EXPIRED",
    );
    let other = client.open("next", "60s").await?;
    let next = client.acquire("left", &other, 1).await?.ok()?;
    ensure!(
        number(&next, "epoch")? > number(&first, "epoch")?,
        "not higher"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_say_what_operators_watch() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let session = client.open("writer", "60s").await?;
    client.acquire("reports/a", &session, 1).await?.ok()?;
    let other = client.open("other", "60s").await?;
    client.acquire("reports/a", &other, 1).await?;
    for id in cluster.ids() {
        let admin = cluster.admin(id)?;
        // The node refreshes its gauges now and then, so that they are waited for.
        wait::until("the metrics tell what was done", async || {
            watched(&admin.get("/metrics", &[]).await?.ok_text()?)
        })
        .await?;
        // Operators' numbers are not for clients.
        assert_eq!(cluster.client(id)?.get("/metrics", &[]).await?.status, 404);
    }
    wait::until(
        "one node says that it leads and counts batches and refusals",
        async || {
            let mut leaders = 0;
            let mut refused = 0;
            for id in cluster.ids() {
                let metrics = cluster.admin(id)?.get("/metrics", &[]).await?.ok_text()?;
                if at_least(&metrics, "epochd_is_leader", "", 1.0).is_ok() {
                    at_least(&metrics, "epochd_batch_commands_count", "", 1.0)?;
                    leaders += 1;
                }
                let held = r#"reason="SCOPE_HELD""#;
                refused +=
                    usize::from(at_least(&metrics, "epochd_refusals_total", held, 1.0).is_ok());
            }
            ensure!(leaders == 1, "{leaders} lead");
            ensure!(refused > 0, "no refusal is counted");
            Ok(())
        },
    )
    .await?;
    cluster.unharmed()
}

/// What every node tells.
fn watched(metrics: &str) -> Result<()> {
    at_least(metrics, "epochd_is_leader", "", 0.0)?;
    at_least(metrics, "epochd_term", "", 1.0)?;
    at_least(metrics, "epochd_applied_index", "", 1.0)?;
    at_least(metrics, "epochd_grants_total", "", 1.0)?;
    at_least(metrics, "epochd_sessions", "", 2.0)?;
    at_least(metrics, "epochd_log_flush_seconds_count", "", 1.0)?;
    at_least(metrics, "epochd_snapshot_index", "", 0.0)?;
    at_least(metrics, "epochd_checkpoint_index", "", 0.0)?;
    at_least(metrics, "epochd_purged_index", "", 0.0)?;
    let lost = at_least(metrics, "epochd_disk_lost", "", 1.0);
    ensure!(lost.is_err(), "a disk is lost");
    Ok(())
}

fn at_least(metrics: &str, name: &str, label: &str, least: f64) -> Result<()> {
    let named = format!("{name}{{");
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with(&named) && line.contains(label));
    let line = line.with_context(|| format!("no {name} in {metrics}"))?;
    let value: f64 = line.rsplit(' ').next().context("no value")?.parse()?;
    ensure!(value >= least, "{line}, not {least} or more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_has_health_and_reflection_on_the_same_port() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let channel = channel(client.url())?;
    let health = HealthClient::new(channel.clone());
    // The empty name is the server as a whole.
    wait::until("the health service says that the node serves", async || {
        let request = HealthCheckRequest {
            service: String::new(),
        };
        let answer = health.clone().check(request).await?.into_inner();
        ensure!(answer.status() == ServingStatus::Serving, "{answer:?}");
        Ok(())
    })
    .await?;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let answers = reflection
        .server_reflection_info(tokio_stream::once(request))
        .await?;
    let answer = answers.into_inner().message().await?.context("no answer")?;
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        anyhow::bail!("another answer: {answer:?}");
    };
    let names: BTreeSet<&str> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    for name in ["SessionService", "EpochService", "ClusterService"] {
        assert!(
            names.contains(format!("epochd.v1.{name}").as_str()),
            "{names:?}"
        );
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_keepalive_stream_carries_many_sessions() -> Result<()> {
    let (mut cluster, client) = start().await?;
    let mut sessions = SessionServiceClient::new(channel(client.url())?);
    let mut ids = BTreeSet::new();
    for number in 0..8 {
        let request = OpenRequest {
            holder: format!("holder-{number}"),
            ttl: Some(prost_types::Duration {
                seconds: 10,
                nanos: 500_000_000,
            }),
            open_id: None,
            ..OpenRequest::default()
        };
        let session = sessions.open(request).await?.into_inner();
        assert_eq!(
            session.ttl.map(|ttl| (ttl.seconds, ttl.nanos)),
            Some((10, 500_000_000))
        );
        ids.insert(session.session_id);
    }
    let closed = ids.first().context("no session")?.clone();
    sessions
        .close(CloseRequest {
            session_id: closed.clone(),
        })
        .await?;
    let requests: Vec<_> = ids
        .iter()
        .map(|id| KeepAliveRequest {
            session_id: id.clone(),
            ..KeepAliveRequest::default()
        })
        .collect();
    let mut answers = sessions
        .keep_alive(tokio_stream::iter(requests))
        .await?
        .into_inner();
    let mut answered = BTreeSet::new();
    while let Some(answer) = answers.message().await? {
        if answer.session_id == closed {
            assert_eq!(answer.reason.as_deref(), Some("SESSION_EXPIRED"));
        } else {
            assert_eq!((answer.reason, answer.ttl.is_some()), (None, true));
        }
        answered.insert(answer.session_id);
    }
    assert_eq!(answered, ids, "one answer for each");
    cluster.unharmed()
}
