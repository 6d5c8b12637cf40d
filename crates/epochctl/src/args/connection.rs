//! How the nodes are called.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use epoch_client::{Tls, Token};

use crate::exit::Failure;

/// The largest file that is read: more certificates than any chain or set of CAs has.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whom the command line trusts, and who it is.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Connection {
    /// The CAs that sign the nodes' certificates (PEM), instead of those that the system trusts.
    /// Endpoints without a scheme are then https://.
    #[arg(long, global = true, env = "EPOCHCTL_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// This client's certificate, with its chain (PEM); together with --key.
    #[arg(long, global = true, env = "EPOCHCTL_CERT", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,

    /// The certificate's private key (PEM).
    #[arg(long, global = true, env = "EPOCHCTL_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// A file with a bearer token, which is sent with every call.
    #[arg(long, global = true, env = "EPOCHCTL_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connection {
    /// The certificates that are given, read.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let certificate = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(Failure::usage(
                    "a certificate is used with its key",
                    "give both --cert and --key (EPOCHCTL_CERT and EPOCHCTL_KEY)",
                ));
            }
        };
        let ca = self.ca.as_deref().map(read).transpose()?;
        if ca.is_none() && certificate.is_none() {
            return Ok(None);
        }
        let certificate = certificate
            .as_ref()
            .map(|(cert, key)| (cert.as_slice(), key.as_slice()));
        let tls = Tls::new(ca.as_deref(), certificate).map_err(|error| Failure {
            next_step: "check the files of --ca, --cert and --key".to_owned(),
            ..Failure::from(error)
        })?;
        Ok(Some(tls))
    }

    /// The token that is given, read.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = String::from_utf8(read(path)?).unwrap_or_default();
        text.trim().parse().map(Some).map_err(|error| {
            Failure::usage(format!("{}: {error}", path.display()), "check --token-file")
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| {
            Failure::usage(
                format!("cannot read {}: {error}", path.display()),
                "check the path, and that you may read it",
            )
        })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_its_key_and_a_file_that_is_none_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no certificate, and no token").unwrap();
        let given = || Some(file.path().to_path_buf());
        let alone = Connection {
            cert: given(),
            ..Connection::default()
        };
        let malformed = Connection {
            ca: given(),
            token_file: given(),
            ..Connection::default()
        };
        let missing = Connection {
            ca: Some("/nowhere/ca.pem".into()),
            ..Connection::default()
        };
        for connection in [alone, malformed.clone(), missing] {
            let failure = connection.tls().unwrap_err();
            assert_eq!(failure.code, crate::exit::USAGE, "{failure:?}");
        }
        let failure = malformed.token().unwrap_err();
        assert_eq!(failure.code, crate::exit::USAGE, "{failure:?}");
        assert!(!failure.message.contains("no token"), "{failure:?}");
    }

    #[test]
    fn a_token_is_read_without_the_line_end_behind_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let connection = Connection {
            token_file: Some(file.path().to_path_buf()),
            ..Connection::default()
        };
        assert!(connection.token().unwrap().is_some());
        assert!(connection.tls().unwrap().is_none());
    }
}
