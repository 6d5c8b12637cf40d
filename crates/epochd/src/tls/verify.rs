//! Who is accepted at the other end. A chain to the CA is checked by rustls; the names are ours.

use std::io;
use std::sync::Arc;

use epoch_core::{ClusterId, NodeId};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::name::{NameError, PeerName, is_of_a_peer, uris};

fn refused(why: NameError) -> Error {
    CertificateError::Other(OtherError(Arc::new(why))).into()
}

/// What either side has against the other's certificate, if that is why something failed.
pub(crate) fn refusal(failure: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(failure);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(said(error));
        }
        // An I/O error hides the one that it is made of, and names that one's source as its own.
        cause = match error.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref().map(|inner| inner as _),
            None => error.source(),
        };
    }
    None
}

/// In words: rustls itself shows reasons that are not its own as code.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            format!("the certificate is refused: {why}")
        }
        error => error.to_string(),
    }
}

/// The name under which a node is dialled. It is never looked up nor sent.
pub(super) fn dialled(node: NodeId) -> String {
    format!("node-{node}")
}

/// The other way round.
fn node_of(dialled: &ServerName<'_>) -> Option<NodeId> {
    let ServerName::DnsName(name) = dialled else {
        return None;
    };
    name.as_ref().strip_prefix("node-")?.parse().ok()
}

/// The node of this cluster that a certificate names.
fn node_of_cluster(
    cluster_id: ClusterId,
    certificate: &CertificateDer<'_>,
) -> Result<NodeId, Error> {
    let name = PeerName::of(certificate).map_err(refused)?;
    if name.cluster_id == cluster_id {
        Ok(name.node)
    } else {
        Err(refused(NameError::Cluster(name.node)))
    }
}

/// The server's side of a connection between nodes: any node of the cluster may call.
#[derive(Debug)]
pub(super) struct CallingPeers {
    cluster_id: ClusterId,
    chain: Arc<dyn ClientCertVerifier>,
}

impl CallingPeers {
    pub(super) fn new(
        cluster_id: ClusterId,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let chain = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self {
            cluster_id,
            chain: chain.build()?,
        })
    }
}

impl ClientCertVerifier for CallingPeers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .chain
            .verify_client_cert(end_entity, intermediates, now)?;
        node_of_cluster(self.cluster_id, end_entity).map(|_node| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// The caller's side of a connection between nodes: it must be the one that was dialled.
#[derive(Debug)]
pub(super) struct DialledPeer {
    cluster_id: ClusterId,
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl DialledPeer {
    pub(super) fn new(
        cluster_id: ClusterId,
        roots: RootCertStore,
        provider: &CryptoProvider,
    ) -> Self {
        Self {
            cluster_id,
            roots,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for DialledPeer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        let found = node_of_cluster(self.cluster_id, end_entity)?;
        let Some(wanted) = node_of(server_name) else {
            return Err(CertificateError::NotValidForName.into());
        };
        if found == wanted {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(refused(NameError::Node { found, wanted }))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The client listener's side: whoever shows a certificate of the clients' CA, or none; but no
/// node, even where one CA is used for both.
#[derive(Debug)]
pub(super) struct Clients {
    chain: Arc<dyn ClientCertVerifier>,
}

impl Clients {
    pub(super) fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let chain = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self {
            chain: chain.allow_unauthenticated().build()?,
        })
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let uris = uris(end_entity).map_err(refused)?;
        if uris.iter().any(|uri| is_of_a_peer(uri)) {
            return Err(refused(NameError::Peer));
        }
        self.chain
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
