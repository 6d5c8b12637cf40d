//! TLS between nodes: always mutual.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use super::error::TlsError;
use super::files::{self, Places};
use super::listener::Terms;
use super::name::PeerName;
use super::reload::{Reload, Reloading};
use super::verify::{CallingPeers, DialledPeer, dialled, said};
use super::{ALPN_H2, FOLDER, provider};
use crate::connections::Place;

/// Both sides of the connections between nodes, from the files in a node's folder.
#[derive(Debug, Clone)]
pub(crate) struct PeerTls(Arc<Reloading<Sides>>);

/// What both sides of new connections go by.
#[derive(Debug)]
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// The chain of a node's own certificate, in its folder's [`FOLDER`].
pub(crate) const CHAIN_FILE: &str = "peer.pem";
/// Its key.
pub(crate) const KEY_FILE: &str = "peer-key.pem";
/// The CAs of all nodes.
pub(crate) const CA_FILE: &str = "peer-ca.pem";

impl PeerTls {
    /// Reads the certificates of the node `name` in its data folder.
    ///
    /// # Errors
    /// They are missing or cannot be used, or the other nodes would refuse them.
    pub(crate) fn open(data_dir: &Path, name: PeerName) -> Result<Self, TlsError> {
        let folder = data_dir.join(FOLDER);
        let [chain, key, ca] = [CHAIN_FILE, KEY_FILE, CA_FILE].map(|file| folder.join(file));
        if let Some(missing) = [&chain, &key, &ca].into_iter().find(|file| !file.exists()) {
            return Err(TlsError::Missing(missing.clone()));
        }
        let places = Places {
            chain,
            key,
            ca: Some(ca.clone()),
        };
        let files = places.all();
        let load = move || sides(name, &places, &ca);
        Reloading::open("peer", files, load).map(|sides| Self(Arc::new(sides)))
    }

    /// What a new connection to a peer goes by.
    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.current().client)
    }

    /// To be watched for new files.
    pub(crate) fn reload(&self) -> Arc<dyn Reload> {
        Arc::clone(&self.0) as Arc<dyn Reload>
    }
}

impl Terms for PeerTls {
    type Identity = PeerName;

    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.0.current().server))
    }

    fn identity(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        place: &Arc<Place>,
    ) -> Option<PeerName> {
        // Verified in the handshake, which no peer passes without one.
        let name = PeerName::of(certificate?).ok()?;
        place.prove();
        Some(name)
    }
}

fn sides(name: PeerName, places: &Places, ca: &Path) -> Result<Sides, TlsError> {
    let chain = files::certificates(&places.chain)?;
    let key = files::private_key(&places.key)?;
    let roots = files::roots(ca)?;
    let provider = provider();
    let versions = &[&TLS13];
    let pair = |source| TlsError::Pair {
        path: places.chain.clone(),
        key: places.key.clone(),
        source,
    };

    let dialling = DialledPeer::new(name.cluster_id, roots.clone(), &provider);
    would_be_accepted(name, &chain, &dialling).map_err(|error| TlsError::Refused {
        path: places.chain.clone(),
        ca: ca.to_path_buf(),
        why: said(&error),
    })?;
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(TlsError::Protocol)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(dialling))
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(pair)?;
    client.alpn_protocols = vec![ALPN_H2.to_vec()];
    client.enable_sni = false;

    let calling = CallingPeers::new(name.cluster_id, roots, Arc::clone(&provider));
    let calling = calling.map_err(|source| TlsError::Verifier {
        path: ca.to_path_buf(),
        source,
    })?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(TlsError::Protocol)?
        .with_client_cert_verifier(Arc::new(calling))
        .with_single_cert(chain, key)
        .map_err(pair)?;
    server.alpn_protocols = vec![ALPN_H2.to_vec()];

    Ok(Sides {
        server: Arc::new(server),
        client: Arc::new(client),
    })
}

/// Whether a certificate of `name` would be accepted by nodes that go by `ca`, both as PEM.
///
/// # Errors
/// Why not.
pub(super) fn check(name: PeerName, certificate: &str, ca: &str) -> anyhow::Result<()> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate?)?;
    }
    let others = DialledPeer::new(name.cluster_id, roots, &provider());
    would_be_accepted(name, &chain, &others)?;
    Ok(())
}

/// Whether the other nodes would take this node's certificate: said here, at once and by name, and
/// not by every one of them.
fn would_be_accepted(
    name: PeerName,
    chain: &[CertificateDer<'_>],
    others: &DialledPeer,
) -> Result<(), rustls::Error> {
    let (end_entity, intermediates) = chain
        .split_first()
        .ok_or(rustls::Error::NoCertificatesPresented)?;
    let wanted = ServerName::try_from(dialled(name.node))
        .map_err(|_not_a_name| CertificateError::NotValidForName)?;
    others
        .verify_server_cert(end_entity, intermediates, &wanted, &[], UnixTime::now())
        .map(|_verified| ())
}

#[cfg(test)]
mod tests {
    use epoch_core::ClusterId;
    use uuid::Uuid;

    use super::super::first::PeerCertificates;
    use super::*;
    use crate::init::PeerCa;

    const NAME: PeerName = PeerName {
        cluster_id: ClusterId(Uuid::from_u128(1)),
        node: 2,
    };

    fn certificates() -> PeerCertificates {
        let out = tempfile::tempdir().unwrap();
        PeerCertificates::begin(out.path(), NAME.cluster_id, &PeerCa::default()).unwrap()
    }

    #[test]
    fn new_files_count_and_broken_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let certificates = certificates();
        certificates.write(NAME.node, folder.path()).unwrap();
        let tls = PeerTls::open(folder.path(), NAME).unwrap();
        let look = |asked| {
            let before = tls.client_config();
            tls.reload().look(asked);
            !Arc::ptr_eq(&before, &tls.client_config())
        };
        assert!(!look(false), "nothing has changed");
        certificates.write(NAME.node, folder.path()).unwrap();
        assert!(look(false));
        assert!(look(true), "asked to, without a change");
        std::fs::write(folder.path().join(FOLDER).join(KEY_FILE), "broken").unwrap();
        assert!(!look(false));
        certificates.write(NAME.node + 1, folder.path()).unwrap();
        assert!(!look(false), "another node's");
        certificates.write(NAME.node, folder.path()).unwrap();
        assert!(look(false));
    }

    #[test]
    fn a_certificate_of_another_node_cluster_or_ca_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        certificates().write(NAME.node, folder.path()).unwrap();
        let refused = |name| match PeerTls::open(folder.path(), name) {
            Err(TlsError::Refused { why, .. }) => why,
            opened => format!("{opened:?}"),
        };
        let node = PeerName { node: 3, ..NAME };
        assert!(refused(node).contains("not of node 3"), "{}", refused(node));
        let cluster_id = ClusterId(Uuid::from_u128(9));
        let cluster = PeerName { cluster_id, ..NAME };
        assert!(refused(cluster).contains("another cluster"));
        let other = tempfile::tempdir().unwrap();
        certificates().write(NAME.node, other.path()).unwrap();
        let ca = Path::new(FOLDER).join(CA_FILE);
        std::fs::copy(other.path().join(&ca), folder.path().join(&ca)).unwrap();
        // The CAs have one name, and different keys.
        assert!(refused(NAME).contains("BadSignature"), "{}", refused(NAME));
    }
}
