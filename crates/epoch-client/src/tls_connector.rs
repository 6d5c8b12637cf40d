//! Connections over TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector as Handshake;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use crate::tls::Tls;

/// Connects over TCP and TLS, to whoever has a certificate for the host that is called.
#[derive(Clone)]
pub(crate) struct TlsConnector(Handshake);

impl TlsConnector {
    /// Sessions are resumed among the connections of one connector.
    pub(crate) fn new(tls: &Tls) -> Self {
        Self(Handshake::from(tls.config()))
    }

    async fn connect(self, uri: Uri) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
            return Err(io::Error::other("no host is called"));
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(self.0.connect(name, stream).await?))
    }
}

impl Service<Uri> for TlsConnector {
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
