//! Making certificates.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use super::error::TlsError;
use super::files;
use super::name::PeerName;

const DAY: Duration = Duration::from_secs(86_400);
const AUTHORITY_DAYS: u32 = 20 * 365;
const CERTIFICATE_DAYS: u32 = 10 * 365;

/// A CA that signs.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as PEM.
    pub(crate) certificate: String,
}

/// A certificate and its key, as PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// A new one; good for 20 years.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn make(name: &str) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = params(name, AUTHORITY_DAYS);
        // It signs ends of chains and nothing else.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// One that there is.
    ///
    /// # Errors
    /// The files cannot be read, or are not a CA's certificate and key.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let text = |path: &Path| {
            String::from_utf8(files::read(path)?)
                .map_err(|_not_text| TlsError::NoCertificate(path.to_path_buf()))
        };
        let unusable = |source| TlsError::Authority {
            path: certificate.to_path_buf(),
            source,
        };
        let (pem, key_pem) = (text(certificate)?, text(key)?);
        let key = KeyPair::from_pem(&key_pem).map_err(unusable)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(unusable)?;
        Ok(Self {
            issuer,
            certificate: pem,
        })
    }

    /// Its key, as PEM.
    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A node's, for both ends of a connection to another.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn peer(&self, name: PeerName) -> Result<Issued, TlsError> {
        let mut params = params(&format!("epochd node {}", name.node), CERTIFICATE_DAYS);
        params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.issue(params)
    }

    /// A server's, for these hosts: names and addresses.
    ///
    /// # Errors
    /// A host cannot stand in a certificate, or the system gives no randomness.
    pub(crate) fn server(&self, hosts: &[&str]) -> Result<Issued, TlsError> {
        let mut params = params("epochd", CERTIFICATE_DAYS);
        for host in hosts {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let name = match bare.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_not_an_address) => SanType::DnsName((*host).try_into()?),
            };
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// A client's, who is `uri`.
    ///
    /// # Errors
    /// The URI is not ASCII, or the system gives no randomness.
    pub(crate) fn client(&self, uri: &str) -> Result<Issued, TlsError> {
        let mut params = params(uri, CERTIFICATE_DAYS);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Result<Issued, TlsError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        let key = key.serialize_pem();
        Ok(Issued { certificate, key })
    }
}

fn params(name: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let now = SystemTime::now();
    // Nodes' clocks differ.
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
    params
}
