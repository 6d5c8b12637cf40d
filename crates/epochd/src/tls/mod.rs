//! TLS: who is at the other end of a connection.
//!
//! - Between nodes it is always mutual ([`peer`]): both show a certificate of the peers' CA whose
//!   URI names cluster and node ([`name`]), and both check it ([`verify`]).
//! - Clients and metrics ([`client`]): the server shows a certificate; clients may.
//! - [`listener`]: connections are handed on once their handshake is done. [`connector`]: the other
//!   end, to a peer.
//! - [`reload`]: new files are taken up without a restart.
//! - [`issue`]: making certificates. [`first`]: those of a new cluster.

mod client;
mod connector;
mod error;
mod files;
mod first;
mod issue;
mod listener;
mod name;
mod peer;
mod reload;
mod verify;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub(crate) use client::{ClientTls, TlsIdentity};
pub(crate) use connector::PeerConnector;
pub(crate) use error::TlsError;
pub(crate) use first::{CA_KEY_FILE, DevCertificates, PeerCertificates};
pub(crate) use listener::{Terms, incoming};
pub(crate) use name::PeerName;
pub(crate) use peer::PeerTls;
pub(crate) use reload::watch;
pub(crate) use verify::refusal;

/// Where a node's certificates are, in its data folder.
pub(crate) const FOLDER: &str = "tls";

/// gRPC.
const ALPN_H2: &[u8] = b"h2";
/// JSON, for those who do not speak HTTP/2.
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The one cryptography provider, named wherever TLS is set up: nothing depends on a default that
/// a process has to install first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
