//! Bad input, over JSON and gRPC: the right reason, no panic, and the node goes on.

use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use epoch_core::Reason;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{
    AcquireRequest, CertifyRequest, CloseRequest, GetRequest, KeepAliveRequest, ListRequest,
    OpenRequest, ReleaseRequest, RevokeRequest,
};
use epoch_proto::{grpc_code, http_status, reason_of};
use epoch_tests::caller::channel;
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::json_client::{Answer, JsonClient};
use prost_types::Duration;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

use Reason::{InvalidArgument, NotFound, SessionExpired, TooLarge, Unimplemented};

/// 2^53: the first number that is not exact everywhere.
const TOO_HIGH: u64 = 1 << 53;
/// Well-formed, and never opened.
const NO_SESSION: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0";

/// A node under test, and a session and a grant on it.
struct Setting {
    cluster: Cluster,
    client: JsonClient,
    session: String,
    epoch: u64,
    /// Everything that was not refused as it should be, so that one run shows all of it.
    wrong: Mutex<Vec<String>>,
}

impl Setting {
    async fn new() -> Result<Self> {
        let cluster = Cluster::start().await?;
        let client = cluster.client(cluster.leader().await?)?.clone();
        let session = client.open("tester", "1h").await?;
        let grant = client.acquire("held", &session, 1).await?.ok()?;
        let (epoch, wrong) = (number(&grant, "epoch")?, Mutex::default());
        Ok(Self { client, session, epoch, wrong, cluster })
    }

    fn channel(&self) -> Result<Channel> {
        channel(self.client.url())
    }

    /// POSTs a body as it is, and checks the refusal.
    async fn refuses(&self, path: &str, body: &[u8], reason: Reason) -> Result<()> {
        let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
        let answer = self.client.raw("POST", path, Some("application/json"), body.to_vec()).await?;
        self.expect(&format!("{path} {shown}"), &answer, http_status(reason), Some(reason));
        Ok(())
    }

    fn expect(&self, what: &str, answer: &Answer, status: u16, reason: Option<Reason>) {
        let right = answer.status == status
            && reason.is_none_or(|reason| answer.reason() == Some(reason.as_str()))
            && answer.content_type == "application/problem+json"
            && answer.body["detail"].is_string();
        if !right {
            self.note(format!("{what}: expected {status} {reason:?}, got {answer:?}"));
        }
    }

    /// What a gRPC call was refused with.
    fn check(&self, what: &str, answer: Result<(), Status>, reason: Reason) {
        match answer {
            Err(status)
                if status.code() == grpc_code(reason) && reason_of(&status) == Some(reason) => {}
            other => self.note(format!("{what}: expected {reason}, got {other:?}")),
        }
    }

    fn note(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// The node that was asked still serves, nobody panicked, and the grant is untouched.
    async fn goes_on(mut self) -> Result<()> {
        self.cluster.unharmed()?;
        let wrong = self.wrong.into_inner().unwrap();
        ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
        let state = self.client.scope("held").await?;
        ensure!(state["epoch"] == self.epoch, "the grant was touched: {state}");
        let grant = self.client.acquire("after", &self.session, 1_000_000).await?.ok()?;
        ensure!(number(&grant, "epoch")? > 0, "no epoch");
        Ok(())
    }
}

/// Numbers that are none of ours, as JSON text.
const BAD_NUMBERS: &[&str] = &[
    "0", "-1", "1.5", "\"42\"", "9007199254740992", "18446744073709551615", "18446744073709551616",
    "1e400", "1.0", "true", "null", "[]", "{}", "01", "0x10", "NaN",
];

fn bad_names(longest: usize) -> Vec<String> {
    vec![
        String::new(),
        "x".repeat(longest + 1),
        "é".repeat(longest / 2 + 1),
        "a\u{0}b".to_owned(),
        "a\nb".to_owned(),
        "a\u{7f}b".to_owned(),
        "a\u{85}b".to_owned(),
        "\t".to_owned(),
    ]
}

const BAD_SESSIONS: &[&str] = &[
    "",
    "x",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0.0",
    "2F1C0A52-6A39-4B0E-9F56-0F4C7C1E8A11.1.0",
    "2f1c0a526a394b0e9f560f4c7c1e8a11.1.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.01.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.-1.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.4294967296",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.18446744073709551616.0",
    " 2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0",
];

#[tokio::test(flavor = "multi_thread")]
async fn json_bodies_that_are_not_what_they_should_be_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let session = setting.session.as_str();
    for path in ["/v1/sessions", "/v1/acquire", "/v1/release", "/v1/certify", "/v1/revoke"] {
        for body in ["", "{", "[]", "null", "1", "\"\"", "{}{}", "\u{feff}{}", "{\"a\":NaN}", "{'a':1}"]
        {
            setting.refuses(path, body.as_bytes(), InvalidArgument).await?;
        }
        setting.refuses(path, b"{\"scope\":\"\xff\"}", InvalidArgument).await?;
        setting.refuses(path, br#"{"scope":"\ud800"}"#, InvalidArgument).await?;
        setting.refuses(path, br#"{"unknown":1}"#, InvalidArgument).await?;
        setting.refuses(path, "[".repeat(20_000).as_bytes(), InvalidArgument).await?;
        let deep = format!("{{\"scope\":{}", "[".repeat(20_000));
        setting.refuses(path, deep.as_bytes(), InvalidArgument).await?;
        setting.refuses(path, &vec![b' '; 1 << 20], TooLarge).await?;
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
        setting.refuses("/v1/acquire", body.to_string().as_bytes(), InvalidArgument).await?;
    }
    for twice in [r#"{"scope":"a","scope":"b","#, r#"{"request_id":1,"#] {
        let body = good.to_string().replacen('{', twice, 1);
        setting.refuses("/v1/acquire", body.as_bytes(), InvalidArgument).await?;
    }
    // A list in the order of the fields is no object.
    let list = json!(["s", session, 2, [], null, false, null]).to_string();
    setting.refuses("/v1/acquire", list.as_bytes(), InvalidArgument).await?;
    for name in ["scope", "session_id", "request_id"] {
        let mut body = good.clone();
        body.as_object_mut().context("no object")?.remove(name);
        setting.refuses("/v1/acquire", body.to_string().as_bytes(), InvalidArgument).await?;
    }
    let keepalive = format!("/v1/sessions/{session}/keepalive");
    for body in ["", "[]", r#"{"ttl":"10s"}"#] {
        setting.refuses(&keepalive, body.as_bytes(), InvalidArgument).await?;
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let session = setting.session.as_str();
    for number in BAD_NUMBERS {
        let acquire =
            format!(r#"{{"scope":"s","session_id":"{session}","request_id":{number}}}"#);
        setting.refuses("/v1/acquire", acquire.as_bytes(), InvalidArgument).await?;
        let named = format!(r#"{{"scope":"held","session_id":"{session}","epoch":{number}}}"#);
        setting.refuses("/v1/release", named.as_bytes(), InvalidArgument).await?;
        setting.refuses("/v1/certify", named.as_bytes(), InvalidArgument).await?;
        if *number != "null" {
            let revoke = format!(r#"{{"scope":"held","epoch":{number}}}"#);
            setting.refuses("/v1/revoke", revoke.as_bytes(), InvalidArgument).await?;
        }
    }
    let post = async |path: &str, body: Value| {
        setting.refuses(path, body.to_string().as_bytes(), InvalidArgument).await
    };
    for scope in bad_names(512) {
        post("/v1/acquire", json!({ "scope": scope, "session_id": session, "request_id": 2 })).await?;
        let named = json!({ "scope": scope, "session_id": session, "epoch": setting.epoch });
        post("/v1/release", named.clone()).await?;
        post("/v1/certify", named).await?;
        post("/v1/revoke", json!({ "scope": scope })).await?;
        let answer = setting.client.get("/v1/scope", &[("scope", &scope)]).await?;
        setting.expect(&format!("get {scope:?}"), &answer, 400, Some(InvalidArgument));
    }
    for holder in bad_names(256) {
        post("/v1/sessions", json!({ "holder": holder, "ttl": "10s" })).await?;
    }
    for ttl in [
        json!("0s"), json!("999ms"), json!("24h1ms"), json!("25h"), json!("-1s"), json!("10"),
        json!(10), json!(""), json!("1s1us"), json!("s"), json!("99999999999999999999s"), json!([]),
        Value::Null,
    ] {
        post("/v1/sessions", json!({ "holder": "h", "ttl": ttl })).await?;
    }
    post("/v1/sessions", json!({ "holder": "h" })).await?;
    let bad_ids = [
        "", "x", "2f1c0a526a394b0e9f560f4c7c1e8a11", "{2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11}",
        "urn:uuid:2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11", NO_SESSION,
    ];
    for open_id in bad_ids {
        post("/v1/sessions", json!({ "holder": "h", "ttl": "9s", "open_id": open_id })).await?;
    }
    let many = vec!["a"; 17];
    for audience in [json!(many), json!([""]), json!(["x".repeat(257)])] {
        let body = json!({
            "scope": "s", "session_id": session, "request_id": 2, "audience": audience,
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
        setting.refuses("/v1/acquire", body.as_bytes(), InvalidArgument).await?;
        if !bad.is_empty() {
            let path = format!("/v1/sessions/{}/keepalive", bad.replace(' ', "%20"));
            setting.refuses(&path, b"{}", InvalidArgument).await?;
        }
    }
    setting.refuses("/v1/sessions/%00/keepalive", b"{}", InvalidArgument).await?;
    setting.refuses("/v1/sessions/%ff/keepalive", b"{}", InvalidArgument).await?;
    let long = format!("/v1/sessions/{}/keepalive", "x".repeat(10_000));
    setting.refuses(&long, b"{}", InvalidArgument).await?;

    let unknown = json!({ "scope": "s", "session_id": NO_SESSION, "request_id": 1 }).to_string();
    setting.refuses("/v1/acquire", unknown.as_bytes(), SessionExpired).await?;
    let kept = format!("/v1/sessions/{NO_SESSION}/keepalive");
    setting.refuses(&kept, b"{}", SessionExpired).await?;
    // A session id is a secret: a near miss must not be told apart from a stranger's.
    let near = setting.session.replacen('.', ".9", 1);
    let body = json!({ "scope": "s", "session_id": near, "request_id": 1 }).to_string();
    setting.refuses("/v1/acquire", body.as_bytes(), SessionExpired).await?;
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_offered_yet_says_so_and_unknown_paths_are_told_apart() -> Result<()> {
    let setting = Setting::new().await?;
    for (name, value) in
        [("wait", json!("1s")), ("reissue", json!(true)), ("lock_delay", json!("1s"))]
    {
        let mut body = json!({ "scope": "s", "session_id": setting.session, "request_id": 2 });
        body[name] = value;
        setting.refuses("/v1/acquire", body.to_string().as_bytes(), Unimplemented).await?;
    }
    for path in ["/v1/record", "/v1/watch", "/v1/transfer", "/v1/bundle"] {
        setting.refuses(path, b"{}", Unimplemented).await?;
        let answer = setting.client.get(path, &[]).await?;
        setting.expect(path, &answer, 501, Some(Unimplemented));
    }
    for path in ["/v1/nothing", "/v2/acquire", "/v1/acquire/", "//v1/acquire", "/"] {
        setting.refuses(path, b"{}", NotFound).await?;
    }
    for (method, path) in [
        ("GET", "/v1/acquire"), ("PUT", "/v1/acquire"), ("POST", "/v1/scope"), ("PATCH", "/v1/sessions"),
        ("DELETE", "/v1/scopes"), ("BREW", "/v1/release"),
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
        "reports/caf\u{e9}", "reports/cafe\u{301}", "Reports/caf\u{e9}", "reports/caf",
        "reports/caf\u{e9}/", "reports//caf\u{e9}", " reports/caf\u{e9}",
    ];
    let longest = "x".repeat(512);
    for (name, request_id) in names.into_iter().chain([longest.as_str()]).zip(10..) {
        let grant = setting.client.acquire(name, &setting.session, request_id).await?.ok()?;
        assert_eq!(grant["scope"], name);
        assert_eq!(setting.client.scope(name).await?["epoch"], grant["epoch"]);
    }
    setting.goes_on().await
}

fn acquire_request(setting: &Setting) -> AcquireRequest {
    AcquireRequest {
        scope: "s".to_owned(),
        session_id: setting.session.clone(),
        request_id: 2,
        ..AcquireRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_requests_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let good = acquire_request(&setting);
    let mut bad = vec![AcquireRequest::default()];
    bad.extend(bad_names(512).into_iter().map(|scope| AcquireRequest { scope, ..good.clone() }));
    bad.push(AcquireRequest { scope: "s".repeat(1 << 20), ..good.clone() });
    bad.extend(BAD_SESSIONS.iter().map(|session| {
        AcquireRequest { session_id: (*session).to_owned(), ..good.clone() }
    }));
    bad.extend([0, TOO_HIGH, u64::MAX].map(|request_id| {
        AcquireRequest { request_id, ..good.clone() }
    }));
    bad.push(AcquireRequest { audience: vec!["a".to_owned(); 17], ..good.clone() });
    bad.push(AcquireRequest { audience: vec![String::new()], ..good.clone() });
    let mut epochs = EpochServiceClient::new(setting.channel()?);
    for request in bad {
        let answer = epochs.acquire(request.clone()).await.map(drop);
        let what: String = format!("{request:?}").chars().take(200).collect();
        setting.check(&what, answer, InvalidArgument);
    }
    let wait = Some(Duration { seconds: 1, nanos: 0 });
    for request in [
        AcquireRequest { wait, ..good.clone() },
        AcquireRequest { reissue: true, ..good.clone() },
        AcquireRequest { lock_delay: wait, ..good.clone() },
    ] {
        setting.check("not offered", epochs.acquire(request).await.map(drop), Unimplemented);
    }
    let unknown = AcquireRequest { session_id: NO_SESSION.to_owned(), ..good };
    setting.check("no session", epochs.acquire(unknown).await.map(drop), SessionExpired);

    for epoch in [0, TOO_HIGH, u64::MAX] {
        let (scope, session_id) = ("held".to_owned(), setting.session.clone());
        let release = ReleaseRequest { scope: scope.clone(), epoch, session_id: session_id.clone() };
        setting.check("release", epochs.release(release).await.map(drop), InvalidArgument);
        let revoke = RevokeRequest { scope: scope.clone(), epoch: Some(epoch) };
        setting.check("revoke", epochs.revoke(revoke).await.map(drop), InvalidArgument);
        let certify = CertifyRequest { scope, epoch, session_id, audience: Vec::new() };
        setting.check("certify", epochs.certify(certify).await.map(drop), InvalidArgument);
    }
    for scope in bad_names(512) {
        let get = GetRequest { scope: scope.clone() };
        setting.check("get", epochs.get(get).await.map(drop), InvalidArgument);
        let revoke = RevokeRequest { scope, epoch: None };
        setting.check("revoke", epochs.revoke(revoke).await.map(drop), InvalidArgument);
    }
    let list = ListRequest { limit: 1_001, ..ListRequest::default() };
    setting.check("list", epochs.list(list).await.map(drop), InvalidArgument);
    let list = ListRequest { page: Some("\u{0}".to_owned()), ..ListRequest::default() };
    setting.check("list", epochs.list(list).await.map(drop), InvalidArgument);
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_sessions_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let mut sessions = SessionServiceClient::new(setting.channel()?);
    let ttl = Some(Duration { seconds: 10, nanos: 0 });
    let good = OpenRequest { holder: "h".to_owned(), ttl, open_id: None };
    let mut bad: Vec<_> =
        bad_names(256).into_iter().map(|holder| OpenRequest { holder, ..good.clone() }).collect();
    for (seconds, nanos) in [
        (0, 0), (0, 999_000_000), (-1, 0), (1, 1), (1, -1), (1, i32::MAX), (86_400, 1_000_000),
        (i64::MAX, 0), (i64::MIN, i32::MIN),
    ] {
        bad.push(OpenRequest { ttl: Some(Duration { seconds, nanos }), ..good.clone() });
    }
    bad.push(OpenRequest { ttl: None, ..good.clone() });
    bad.push(OpenRequest { open_id: Some("x".to_owned()), ..good.clone() });
    bad.push(OpenRequest { open_id: Some(String::new()), ..good });
    for request in bad {
        let answer = sessions.open(request.clone()).await.map(drop);
        setting.check(&format!("{request:?}"), answer, InvalidArgument);
    }
    for session in BAD_SESSIONS {
        let close = CloseRequest { session_id: (*session).to_owned() };
        setting.check(session, sessions.close(close).await.map(drop), InvalidArgument);
        let keep = KeepAliveRequest { session_id: (*session).to_owned() };
        let answers = sessions.keep_alive(tokio_stream::once(keep)).await?;
        let answer = answers.into_inner().message().await?.context("no answer")?;
        if answer.reason.as_deref() != Some("INVALID_ARGUMENT") {
            setting.note(format!("keepalive of {session}: {answer:?}"));
        }
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_bytes_that_are_no_message_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    for bytes in [vec![0xff; 16], vec![0x0a, 0x7f], vec![0x0a, 0x02, 0xff, 0xfe], vec![0x1b; 4096]] {
        let status = raw::call(&setting.channel()?, "/epochd.v1.EpochService/Acquire", bytes).await;
        let code = status.err().map(|status| status.code());
        // What cannot be parsed never reaches epochd's own code, which could give a reason.
        ensure!(
            matches!(code, Some(Code::Internal | Code::InvalidArgument | Code::OutOfRange)),
            "{code:?}"
        );
    }
    for path in ["/epochd.v1.EpochService/Watch", "/epochd.v1.RecordService/Put", "/no.such/Thing"] {
        let status = raw::call(&setting.channel()?, path, Vec::new()).await;
        let code = status.err().map(|status| status.code());
        assert_eq!(code, Some(Code::Unimplemented), "{path}");
    }
    let channel = setting.channel()?;
    let huge = raw::call(&channel, "/epochd.v1.EpochService/Acquire", vec![0; 8 << 20]);
    ensure!(huge.await.is_err(), "8 MiB were taken");
    setting.goes_on().await
}

/// gRPC calls whose message is any bytes.
mod raw {
    use bytes::BufMut as _;
    use tonic::client::Grpc;
    use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic::transport::Channel;
    use tonic::{Request, Status};

    #[derive(Debug, Default)]
    struct Bytes;

    impl Codec for Bytes {
        type Encode = Vec<u8>;
        type Decode = ();
        type Encoder = Self;
        type Decoder = Self;
        fn encoder(&mut self) -> Self {
            Self
        }
        fn decoder(&mut self) -> Self {
            Self
        }
    }

    impl Encoder for Bytes {
        type Item = Vec<u8>;
        type Error = Status;
        fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
            out.put_slice(&item);
            Ok(())
        }
    }

    impl Decoder for Bytes {
        type Item = ();
        type Error = Status;
        fn decode(&mut self, _bytes: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
            Ok(Some(()))
        }
    }

    pub(super) async fn call(channel: &Channel, path: &str, message: Vec<u8>) -> Result<(), Status> {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::try_from(path).map_err(|error| Status::unknown(error.to_string()))?;
        client.unary(Request::new(message), path, Bytes).await.map(drop)
    }
}
