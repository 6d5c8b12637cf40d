//! Connections to peers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use epoch_core::NodeId;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::peer::PeerTls;
use super::verify::dialled;

/// To one address, once its name is looked up.
const CONNECT_WITHIN: Duration = Duration::from_millis(250);
/// One round trip, and a moment for the signatures.
const HANDSHAKE_WITHIN: Duration = Duration::from_millis(500);

/// Connects to one peer: whoever else answers at its address is refused.
#[derive(Debug, Clone)]
pub(crate) struct PeerConnector {
    tls: PeerTls,
    node: NodeId,
}

impl PeerConnector {
    pub(crate) fn new(tls: PeerTls, node: NodeId) -> Self {
        Self { tls, node }
    }

    async fn connect(self, uri: Uri) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let no_address = || io::Error::other("the peer's address has no host and port");
        let address = uri.authority().ok_or_else(no_address)?.as_str();
        let stream = reach(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(dialled(self.node)).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.tls.client_config());
        let stream = in_time(HANDSHAKE_WITHIN, connector.connect(name, stream)).await?;
        Ok(TokioIo::new(stream))
    }
}

/// Tries each of a host's addresses in turn.
async fn reach(address: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the peer's host has no address");
    for address in tokio::net::lookup_host(address).await? {
        match in_time(CONNECT_WITHIN, TcpStream::connect(address)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn in_time<T>(
    within: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(within, future).await {
        Ok(done) => done,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl Service<Uri> for PeerConnector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}
