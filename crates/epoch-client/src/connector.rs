//! Another way to a node than TCP, for tests.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

type Connecting<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// Makes connections in memory.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(Uri) -> Connecting<DuplexStream> + Send + Sync>);

impl Connector {
    /// `connect` returns this side's end of a connection to the node at that address.
    pub fn new<F>(connect: impl Fn(Uri) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<DuplexStream>> + Send + 'static,
    {
        Self(Arc::new(move |uri| Box::pin(connect(uri))))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a test's connections")
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = (self.0)(uri);
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}
