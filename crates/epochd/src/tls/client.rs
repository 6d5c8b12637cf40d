//! TLS for clients and metrics: the server shows a certificate, clients may.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;

use super::error::TlsError;
use super::files::{self, Places};
use super::listener::Terms;
use super::name::uris;
use super::reload::{Reload, Reloading};
use super::verify::Clients;
use super::{ALPN_H2, ALPN_HTTP1, FOLDER, provider};
use crate::connections::Place;
use crate::settings::TlsFiles;

/// The server's certificate that is used where the settings name none, in [`FOLDER`].
pub(crate) const CHAIN_FILE: &str = "server.pem";
/// Its key.
pub(crate) const KEY_FILE: &str = "server-key.pem";
/// The CA of clients.
pub(crate) const CA_FILE: &str = "client-ca.pem";

/// Those in a node's data folder, if it has any.
fn files_of(data_dir: &Path) -> Option<TlsFiles> {
    let folder = data_dir.join(FOLDER);
    let [cert, key, ca] = [CHAIN_FILE, KEY_FILE, CA_FILE].map(|file| folder.join(file));
    cert.exists().then(|| TlsFiles {
        cert,
        key,
        client_ca: ca.exists().then_some(ca),
    })
}

/// Who a client is by the certificate that it showed, in the extensions of each of its requests.
#[derive(Debug, Clone)]
pub(crate) struct TlsIdentity {
    /// The URIs of a verified certificate; none over plaintext, or where the client showed no
    /// certificate.
    pub(crate) uris: Arc<[String]>,
    /// The connection, which a certificate alone does not prove: what it is worth is judged by each
    /// call.
    pub(crate) place: Arc<Place>,
}

/// How clients connect: over TLS, or in plaintext.
#[derive(Debug, Clone)]
pub(crate) struct ClientTls(Option<Arc<Reloading<ServerConfig>>>);

impl ClientTls {
    /// With these files, or those in the data folder; plaintext where there are none.
    ///
    /// # Errors
    /// The files cannot be used.
    pub(crate) fn open(files: Option<&TlsFiles>, data_dir: &Path) -> Result<Self, TlsError> {
        let Some(files) = files.cloned().or_else(|| files_of(data_dir)) else {
            return Ok(Self(None));
        };
        let places = Places {
            chain: files.cert,
            key: files.key,
            ca: files.client_ca,
        };
        let files = places.all();
        let tls = Reloading::open("client", files, move || config(&places))?;
        Ok(Self(Some(Arc::new(tls))))
    }

    /// Whether connections are in plaintext.
    pub(crate) fn is_plaintext(&self) -> bool {
        self.0.is_none()
    }

    /// To be watched for new files.
    pub(crate) fn reload(&self) -> Option<Arc<dyn Reload>> {
        let tls = self.0.as_ref()?;
        Some(Arc::clone(tls) as Arc<dyn Reload>)
    }
}

impl Terms for ClientTls {
    type Identity = TlsIdentity;

    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.0.as_ref().map(|tls| tls.current())
    }

    fn identity(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        place: &Arc<Place>,
    ) -> Option<TlsIdentity> {
        let uris = match certificate {
            Some(certificate) => uris(certificate).ok()?,
            None => Vec::new(),
        };
        Some(TlsIdentity {
            uris: uris.into(),
            place: Arc::clone(place),
        })
    }
}

fn config(places: &Places) -> Result<ServerConfig, TlsError> {
    let chain = files::certificates(&places.chain)?;
    let key = files::private_key(&places.key)?;
    let provider = provider();
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Protocol)?;
    let config = match &places.ca {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let clients = Clients::new(files::roots(ca)?, provider);
            let clients = clients.map_err(|source| TlsError::Verifier {
                path: ca.clone(),
                source,
            })?;
            config.with_client_cert_verifier(Arc::new(clients))
        }
    };
    let mut config = config
        .with_single_cert(chain, key)
        .map_err(|source| TlsError::Pair {
            path: places.chain.clone(),
            key: places.key.clone(),
            source,
        })?;
    config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_HTTP1.to_vec()];
    Ok(config)
}
