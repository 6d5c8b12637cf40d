//! The node's own signing key: made at its first start, readable by nobody else.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use epoch_core::{SigningKey, SigningKeyError};
use epoch_store::{RealFs, read_bounded, write_durably};

const KEY_FILE: &str = "node-key.p8";
const KEY_BYTES_MAX: usize = 1 << 10;

/// Why there is no signing key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeKeyError {
    /// The file cannot be read or written.
    #[error("{} cannot be read or written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a key. It is never replaced by itself: certificates under it are out.
    #[error("{} is not a signing key: restore the file, or replace the node", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SigningKeyError,
    },
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for a new key")]
    NoRandomness,
}

/// Reads the key of `folder`, or makes it.
///
/// # Errors
/// The file cannot be read, written or parsed, or there is no randomness.
pub(crate) fn read_or_make(folder: &Path) -> Result<SigningKey, NodeKeyError> {
    match read(folder)? {
        Some(key) => Ok(key),
        None => make(folder, folder.join(KEY_FILE)),
    }
}

/// Reads the key of `folder`, if it has one.
///
/// # Errors
/// The file cannot be read or parsed.
pub(crate) fn read(folder: &Path) -> Result<Option<SigningKey>, NodeKeyError> {
    let path = folder.join(KEY_FILE);
    match read_bounded(&RealFs, &path, KEY_BYTES_MAX) {
        Ok(bytes) => match SigningKey::from_pkcs8(&bytes) {
            Ok(key) => Ok(Some(key)),
            Err(source) => Err(NodeKeyError::Malformed { path, source }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NodeKeyError::Io { path, source }),
    }
}

fn make(folder: &Path, path: PathBuf) -> Result<SigningKey, NodeKeyError> {
    let mut seed = [0; 32];
    rand::fill(&mut seed).map_err(|_unspecified| NodeKeyError::NoRandomness)?;
    let malformed = |source| NodeKeyError::Malformed {
        path: path.clone(),
        source,
    };
    let key = SigningKey::from_seed(&seed).map_err(malformed)?;
    let document = key.to_pkcs8().map_err(malformed)?;
    match write_durably(&RealFs, &path, &document) {
        Ok(()) => {
            if crate::raft::has_been_served(folder) {
                tracing::warn!(
                    kid = %key.id(),
                    "the signing key was gone: another is made. Certificates under the old one \
                     still verify"
                );
            } else {
                tracing::info!(kid = %key.id(), "signing key made");
            }
            Ok(key)
        }
        Err(source) => Err(NodeKeyError::Io { path, source }),
    }
}
