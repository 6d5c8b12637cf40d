//! Over JSON.

use anyhow::{Context as _, Result};
use epoch_core::Reason::{InvalidArgument, NotFound, SessionExpired, TooLarge};
use serde_json::{Value, json};

use crate::setting::Setting;
use crate::values::{BAD_NUMBERS, BAD_SESSIONS, NO_SESSION, bad_names};

#[tokio::test(flavor = "multi_thread")]
async fn json_bodies_that_are_not_what_they_should_be_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let session = setting.session.as_str();
    for path in [
        "/v1/sessions",
        "/v1/acquire",
        "/v1/release",
        "/v1/certify",
        "/v1/revoke",
    ] {
        for body in [
            "",
            "{",
            "[]",
            "null",
            "1",
            "\"\"",
            "{}{}",
            "\u{feff}{}",
            "{\"a\":NaN}",
            "{'a':1}",
        ] {
            setting
                .refuses(path, body.as_bytes(), InvalidArgument)
                .await?;
        }
        setting
            .refuses(path, b"{\"scope\":\"\xff\"}", InvalidArgument)
            .await?;
        setting
            .refuses(path, br#"{"scope":"\ud800"}"#, InvalidArgument)
            .await?;
        setting
            .refuses(path, br#"{"unknown":1}"#, InvalidArgument)
            .await?;
        setting
            .refuses(path, "[".repeat(20_000).as_bytes(), InvalidArgument)
            .await?;
        let deep = format!("{{\"scope\":{}", "[".repeat(20_000));
        setting
            .refuses(path, deep.as_bytes(), InvalidArgument)
            .await?;
        setting
            .refuses(path, &vec![b' '; 1 << 20], TooLarge)
            .await?;
    }
    let good = json!({ "scope": "s", "session_id": session, "request_id": 2 });
    for (name, value) in [
        ("extra", json!(1)),
        ("requestId", json!(3)),
        ("Scope", json!("s")),
        ("epoch", json!(1)),
        ("scope", json!(7)),
        ("scope", json!(["s"])),
        ("session_id", json!(7)),
        ("audience", json!("one")),
        ("audience", json!([1])),
        ("wait", json!(5)),
        ("wait", json!("soon")),
        ("reissue", json!("yes")),
    ] {
        let mut body = good.clone();
        body[name] = value;
        setting
            .refuses("/v1/acquire", body.to_string().as_bytes(), InvalidArgument)
            .await?;
    }
    for twice in [r#"{"scope":"a","scope":"b","#, r#"{"request_id":1,"#] {
        let body = good.to_string().replacen('{', twice, 1);
        setting
            .refuses("/v1/acquire", body.as_bytes(), InvalidArgument)
            .await?;
    }
    // A list in the order of the fields is no object.
    let list = json!(["s", session, 2, [], null, false, null]).to_string();
    setting
        .refuses("/v1/acquire", list.as_bytes(), InvalidArgument)
        .await?;
    for name in ["scope", "session_id", "request_id"] {
        let mut body = good.clone();
        body.as_object_mut().context("no object")?.remove(name);
        setting
            .refuses("/v1/acquire", body.to_string().as_bytes(), InvalidArgument)
            .await?;
    }
    let keepalive = format!("/v1/sessions/{session}/keepalive");
    // An empty body says nothing wrong.
    for body in ["[]", "null", r#"{"ttl":"10s"}"#] {
        setting
            .refuses(&keepalive, body.as_bytes(), InvalidArgument)
            .await?;
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let session = setting.session.as_str();
    for number in BAD_NUMBERS {
        let acquire = format!(r#"{{"scope":"s","session_id":"{session}","request_id":{number}}}"#);
        setting
            .refuses("/v1/acquire", acquire.as_bytes(), InvalidArgument)
            .await?;
        let named = format!(r#"{{"scope":"held","session_id":"{session}","epoch":{number}}}"#);
        setting
            .refuses("/v1/release", named.as_bytes(), InvalidArgument)
            .await?;
        setting
            .refuses("/v1/certify", named.as_bytes(), InvalidArgument)
            .await?;
        if *number != "null" {
            let revoke = format!(r#"{{"scope":"held","epoch":{number}}}"#);
            setting
                .refuses("/v1/revoke", revoke.as_bytes(), InvalidArgument)
                .await?;
        }
    }
    let post = async |path: &str, body: Value| {
        setting
            .refuses(path, body.to_string().as_bytes(), InvalidArgument)
            .await
    };
    for scope in bad_names(512) {
        post(
            "/v1/acquire",
            json!({ "scope": scope, "session_id": session, "request_id": 2 }),
        )
        .await?;
        let named = json!({ "scope": scope, "session_id": session, "epoch": setting.epoch });
        post("/v1/release", named.clone()).await?;
        post("/v1/certify", named).await?;
        post("/v1/revoke", json!({ "scope": scope })).await?;
        let answer = setting
            .client
            .get("/v1/scope", &[("scope", &scope)])
            .await?;
        setting.expect(
            &format!("get {scope:?}"),
            &answer,
            400,
            Some(InvalidArgument),
        );
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn json_sessions_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let post = async |path: &str, body: Value| {
        setting
            .refuses(path, body.to_string().as_bytes(), InvalidArgument)
            .await
    };
    for holder in bad_names(256) {
        post("/v1/sessions", json!({ "holder": holder, "ttl": "10s" })).await?;
    }
    for ttl in [
        json!("0s"),
        json!("999ms"),
        json!("24h1ms"),
        json!("25h"),
        json!("-1s"),
        json!("10"),
        json!(10),
        json!(""),
        json!("1s1us"),
        json!("s"),
        json!("99999999999999999999s"),
        json!([]),
        Value::Null,
    ] {
        post("/v1/sessions", json!({ "holder": "h", "ttl": ttl })).await?;
    }
    post("/v1/sessions", json!({ "holder": "h" })).await?;
    let bad_ids = [
        "",
        "x",
        "2f1c0a526a394b0e9f560f4c7c1e8a11",
        "{2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11}",
        "urn:uuid:2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
        NO_SESSION,
    ];
    for open_id in bad_ids {
        post(
            "/v1/sessions",
            json!({ "holder": "h", "ttl": "9s", "open_id": open_id }),
        )
        .await?;
    }
    let many = vec!["a"; 17];
    for audience in [json!(many), json!([""]), json!(["x".repeat(257)])] {
        let body = json!({
            "scope": "s", "session_id": setting.session, "request_id": 2, "audience": audience,
        });
        post("/v1/acquire", body).await?;
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn json_session_ids_that_are_none_are_refused_without_an_echo() -> Result<()> {
    let setting = Setting::new().await?;
    for bad in BAD_SESSIONS {
        let body = json!({ "scope": "s", "session_id": bad, "request_id": 1 }).to_string();
        setting
            .refuses("/v1/acquire", body.as_bytes(), InvalidArgument)
            .await?;
        if !bad.is_empty() {
            let path = format!("/v1/sessions/{}/keepalive", bad.replace(' ', "%20"));
            setting.refuses(&path, b"{}", InvalidArgument).await?;
        }
    }
    setting
        .refuses("/v1/sessions/%00/keepalive", b"{}", InvalidArgument)
        .await?;
    setting
        .refuses("/v1/sessions/%ff/keepalive", b"{}", InvalidArgument)
        .await?;
    let long = format!("/v1/sessions/{}/keepalive", "x".repeat(10_000));
    setting.refuses(&long, b"{}", InvalidArgument).await?;

    let unknown = json!({ "scope": "s", "session_id": NO_SESSION, "request_id": 1 }).to_string();
    setting
        .refuses("/v1/acquire", unknown.as_bytes(), SessionExpired)
        .await?;
    let kept = format!("/v1/sessions/{NO_SESSION}/keepalive");
    setting.refuses(&kept, b"{}", SessionExpired).await?;
    // A session id is a secret: a near miss must not be told apart from a stranger's.
    let near = setting.session.replacen('.', ".9", 1);
    let body = json!({ "scope": "s", "session_id": near, "request_id": 1 }).to_string();
    setting
        .refuses("/v1/acquire", body.as_bytes(), SessionExpired)
        .await?;
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_out_of_bounds_and_unknown_paths_are_told_apart() -> Result<()> {
    let setting = Setting::new().await?;
    for (name, value) in [
        ("wait", json!("25h")),
        ("lock_delay", json!("25h")),
        ("metadata", json!("m".repeat(1_025))),
    ] {
        let mut body = json!({ "scope": "s", "session_id": setting.session, "request_id": 2 });
        body[name] = value;
        setting
            .refuses("/v1/acquire", body.to_string().as_bytes(), InvalidArgument)
            .await?;
    }
    for path in [
        "/v1/nothing",
        "/v2/acquire",
        "/v1/acquire/",
        "//v1/acquire",
        "/",
    ] {
        setting.refuses(path, b"{}", NotFound).await?;
    }
    for (method, path) in [
        ("GET", "/v1/acquire"),
        ("PUT", "/v1/acquire"),
        ("POST", "/v1/scope"),
        ("PATCH", "/v1/sessions"),
        ("DELETE", "/v1/scopes"),
        ("BREW", "/v1/release"),
    ] {
        let answer = setting.client.raw(method, path, None, Vec::new()).await?;
        setting.expect(&format!("{method} {path}"), &answer, 405, None);
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_are_malformed_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    for query in [
        "/v1/scope",
        "/v1/scope?scope=",
        "/v1/scope?scope=a%00b",
        "/v1/scope?scope=a%0Ab",
        "/v1/scope?scope=%ff",
        "/v1/scope?scope=a&scope=b",
        "/v1/scope?scope=a&more=1",
        "/v1/scope?name=a",
        "/v1/scopes?limit=1001",
        "/v1/scopes?limit=-1",
        "/v1/scopes?limit=1.5",
        "/v1/scopes?limit=99999999999",
        "/v1/scopes?page=%00",
        "/v1/scopes?prefix=%0A",
        "/v1/scopes?sort=up",
    ] {
        let answer = setting.client.raw("GET", query, None, Vec::new()).await?;
        setting.expect(query, &answer, 400, Some(InvalidArgument));
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_alike_are_different_scopes() -> Result<()> {
    let setting = Setting::new().await?;
    let names = [
        "reports/caf\u{e9}",
        "reports/cafe\u{301}",
        "Reports/caf\u{e9}",
        "reports/caf",
        "reports/caf\u{e9}/",
        "reports//caf\u{e9}",
        " reports/caf\u{e9}",
    ];
    let longest = "x".repeat(512);
    for (name, request_id) in names.into_iter().chain([longest.as_str()]).zip(10..) {
        let grant = setting
            .client
            .acquire(name, &setting.session, request_id)
            .await?
            .ok()?;
        assert_eq!(grant["scope"], name);
        assert_eq!(setting.client.scope(name).await?["epoch"], grant["epoch"]);
    }
    setting.goes_on().await
}
