//! The certificates of a new cluster, as files.

use std::path::Path;

use anyhow::{Context as _, ensure};
use epoch_core::{ClusterId, NodeId};

use super::issue::{Authority, Issued};
use super::name::PeerName;
use super::{FOLDER, client, files, peer};
use crate::init::PeerCa;
use crate::seed::Addresses;

/// The key of a new peer CA, in the folder that holds the nodes' folders.
pub(crate) const CA_KEY_FILE: &str = "peer-ca-key.pem";
const CLIENT_CA_KEY_FILE: &str = "client-ca-key.pem";
const OPERATOR_FILE: &str = "operator.pem";
const OPERATOR_KEY_FILE: &str = "operator-key.pem";
const OPERATOR: &str = "epochd-user:operator";

/// Makes the nodes' certificates for each other.
#[derive(Debug)]
pub(crate) struct PeerCertificates {
    cluster_id: ClusterId,
    ca: Authority,
}

impl PeerCertificates {
    /// Makes the CA in `out`, unless one is given.
    ///
    /// # Errors
    /// There is one in `out`, or it cannot be written; or the given one cannot be read, or its
    /// certificates would not verify.
    pub(crate) fn begin(out: &Path, cluster_id: ClusterId, given: &PeerCa) -> anyhow::Result<Self> {
        let ca = match (&given.peer_ca_cert, &given.peer_ca_key) {
            (Some(certificate), Some(key)) => {
                let ca = Authority::read(certificate, key)?;
                check(&ca, cluster_id).with_context(|| {
                    format!(
                        "{} and {} do not belong together, or are not a CA's",
                        certificate.display(),
                        key.display()
                    )
                })?;
                ca
            }
            (None, _) | (_, None) => {
                let key = out.join(CA_KEY_FILE);
                ensure!(
                    !key.exists(),
                    "{} is another cluster's: choose another folder, or give --peer-ca-cert and \
                     --peer-ca-key to sign with it",
                    key.display()
                );
                let ca = Authority::make(&format!("epochd peers of {cluster_id}"))?;
                files::write(&key, &ca.key())?;
                files::write(&out.join(peer::CA_FILE), &ca.certificate)?;
                ca
            }
        };
        Ok(Self { cluster_id, ca })
    }

    /// Writes those of one node into its data folder.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn write(&self, node: NodeId, data_dir: &Path) -> anyhow::Result<()> {
        let name = PeerName {
            cluster_id: self.cluster_id,
            node,
        };
        let issued = self.ca.peer(name)?;
        let folder = data_dir.join(FOLDER);
        files::write(&folder.join(peer::KEY_FILE), &issued.key)?;
        files::write(&folder.join(peer::CHAIN_FILE), &issued.certificate)?;
        files::write(&folder.join(peer::CA_FILE), &self.ca.certificate)?;
        Ok(())
    }
}

/// Whether nodes with certificates of this CA accept each other.
fn check(ca: &Authority, cluster_id: ClusterId) -> anyhow::Result<()> {
    let name = PeerName {
        cluster_id,
        node: 1,
    };
    let Issued { certificate, .. } = ca.peer(name)?;
    peer::check(name, &certificate, &ca.certificate)?;
    Ok(())
}

/// Makes certificates for clients, to try TLS out.
#[derive(Debug)]
pub(crate) struct DevCertificates {
    ca: Authority,
}

impl DevCertificates {
    /// Makes the CA and an operator's certificate in `out`.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn begin(out: &Path) -> anyhow::Result<Self> {
        let ca = Authority::make("epochd clients, for development")?;
        files::write(&out.join(CLIENT_CA_KEY_FILE), &ca.key())?;
        files::write(&out.join(client::CA_FILE), &ca.certificate)?;
        let operator = ca.client(OPERATOR)?;
        files::write(&out.join(OPERATOR_KEY_FILE), &operator.key)?;
        files::write(&out.join(OPERATOR_FILE), &operator.certificate)?;
        Ok(Self { ca })
    }

    /// Writes those of one node into its data folder.
    ///
    /// # Errors
    /// A host cannot stand in a certificate, or they cannot be written.
    pub(crate) fn write(&self, addresses: &Addresses, data_dir: &Path) -> anyhow::Result<()> {
        let host = |address: &str| match address.rsplit_once(':') {
            Some((host, _port)) => host.to_owned(),
            None => address.to_owned(),
        };
        let (own, admin) = (host(&addresses.client), host(&addresses.admin));
        let hosts = [&own, &admin, "localhost", "127.0.0.1", "::1"];
        let issued = self.ca.server(&hosts)?;
        let folder = data_dir.join(FOLDER);
        files::write(&folder.join(client::KEY_FILE), &issued.key)?;
        files::write(&folder.join(client::CHAIN_FILE), &issued.certificate)?;
        files::write(&folder.join(client::CA_FILE), &self.ca.certificate)?;
        Ok(())
    }
}
