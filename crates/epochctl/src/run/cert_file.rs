//! The file in which the command finds its certificate.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

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

#[cfg(test)]
mod tests {
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
}
