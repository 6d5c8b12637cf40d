//! What is trusted, in a file: a restart cannot be rolled back.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use epoch_core::{Pin, StoredTrustError, TRUST_BYTES_MAX, Trust};
use tempfile::NamedTempFile;

/// Why trust cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// The file cannot be read.
    #[error("cannot read the stored trust {}: {error}; check its owner and permissions", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is in it is not what was stored.
    #[error("{}: {error}", .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: StoredTrustError,
    },
}

/// The trust in the file; that in the pin alone where there is no file yet.
pub(super) fn load(pin: Pin, path: &Path) -> Result<Trust, TrustFileError> {
    let content = File::open(path).and_then(|file| {
        let mut content = Vec::new();
        let limit = u64::try_from(TRUST_BYTES_MAX).unwrap_or(u64::MAX);
        // One byte more than is taken, so that a longer one is refused.
        file.take(limit.saturating_add(1))
            .read_to_end(&mut content)?;
        Ok(content)
    });
    let path = || path.to_owned();
    match content {
        Ok(content) => Trust::from_json(pin, &content).map_err(|error| TrustFileError::Content {
            path: path(),
            error,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Trust::new(pin)),
        Err(error) => Err(TrustFileError::Unreadable {
            path: path(),
            error,
        }),
    }
}

/// Replaces the file: a crash leaves the old one or the new one, on disk.
pub(super) fn save(trust: &Trust, path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    // Temporary files are made with 0600, whatever the umask.
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(trust.to_json().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
