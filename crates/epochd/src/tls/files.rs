//! Certificates and keys as PEM files.

use std::path::{Path, PathBuf};

use epoch_store::{RealFs, read_bounded, write_durably};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsError;

/// Largest file that is read: more certificates than any chain or set of CAs has.
const FILE_BYTES_MAX: usize = 1 << 20;

/// A file's contents.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    read_bounded(&RealFs, path, FILE_BYTES_MAX).map_err(|source| TlsError::Unreadable {
        path: path.to_path_buf(),
        source,
    })
}

/// Writes a file that nobody else can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), TlsError> {
    let unwritable = |source| TlsError::Unwritable {
        path: path.to_path_buf(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(unwritable)?;
    }
    write_durably(&RealFs, path, text.as_bytes()).map_err(unwritable)
}

/// Certificates: a chain from its end, or CAs.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(TlsError::NoCertificate(path.to_path_buf())),
    }
}

pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // What exactly is wrong would only tell of the key.
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|_not_a_key| TlsError::NoKey(path.to_path_buf()))
}

/// The CAs of a file, each as good as the other: with two of them, one can take the other's place.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|source| TlsError::Root {
            path: path.to_path_buf(),
            source,
        })?;
    }
    Ok(roots)
}

/// Where certificate, key and CA are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) ca: Option<PathBuf>,
}

impl Places {
    /// All of them.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let ca = self.ca.iter().cloned();
        [self.chain.clone(), self.key.clone()]
            .into_iter()
            .chain(ca)
            .collect()
    }
}
