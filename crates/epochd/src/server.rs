//! A running node: its listeners, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::middleware;
use epoch_proto::raft::vouch_service_server::VouchServiceServer;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use crate::api::{self, Api, Origin};
use crate::connections::Connections;
use crate::metrics::ConnectionMetrics;
use crate::node::{Node, Voucher};
use crate::seed::Seed;
use crate::settings::{Settings, SettingsError};
use crate::tls::{self, ClientTls, Terms};

/// Requests under way on one connection of a client at most.
const CLIENT_STREAMS_MAX: u32 = 1_024;
/// And on one of a peer, which passes on what many clients ask: as many as there can be waits there
/// to a queue, and more.
const PEER_STREAMS_MAX: u32 = 100_000;
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
    /// `hangup` asks it to read its certificates again; it does so by itself when they change.
    ///
    /// # Errors
    /// The folder has no seed, is in use, or does not open; an address cannot be listened on;
    /// certificates are missing or cannot be used.
    pub async fn start(settings: &Settings, hangup: Option<Signal>) -> anyhow::Result<Self> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let own = Seed::read(&settings.data_dir)?.addresses();
        let tls = ClientTls::open(settings.tls.as_ref(), &settings.data_dir)?;
        if tls.is_plaintext() {
            let client = settings.client_listen.as_ref().unwrap_or(&own.client);
            let admin = settings.admin_listen.as_ref().unwrap_or(&own.admin);
            for address in [client, admin] {
                plaintext_is_fit(address, settings.allow_plaintext).await?;
            }
        }
        let node = Node::start(settings, &tasks, &stop).await?;
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
        server.watch_certificates(&tls, hangup);
        server.serve_peers(peer);
        server.serve_clients(client, tls.clone())?;
        server.serve_admin(admin, tls);
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
        let api = Api::new(Arc::clone(&self.node), Origin::Peer);
        let voucher = VouchServiceServer::new(Voucher(Arc::clone(&self.node)));
        let routes = Routes::new(self.node.consensus.peer_service()).add_service(voucher);
        let router = api::admit_peer_calls(&api, routes)
            .prepare()
            .into_axum_router();
        let identified = router.layer(middleware::from_fn(api::identify_by_peer));
        let routes = Routes::from(identified);
        let tls = self.node.consensus.tls().clone();
        let metrics = &self.node.metrics.peer_connections;
        self.serve(metrics, listener, tls, routes, PEER_STREAMS_MAX);
    }

    fn serve_clients(&self, listener: TcpListener, tls: ClientTls) -> anyhow::Result<()> {
        let routes = Routes::from(self.client_router()?);
        let metrics = &self.node.metrics.client_connections;
        self.serve(metrics, listener, tls, routes, CLIENT_STREAMS_MAX);
        Ok(())
    }

    /// What clients reach, for who has a request at hand, and no connection: fuzz targets.
    ///
    /// # Errors
    /// The descriptors for reflection are damaged.
    #[doc(hidden)]
    pub fn client_router(&self) -> anyhow::Result<axum::Router> {
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
        Ok(api::router(api, routes.prepare().into_axum_router()))
    }

    fn serve(
        &self,
        metrics: &ConnectionMetrics,
        listener: TcpListener,
        terms: impl Terms,
        routes: Routes,
        streams_max: u32,
    ) {
        let stop = self.stop.clone();
        let failed = self.node.metrics.handshakes_failed.clone();
        let name = metrics.listener;
        let connections = Connections::new(metrics.clone());
        let incoming = tls::incoming(listener, terms, connections, failed);
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

    fn serve_admin(&self, listener: TcpListener, tls: ClientTls) {
        let api = Api::new(Arc::clone(&self.node), Origin::Client);
        let routes = Routes::from(api::admin_router(api));
        let metrics = &self.node.metrics.admin_connections;
        self.serve(metrics, listener, tls, routes, CLIENT_STREAMS_MAX);
    }

    fn watch_certificates(&self, clients: &ClientTls, hangup: Option<Signal>) {
        let mut watched = vec![self.node.consensus.tls().reload()];
        watched.extend(clients.reload());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = tls::watch(watched, hangup) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// Whether clients or metrics may be served in plaintext at this address: where only this host
/// reaches it, or it is said to be wanted.
async fn plaintext_is_fit(address: &str, allowed: bool) -> anyhow::Result<()> {
    let resolved = tokio::net::lookup_host(address).await;
    let mut resolved = resolved.with_context(|| format!("{address} cannot be listened on"))?;
    if resolved.all(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    if allowed {
        tracing::warn!(
            address,
            "serving in plaintext where others than this host can reach it: whoever is on the way \
             reads session ids and certificates, and can act on them"
        );
        return Ok(());
    }
    anyhow::bail!(SettingsError(format!(
        "{address} can be reached from other hosts, and there is no certificate to serve with: give \
         --tls-cert and --tls-key (or [tls] in the settings file, or tls/server.pem and \
         tls/server-key.pem in the data folder), or listen on 127.0.0.1. --allow-plaintext serves \
         without TLS, for where something else keeps others out"
    )))
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
