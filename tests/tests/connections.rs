//! Connections of strangers: they lock nobody out, and do not stay.

use anyhow::{Context as _, Result, ensure};
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{KeepAliveRequest, KeepAliveResponse};
use epoch_tests::cluster::{Cluster, text};
use epoch_tests::json_client::JsonClient;
use epoch_tests::{token_hash, wait};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy, sink,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Streaming};

/// Half as many again as a listener keeps.
const STRANGERS: usize = 1_500;
/// Connections of a listener on which no call was admitted.
const UNPROVEN_MAX: usize = 1_024;
/// Clients that come while the strangers are there.
const CLIENTS: u64 = 100;
const TOKEN: &str = "epochd_ops_secret";

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_lock_nobody_out_and_are_closed() -> Result<()> {
    let cluster = Cluster::start().await?;
    bear_strangers(cluster, |address, _ca| JsonClient::new(address)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_do_those_that_never_begin_their_handshake() -> Result<()> {
    let mut cluster = Cluster::init_with_certificates()?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let client = |address: &str, ca: &[u8]| JsonClient::over_tls(address, ca, None);
    bear_strangers(cluster, client).await
}

/// Many connections that say nothing, and clients that come after them, each over a connection of
/// its own.
async fn bear_strangers(
    mut cluster: Cluster,
    client: impl Fn(&str, &[u8]) -> Result<JsonClient>,
) -> Result<()> {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files)?;
    let leader = cluster.leader().await?;
    let address = address(&cluster, leader)?;
    let ca = std::fs::read(cluster.client_ca()).unwrap_or_default();
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(TcpStream::connect(&address).await?);
    }
    wait::until("those too many are closed", async || {
        // Not for their silence: before that is over.
        let cause = r#"cause="displaced""#;
        let closed = counted(&cluster, leader, "epochd_connections_closed_total", cause).await?;
        ensure!(closed >= STRANGERS - UNPROVEN_MAX, "{closed} are closed");
        Ok(())
    })
    .await?;
    let unproven = counted(&cluster, leader, "epochd_connections_unproven", "").await?;
    ensure!(unproven <= UNPROVEN_MAX, "{unproven} are unproven");

    for number in 0..CLIENTS {
        let client = client(&address, &ca)?.impatient();
        let session = client.open("client", "1m").await?;
        let grant = client.acquire(&format!("a/{number}"), &session, 1).await?;
        grant.ok()?;
    }
    for stranger in &mut strangers {
        ended(stranger).await?;
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_stays_while_it_is_used_and_for_good_once_a_call_was_admitted() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let follower = cluster.all_but(leader)[0];
    let session = session_of_an_operator(&cluster, leader).await?;
    let knows = cluster.client(follower)?.with_token(Some(TOKEN));
    wait::until("the follower knows the operator", async || {
        knows.cluster().await.map(drop)
    })
    .await?;

    let mut kept = Kept::begin(cluster.client(leader)?.url(), &session).await?;
    kept.alive().await?;
    let mut admitted = Http1::open(&cluster, leader).await?;
    assert_eq!(admitted.get("/v1/cluster", Some(TOKEN)).await?, Some(200));
    let mut passed_on = Http1::open(&cluster, follower).await?;
    let scope = "/v1/scope?scope=a";
    assert_eq!(passed_on.get(scope, Some(TOKEN)).await?, Some(200));

    let mut silent = TcpStream::connect(address(&cluster, leader)?).await?;
    let mut http2 = TcpStream::connect(address(&cluster, leader)?).await?;
    let mut denied = Http1::open(&cluster, leader).await?;
    let mut used = Http1::open(&cluster, leader).await?;
    wait::until("one is closed whose calls are denied", async || {
        let keys = used.get("/.well-known/jwks.json", None).await?;
        let status = denied.get("/v1/cluster", None).await?;
        if keys != Some(200) || status.is_some_and(|status| status != 401) {
            return Ok(Err(anyhow::anyhow!("{keys:?}, {status:?}")));
        }
        ensure!(status.is_none(), "it is still open");
        Ok(Ok(()))
    })
    .await??;
    ended(&mut silent).await?;
    ended_over_http2(&mut http2).await?;
    ended(&mut used.0).await?;

    // All that has come since has taken its time, in which these said nothing.
    kept.alive().await?;
    assert_eq!(admitted.get("/v1/cluster", Some(TOKEN)).await?, Some(200));
    assert_eq!(passed_on.get(scope, Some(TOKEN)).await?, Some(200));
    cluster.unharmed()
}

/// Gives the cluster permissions, with one operator, the bearer of [`TOKEN`]; a session of his.
async fn session_of_an_operator(cluster: &Cluster, leader: u64) -> Result<String> {
    let open = cluster.client(leader)?;
    let add = json!({"principal": "ops", "label": "test", "hash": token_hash(TOKEN)});
    open.post("/v1/tokens/add", &add).await?.ok()?;
    let verbs = ["operate", "acquire", "read"];
    let grant = json!({"principal": "ops", "prefix": "", "verbs": verbs});
    open.post("/v1/permissions/grant", &grant).await?.ok()?;
    let open_session = json!({"holder": "ops/1", "ttl": "1h"});
    let operator = open.with_token(Some(TOKEN));
    let session = operator.post("/v1/sessions", &open_session).await?.ok()?;
    Ok(text(&session, "session_id")?.to_owned())
}

fn address(cluster: &Cluster, id: u64) -> Result<String> {
    let (_, address) = cluster
        .client(id)?
        .url()
        .split_once("://")
        .context("no URL")?;
    Ok(address.to_owned())
}

/// What a node counts under this name of its clients' connections, with this label too.
async fn counted(cluster: &Cluster, id: u64, name: &str, label: &str) -> Result<usize> {
    let metrics = cluster.admin(id)?.get("/metrics", &[]).await?.ok_text()?;
    let name = format!("{name}{{");
    let of_clients = |line: &&str| {
        line.starts_with(&name) && line.contains("listener=\"client\"") && line.contains(label)
    };
    let line = metrics
        .lines()
        .find(of_clients)
        .context("it is not counted")?;
    let (_, count) = line.rsplit_once(' ').context("no value")?;
    Ok(count.parse()?)
}

/// The node closes the connection.
async fn ended(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<()> {
    // How it ends, orderly or not, is all the same.
    let end = timeout(wait::BOUND, copy(stream, &mut sink())).await;
    drop(end.context("it is still open")?);
    Ok(())
}

/// The node closes an HTTP/2 connection of a client that does as it should, and asks nothing.
async fn ended_over_http2(stream: &mut TcpStream) -> Result<()> {
    const PING: u8 = 6;
    const ACK: u8 = 1;
    stream.write_all(epoch_tests::tls::PREFACE).await?;
    let talking = async {
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length)?];
            stream.read_exact(&mut payload).await?;
            if head[3] == PING && head[4] != ACK {
                head[4] = ACK;
                stream.write_all(&[&head[..], &payload].concat()).await?;
            }
        }
        Ok(())
    };
    let talked = timeout(wait::BOUND, talking).await;
    talked.context("it is still open")?
}

/// One connection of HTTP/1.1, and no other.
struct Http1(BufReader<TcpStream>);

impl Http1 {
    async fn open(cluster: &Cluster, id: u64) -> Result<Self> {
        let stream = TcpStream::connect(address(cluster, id)?).await?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The status of the answer, or none when the node has closed the connection.
    async fn get(&mut self, path: &str, token: Option<&str>) -> Result<Option<u16>> {
        let bearer = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let bearer = bearer.unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\n{bearer}\r\n");
        if self.0.write_all(request.as_bytes()).await.is_err() {
            return Ok(None);
        }
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match self.0.read_line(&mut head).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .with_context(|| format!("no length: {head}"))?;
        let mut body = vec![0; length.parse()?];
        self.0.read_exact(&mut body).await?;
        Ok(Some(status))
    }
}

/// A stream of keepalives, on a connection of its own.
struct Kept {
    session: String,
    requests: mpsc::Sender<KeepAliveRequest>,
    answers: Streaming<KeepAliveResponse>,
}

impl Kept {
    async fn begin(url: &str, session: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await?;
        let (requests, stream) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(stream));
        let bearer = format!("Bearer {TOKEN}").parse()?;
        request.metadata_mut().insert("authorization", bearer);
        let answers = SessionServiceClient::new(channel)
            .keep_alive(request)
            .await?;
        Ok(Self {
            session: session.to_owned(),
            requests,
            answers: answers.into_inner(),
        })
    }

    async fn alive(&mut self) -> Result<()> {
        let session_id = self.session.clone();
        let request = KeepAliveRequest {
            session_id,
            ..KeepAliveRequest::default()
        };
        self.requests.send(request).await?;
        let answer = timeout(wait::BOUND, self.answers.message()).await??;
        let answer = answer.context("the stream has ended")?;
        ensure!(answer.reason.is_none(), "{answer:?}");
        Ok(())
    }
}
