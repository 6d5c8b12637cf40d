//! A caller that trusts everybody, to see whom a listener trusts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::wait;

/// How every HTTP/2 connection begins: the preface, and settings without any.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// What an HTTP/2 server answers first: settings.
const SETTINGS: u8 = 4;

/// A certificate and its key, as files.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The certificate, with its chain.
    pub certificate: &'a Path,
    /// Its key.
    pub key: &'a Path,
}

/// Begins HTTP/2 over TLS with a listener, showing it a certificate or none.
///
/// # Errors
/// The listener does not go on after the handshake; or what is shown cannot be read.
pub async fn knock(port: u16, shown: Option<Shown<'_>>) -> Result<()> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let trusting = Arc::new(Trusting(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(trusting);
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(shown) => {
            let chain = fs::read(shown.certificate)?;
            let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(&fs::read(shown.key)?)?;
            config.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let beginning = async {
        let name = ServerName::try_from("whoever")?;
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(PREFACE).await?;
        let mut frame = [0; 9];
        // A client's certificate is refused after its own side of the handshake.
        stream.read_exact(&mut frame).await?;
        ensure!(frame[3] == SETTINGS, "not settings: {frame:?}");
        Ok(())
    };
    timeout(wait::BOUND, beginning)
        .await
        .context("nothing came")?
}

/// Begins HTTP/2 without TLS.
///
/// # Errors
/// The listener does not go on.
pub async fn knock_in_plaintext(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let beginning = async {
        stream.write_all(PREFACE).await?;
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await?;
        ensure!(frame[3] == SETTINGS, "not settings: {frame:?}");
        Ok(())
    };
    timeout(wait::BOUND, beginning)
        .await
        .context("nothing came")?
}

#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
