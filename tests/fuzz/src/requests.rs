//! Requests as clients send them, to the services of a real node that has no leader: each is
//! routed, read and parsed, and then refused for want of one.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use bytes::{BufMut as _, BytesMut};
use epochd::init::{InitOptions, Ports, on_one_host, write_seeds};
use epochd::server::Server;
use epochd::settings::{Settings, Storage, Timing};
use futures::{FutureExt as _, StreamExt as _};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

/// One of three nodes, alone.
struct Alone {
    runtime: Runtime,
    router: Router,
    _server: Server,
}

static ALONE: LazyLock<Alone> = LazyLock::new(|| Alone::start().expect("a node that starts"));

impl Alone {
    fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let folder = tempfile::tempdir()?;
        let nodes = on_one_host("127.0.0.1", 3, Ports::default())?;
        let mut folders = write_seeds(folder.path(), &nodes, &InitOptions::default())?;
        let free = Some("127.0.0.1:0".to_owned());
        let settings = Settings {
            data_dir: folders.swap_remove(0),
            client_listen: free.clone(),
            peer_listen: free.clone(),
            admin_listen: free,
            // It never asks for votes, so nothing but requests decides what it does.
            timing: Timing {
                heartbeat_ms: 1_000_000_000,
                election_min_ms: 3_000_000_000,
                election_max_ms: 4_000_000_000,
            },
            storage: Storage {
                snapshot_log_bytes: None,
                log_segment_bytes: 1 << 20,
            },
            tls: None,
            allow_plaintext: false,
        };
        let (server, router) = runtime.block_on(async {
            let server = Server::start(&settings, None).await?;
            let router = server.client_router()?;
            anyhow::Ok((server, router))
        })?;
        // It has no entries to write, and what it has open stays open: nobody has to remove the
        // folder when libFuzzer ends the process.
        drop(folder);
        Ok(Self {
            runtime,
            router,
            _server: server,
        })
    }

    /// The answer, with as much of its body as is there at once: a watch has no end.
    fn answer(&self, request: Request<Body>) -> (Response<()>, Vec<u8>) {
        self.runtime.block_on(async {
            let answered = self.router.clone().oneshot(request).await;
            let (parts, body) = answered.unwrap_or_else(|never| match never {}).into_parts();
            let mut frames = body.into_data_stream();
            let mut body = Vec::new();
            while let Some(Some(Ok(frame))) = frames.next().now_or_never() {
                body.extend_from_slice(&frame);
            }
            (Response::from_parts(parts, ()), body)
        })
    }
}

/// A request of HTTP: a line with method and target, header lines, an empty line, the body.
pub(crate) fn http(input: &[u8]) -> bool {
    let Some(request) = read(input) else {
        return false;
    };
    let (answer, body) = ALONE.answer(request);
    let status = answer.status();
    assert!(
        status != StatusCode::INTERNAL_SERVER_ERROR,
        "{status}: {}",
        String::from_utf8_lossy(&body)
    );
    let content_type = answer.headers().get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value == "application/problem+json") && !body.is_empty() {
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("a JSON document");
        let told = |member: &str| problem.get(member).is_some_and(|told| told.is_string());
        assert!(told("reason") && told("detail"), "{problem}");
    }
    // What nobody but a leader can answer was read without fault.
    status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE
}

fn read(input: &[u8]) -> Option<Request<Body>> {
    let at = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = input.split_at(at.unwrap_or(input.len()));
    let mut lines = str::from_utf8(head).ok()?.split('\n');
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name, value.trim());
    }
    let body = body.get(2..).unwrap_or_default().to_vec();
    request.body(body.into()).ok()
}

/// A call of gRPC: a line with its path, then the message.
pub(crate) fn grpc(input: &[u8]) -> bool {
    let Some(at) = input.iter().position(|byte| *byte == b'\n') else {
        return false;
    };
    let (path, message) = input.split_at(at);
    let message = message.get(1..).unwrap_or_default();
    let Ok(length) = u32::try_from(message.len()) else {
        return false;
    };
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(length);
    body.put_slice(message);
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(body.freeze().into());
    let Ok(request) = request else {
        return false;
    };
    let (answer, body) = ALONE.answer(request);
    // As above: UNAVAILABLE. Streams say it in their trailers, after messages or none.
    let status = answer.headers().get("grpc-status");
    status.is_some_and(|status| status == "14") || (status.is_none() && !body.is_empty())
}
