//! Why certificates cannot be used.

use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used, or not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// The node's folder has no certificate for its peers.
    #[error(
        "{} is missing: nodes speak to each other over TLS only. Put the file back, or make the \
         node a certificate with the cluster's peer CA (the README says how); a folder that \
         `epochd dev` of an earlier version made is best left for another --data-dir",
        .0.display()
    )]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error("{} cannot be read: check the path and whose it is", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no certificate in it, or not only well-formed ones.
    #[error("{} has no certificate in PEM (BEGIN CERTIFICATE), or a damaged one", .0.display())]
    NoCertificate(PathBuf),
    /// There is no private key in it.
    #[error("{} has no unencrypted private key in PEM (BEGIN PRIVATE KEY)", .0.display())]
    NoKey(PathBuf),
    /// A certificate in it cannot be a CA's.
    #[error("{} has a certificate that cannot be trusted as a CA's", .path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// Certificate and key cannot be used, or not together.
    #[error(
        "{} cannot be used with {}: are both of the same pair?",
        .path.display(),
        .key.display()
    )]
    Pair {
        /// The certificate's file.
        path: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// A peer's certificate that the other nodes would refuse.
    #[error(
        "the other nodes would refuse {}: {why}, by the CA in {}. Put the right files back, or make the node another certificate",
        .path.display(), .ca.display()
    )]
    Refused {
        /// The certificate's file.
        path: PathBuf,
        /// The CA's.
        ca: PathBuf,
        /// Why they would.
        why: String,
    },
    /// The CA's file cannot be used to verify clients.
    #[error("{} cannot be used to verify clients", .path.display())]
    Verifier {
        /// The CA's file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::server::VerifierBuilderError,
    },
    /// This build cannot do TLS 1.3.
    #[error("TLS 1.3 cannot be set up")]
    Protocol(#[source] rustls::Error),
    /// A certificate cannot be made.
    #[error("a certificate cannot be made")]
    Issue(#[from] rcgen::Error),
    /// The CA that was given cannot sign.
    #[error(
        "{} and its key cannot sign certificates: give a CA's certificate and the key that belongs \
         to it",
        .path.display()
    )]
    Authority {
        /// The CA's certificate.
        path: PathBuf,
        /// What is wrong.
        source: rcgen::Error,
    },
}
