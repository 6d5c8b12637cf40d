//! Connections, handed on once their handshake is done.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use epoch_core::error_chain;
use futures::stream::{Stream, StreamExt as _};
use metrics::Counter;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpIncoming};

use super::verify::refusal;

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Handshakes under way at once on one listener; more connections wait until they are accepted.
const HANDSHAKES_MAX: usize = 1_024;
/// Connections that are done and wait to be served: a moment's worth.
const READY_MAX: usize = 64;
/// After a failure that is the system's (no more files, say), and not a connection's.
const PAUSE: Duration = Duration::from_millis(100);
/// Failures are counted; one of them is told about in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How soon a connection is found to be dead that says nothing.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// How connections to a listener are made, and what is known of who made one.
pub(crate) trait Terms: Clone + Send + Sync + 'static {
    /// Goes into the extensions of each request of the connection.
    type Identity: Clone + Send + Sync + Unpin + 'static;

    /// What new connections go by; none for plaintext.
    fn server_config(&self) -> Option<Arc<ServerConfig>>;

    /// Who it is by the verified certificate, if one was shown. None is nobody who is served.
    fn identity(&self, certificate: Option<&CertificateDer<'_>>) -> Option<Self::Identity>;
}

/// Connections that are ready to be served. Ends accepting when dropped.
pub(crate) fn incoming<T: Terms>(
    name: &'static str,
    listener: TcpListener,
    terms: T,
    failed: Counter,
) -> impl Stream<Item = io::Result<Connection<T::Identity>>> + Send + 'static {
    let (ready, connections) = mpsc::channel(READY_MAX);
    let acceptor = Acceptor {
        name,
        terms,
        failed,
        reported: Arc::default(),
        ready,
    };
    tokio::spawn(acceptor.run(listener));
    ReceiverStream::new(connections).map(Ok)
}

#[derive(Clone)]
struct Acceptor<T: Terms> {
    name: &'static str,
    terms: T,
    failed: Counter,
    reported: Arc<Mutex<Option<Instant>>>,
    ready: mpsc::Sender<Connection<T::Identity>>,
}

impl<T: Terms> Acceptor<T> {
    async fn run(self, listener: TcpListener) {
        let ready = self.ready.clone();
        tokio::select! {
            () = self.accept(listener) => {}
            // Nobody serves any more. Handshakes under way end with their set.
            () = ready.closed() => {}
        }
    }

    async fn accept(self, listener: TcpListener) {
        let mut incoming = TcpIncoming::from(listener)
            .with_nodelay(Some(true))
            .with_keepalive(Some(TCP_KEEPALIVE));
        let permits = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut handshakes = JoinSet::new();
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let stream = match incoming.next().await {
                Some(Ok(stream)) => stream,
                Some(Err(error)) if is_of_one_connection(&error) => continue,
                Some(Err(error)) => {
                    self.report(None, &format!("accepting: {error}"));
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                None => return,
            };
            while handshakes.try_join_next().is_some() {}
            let acceptor = self.clone();
            let from = stream.peer_addr().ok();
            handshakes.spawn(async move {
                match acceptor.secure(stream).await {
                    Ok(connection) => {
                        drop(permit);
                        // Nobody serves any more.
                        drop(acceptor.ready.send(connection).await);
                    }
                    Err(why) => {
                        acceptor.failed.increment(1);
                        acceptor.report(from, &why);
                    }
                }
            });
        }
    }

    async fn secure(&self, stream: TcpStream) -> Result<Connection<T::Identity>, String> {
        let nobody = || "the certificate names nobody who is served here".to_owned();
        let Some(config) = self.terms.server_config() else {
            return Ok(Connection {
                stream: Transport::Plain(stream),
                identity: self.terms.identity(None).ok_or_else(nobody)?,
            });
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        let stream = match tokio::time::timeout(HANDSHAKE_WITHIN, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(refusal(&error).unwrap_or_else(|| error_chain(&error))),
            Err(_elapsed) => return Err(format!("no handshake within {HANDSHAKE_WITHIN:?}")),
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let identity = self.terms.identity(certificate).ok_or_else(nobody)?;
        Ok(Connection {
            stream: Transport::Tls(Box::new(stream)),
            identity,
        })
    }

    /// Says why a connection was refused, though not so often that strangers fill the log.
    fn report(&self, from: Option<SocketAddr>, why: &str) {
        let now = Instant::now();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|last| now.duration_since(last) >= REPORT_INTERVAL) {
            *reported = Some(now);
            tracing::warn!(
                listener = self.name,
                from = from.map(tracing::field::display),
                why,
                "a connection was refused"
            );
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// A connection, and who made it.
#[derive(Debug)]
pub(crate) struct Connection<I> {
    stream: Transport,
    identity: I,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl<I: Clone + Send + Sync + 'static> Connected for Connection<I> {
    type ConnectInfo = I;

    fn connect_info(&self) -> I {
        self.identity.clone()
    }
}

impl<I: Unpin> AsyncRead for Connection<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl<I: Unpin> AsyncWrite for Connection<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
