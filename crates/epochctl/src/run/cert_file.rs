//! The file in which the command finds its certificate.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use crate::token::unverified_claims;

/// The wait before a certificate is renewed that does not say how long it is valid.
const RENEWAL_DEFAULT: Duration = Duration::from_secs(3_600);
/// The shortest wait, for a certificate that has expired already.
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// The file in which the command finds its certificate: only its user can read it, a reader sees
/// the old or the new one and never a part, and it is removed at the end.
#[derive(Debug)]
pub(crate) struct CertFile {
    folder: TempDir,
    path: PathBuf,
}

impl CertFile {
    pub(crate) fn new(certificate: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("epoch-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let path = folder.path().join("certificate");
        let file = Self { folder, path };
        file.replace(certificate)?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn replace(&self, certificate: &str) -> io::Result<()> {
        // Temporary files are made with 0600, whatever the umask.
        let mut file = NamedTempFile::new_in(self.folder.path())?;
        file.write_all(certificate.as_bytes())?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// How long to wait before a certificate is renewed: two thirds of the time it has left.
pub(crate) fn renewal_in(certificate: &str, now_ms: u64) -> Duration {
    let expires_at_s =
        unverified_claims(certificate).and_then(|claims| claims.get("exp")?.as_u64());
    let left_ms = expires_at_s.map(|at_s| at_s.saturating_mul(1_000).saturating_sub(now_ms));
    left_ms
        .map_or(RENEWAL_DEFAULT, |ms| Duration::from_millis(ms / 3 * 2))
        .max(RENEWAL_MIN)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    #[test]
    fn only_its_user_reads_it_it_is_replaced_whole_and_removed_at_the_end() {
        let file = CertFile::new("one").unwrap();
        let path = file.path().to_owned();
        file.replace("two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        drop(file);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_certificate_is_renewed_well_before_it_expires() {
        let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(r#"{"exp":1000}"#));
        assert_eq!(renewal_in(&token, 970_000), Duration::from_secs(20));
        assert_eq!(renewal_in(&token, 2_000_000), RENEWAL_MIN);
        assert_eq!(renewal_in("garbage", 0), RENEWAL_DEFAULT);
    }
}
