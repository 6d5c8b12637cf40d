//! What a client goes by over TLS.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use crate::error::Error;

/// What a client goes by over TLS: whom it trusts, and who it is. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// `ca`: the CAs that sign the nodes' certificates, as PEM; those that the system trusts where
    /// none are given. `certificate`: the client's own certificate, with its chain, and its
    /// private key, both as PEM.
    ///
    /// # Errors
    /// Something given is not what it should be, or certificate and key do not belong together.
    pub fn new(ca: Option<&[u8]>, certificate: Option<(&[u8], &[u8])>) -> Result<Self, Error> {
        let roots = match ca {
            Some(pem) => roots(certificates(pem, "the CA")?)?,
            None => system_roots(),
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::usage(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots);
        let config = match certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "the client's certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_not_a_key| {
                    Error::usage(
                        "the client's key is no unencrypted private key in PEM (BEGIN PRIVATE KEY)",
                    )
                })?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    Error::usage(format!(
                        "the client's certificate cannot be used with its key: {error}"
                    ))
                })?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// For HTTP/2 connections.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// For HTTP clients that say themselves which protocols they speak.
    #[doc(hidden)]
    #[must_use]
    pub fn http_config(&self) -> ClientConfig {
        ClientConfig::clone(&self.0)
    }
}

fn certificates(pem: &[u8], whose: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(Error::usage(format!(
            "{whose} has no certificate in PEM (BEGIN CERTIFICATE), or a damaged one"
        ))),
    }
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| Error::usage(format!("the CA cannot be used: {error}")))?;
    }
    Ok(roots)
}

/// Where the system has none, every node is refused: which is said then.
fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a CA of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

/// What to do about a failure, if TLS is why.
pub(crate) fn next_step(failure: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(failure);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(next_step_after(error));
        }
        // HTTP/2's words for an alert of TLS, where it expected a frame.
        if error.to_string().contains("frame with invalid size") {
            return Some(
                "check the address: what answers there does not speak plaintext HTTP/2. If it \
                 serves TLS, write https://, or give its CA",
            );
        }
        cause = below(error);
    }
    None
}

/// What caused an error. An I/O error hides the one that it is made of, and names that one's source
/// as its own.
fn below<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a (dyn std::error::Error + 'static)> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as _),
        None => error.source(),
    }
}

fn next_step_after(error: &rustls::Error) -> &'static str {
    use rustls::Error as Tls;
    match error {
        // The second: of a CA of the same name.
        Tls::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            "give the CA that signs the nodes' certificates; the one given, or those that the \
             system trusts, did not sign this one"
        }
        Tls::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "call the node by a name or address that its certificate has, or have it given one \
             with this name"
        }
        Tls::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "have the node's certificate renewed, or set this host's clock right",
        Tls::InvalidCertificate(_) => "have the node's certificate replaced",
        Tls::InvalidMessage(_) => {
            "check the address: what answers there does not speak TLS (http:// is for plaintext)"
        }
        Tls::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied,
        ) => {
            "give a client certificate that the node accepts: of its client CA, not expired, and \
             not a node's own"
        }
        _ => "check certificates and addresses: the connection could not be secured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_pem_is_refused_by_name() {
        let refused = Tls::new(Some(b"x"), None).unwrap_err();
        assert!(refused.to_string().contains("the CA"), "{refused}");
        let refused = Tls::new(None, Some((b"x", b"y"))).unwrap_err();
        assert!(refused.to_string().contains("client's"), "{refused}");
    }

    #[test]
    fn a_failure_of_tls_is_found_below_others() {
        let unknown = rustls::Error::from(CertificateError::UnknownIssuer);
        let failure = io::Error::other(io::Error::other(unknown));
        assert!(next_step(&failure).unwrap().contains("CA"));
        let alert = io::Error::other("connection error detected: frame with invalid size");
        assert!(next_step(&alert).unwrap().contains("https://"));
        assert_eq!(next_step(&io::Error::other("else")), None);
    }
}
