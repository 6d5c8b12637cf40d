//! A running node: its listeners, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use crate::api::{self, Api, Origin};
use crate::node::Node;
use crate::settings::Settings;

/// Requests under way on one connection of a client at most.
const CLIENT_STREAMS_MAX: u32 = 1_024;
/// And on one of a peer, which passes on what many clients ask: as many as there can be waits there
/// to a queue, and more.
const PEER_STREAMS_MAX: u32 = 100_000;
/// How soon a connection is found to be dead that says nothing.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a stop waits for connections to end by themselves.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// A node with its listeners open.
#[derive(Debug)]
pub struct Server {
    node: Arc<Node>,
    tasks: TaskTracker,
    stop: CancellationToken,
    client_address: SocketAddr,
}

impl Server {
    /// Starts the node of a data folder. It serves once it has found a leader or become one.
    ///
    /// # Errors
    /// The folder has no seed, is in use, or does not open; or an address cannot be listened on.
    pub async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let node = Node::start(settings, &tasks, &stop).await?;
        let own = node.seed.addresses();
        let listen = async |given: &Option<String>, own: &str| {
            let (address, source) = match given {
                Some(address) => (address.as_str(), "its settings"),
                None => (own, "its seed.json"),
            };
            let listening = TcpListener::bind(address).await;
            listening.with_context(|| {
                format!(
                    "node {} cannot listen on {address}, as {source} says",
                    node.id
                )
            })
        };
        let client = listen(&settings.client_listen, &own.client).await?;
        let peer = listen(&settings.peer_listen, &own.peer).await?;
        let admin = listen(&settings.admin_listen, &own.admin).await?;
        let client_address = client.local_addr()?;
        let server = Self {
            node,
            tasks,
            stop,
            client_address,
        };
        server.serve_peers(peer);
        server.serve_clients(client).await?;
        server.serve_admin(admin);
        server.tasks.close();
        Ok(server)
    }

    /// Where clients are served.
    #[must_use]
    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Ends the node: no new calls, the core stopped, the log closed.
    pub async fn stop(self) {
        self.stop.cancel();
        self.node.consensus.stop().await;
        if tokio::time::timeout(STOP_WITHIN, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::info!("connections were cut off after {STOP_WITHIN:?}");
        }
    }

    fn serve_peers(&self, listener: TcpListener) {
        let public_key = *self.node.key.verifying_key().as_bytes();
        let api = Api::new(Arc::clone(&self.node), Origin::Peer);
        let routes = Routes::new(self.node.consensus.peer_service(public_key));
        let routes = api::admit_peer_calls(&api, routes);
        self.serve("peer", listener, routes, PEER_STREAMS_MAX);
    }

    async fn serve_clients(&self, listener: TcpListener) -> anyhow::Result<()> {
        let api = Api::new(Arc::clone(&self.node), Origin::Client);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(epoch_proto::PUBLIC_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let (reporter, health) = tonic_health::server::health_reporter();
        let node = Arc::clone(&self.node);
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = report_health(node, reporter) => {}
                () = stop.cancelled() => {}
            }
        });
        let routes = api::public_routes(&api, Routes::new(reflection).add_service(health));
        let router = api::router(api, routes.prepare().into_axum_router());
        let routes = Routes::from(router);
        self.serve("client", listener, routes, CLIENT_STREAMS_MAX);
        Ok(())
    }

    fn serve(&self, name: &'static str, listener: TcpListener, routes: Routes, streams_max: u32) {
        let stop = self.stop.clone();
        let incoming = TcpIncoming::from(listener)
            .with_nodelay(Some(true))
            .with_keepalive(Some(TCP_KEEPALIVE));
        self.tasks.spawn(async move {
            let served = tonic::transport::Server::builder()
                .accept_http1(true)
                .max_concurrent_streams(streams_max)
                .http2_keepalive_interval(Some(Duration::from_secs(10)))
                .http2_keepalive_timeout(Some(Duration::from_secs(10)))
                .add_routes(routes)
                .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
                .await;
            if let Err(error) = served {
                crate::fatal::stop(&format!("the {name} listener has ended: {error}"));
            }
        });
    }

    fn serve_admin(&self, listener: TcpListener) {
        let metrics = self.node.metrics.clone();
        let router = Router::new().route("/metrics", get(move || async move { metrics.render() }));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let serving = axum::serve(listener, router);
            if let Err(error) = serving.with_graceful_shutdown(stop.cancelled_owned()).await {
                crate::fatal::stop(&format!("the admin listener has ended: {error}"));
            }
        });
    }
}

/// Keeps the standard health service in step with `/readyz`. Never ends.
async fn report_health(node: Arc<Node>, reporter: tonic_health::server::HealthReporter) {
    use tonic_health::ServingStatus;
    const INTERVAL: Duration = Duration::from_millis(100);
    loop {
        let status = if node.is_ready() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        // The empty name is the server as a whole.
        reporter.set_service_status("", status).await;
        tokio::time::sleep(INTERVAL).await;
    }
}
