//! Connections, handed on once their handshake is done, and ended when they lose their place.

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
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::{Connected, TcpIncoming};

use super::verify::refusal;
use crate::connections::{Connections, Held, Place};

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

    /// Who it is by the verified certificate, if one was shown. None is nobody who is served. Where
    /// that is all there is to know of a caller, the connection is proven by it.
    fn identity(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        place: &Arc<Place>,
    ) -> Option<Self::Identity>;
}

/// Connections that are ready to be served. Ends accepting when dropped.
pub(crate) fn incoming<T: Terms>(
    listener: TcpListener,
    terms: T,
    connections: Arc<Connections>,
    failed: Counter,
) -> impl Stream<Item = io::Result<Connection<T::Identity>>> + Send + 'static {
    let (ready, incoming) = mpsc::channel(READY_MAX);
    let acceptor = Acceptor {
        terms,
        connections,
        failed,
        reported: Arc::default(),
        ready,
    };
    tokio::spawn(acceptor.run(listener));
    ReceiverStream::new(incoming).map(Ok)
}

#[derive(Clone)]
struct Acceptor<T: Terms> {
    terms: T,
    connections: Arc<Connections>,
    failed: Counter,
    reported: Arc<Mutex<Option<Instant>>>,
    ready: mpsc::Sender<Connection<T::Identity>>,
}

impl<T: Terms> Acceptor<T> {
    async fn run(self, listener: TcpListener) {
        let ready = self.ready.clone();
        let connections = Arc::clone(&self.connections);
        tokio::select! {
            () = self.accept(listener) => {}
            () = connections.sweep() => {}
            // Nobody serves any more. Handshakes under way end with their set.
            () = ready.closed() => {}
        }
    }

    async fn accept(self, listener: TcpListener) {
        let mut incoming = TcpIncoming::from(listener)
            .with_nodelay(Some(true))
            .with_keepalive(Some(TCP_KEEPALIVE));
        let mut handshakes = JoinSet::new();
        loop {
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
            let Some(held) = self.connections.open() else {
                self.report(
                    from,
                    "no room: too many connections of known callers are open",
                );
                continue;
            };
            handshakes.spawn(async move {
                match acceptor.secure(stream, held).await {
                    // Nobody serves any more.
                    Ok(connection) => drop(acceptor.ready.send(connection).await),
                    Err(why) => {
                        acceptor.failed.increment(1);
                        acceptor.report(from, &why);
                    }
                }
            });
        }
    }

    async fn secure(
        &self,
        stream: TcpStream,
        held: Held,
    ) -> Result<Connection<T::Identity>, String> {
        let nobody = || "the certificate names nobody who is served here".to_owned();
        let Some(config) = self.terms.server_config() else {
            let identity = self.terms.identity(None, held.place());
            let identity = identity.ok_or_else(nobody)?;
            return Ok(Connection::new(Transport::Plain(stream), identity, held));
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        let stream = match held.closing().run_until_cancelled(handshake).await {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => return Err(refusal(&error).unwrap_or_else(|| error_chain(&error))),
            None => return Err("the handshake took too long, or its place was needed".to_owned()),
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let identity = self.terms.identity(certificate, held.place());
        let identity = identity.ok_or_else(nobody)?;
        let stream = Transport::Tls(Box::new(stream));
        Ok(Connection::new(stream, identity, held))
    }

    /// Says why a connection was refused, though not so often that strangers fill the log.
    fn report(&self, from: Option<SocketAddr>, why: &str) {
        let now = Instant::now();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|last| now.duration_since(last) >= REPORT_INTERVAL) {
            *reported = Some(now);
            tracing::warn!(
                listener = self.connections.listener(),
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

/// A connection, and who made it. Once it has to close, its reads say that this is the end, and
/// nothing is waited for any more.
#[derive(Debug)]
pub(crate) struct Connection<I> {
    stream: Transport,
    identity: I,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    _held: Held,
}

impl<I> Connection<I> {
    fn new(stream: Transport, identity: I, held: Held) -> Self {
        Self {
            stream,
            identity,
            closing: Box::pin(held.closing().clone().cancelled_owned()),
            _held: held,
        }
    }

    /// What has been written may still leave; but one who reads nothing must not keep it open.
    fn unless_closing<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_pending() && self.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        written
    }
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
        let connection = self.get_mut();
        if connection.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        match &mut connection.stream {
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
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        };
        connection.unless_closing(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        };
        connection.unless_closing(cx, written)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        };
        connection.unless_closing(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        let written = match &mut connection.stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        };
        connection.unless_closing(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
