//! The name in a node's certificate.

use std::fmt;
use std::str::FromStr;

use epoch_core::{ClusterId, NodeId};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// What a node's certificate says of it, as one URI: `epochd://<cluster id>/node/<node id>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerName {
    /// The cluster.
    pub(crate) cluster_id: ClusterId,
    /// The node.
    pub(crate) node: NodeId,
}

/// Why a certificate does not name a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error("it is not a certificate: {0}")]
    Certificate(webpki::Error),
    #[error("it names no node (a URI of the form epochd://<cluster id>/node/<node id>)")]
    None,
    #[error("it names several nodes")]
    Several,
    #[error("it is of node {0} of another cluster")]
    Cluster(NodeId),
    #[error("it is of node {found}, and not of node {wanted}")]
    Node { found: NodeId, wanted: NodeId },
    #[error("it is a node's, and nodes are no clients")]
    Peer,
}

const SCHEME: &str = "epochd://";
const NODE: &str = "/node/";

impl PeerName {
    /// The node that a certificate names. Nothing else of it is checked.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, NameError> {
        let mut names = uris(certificate)?
            .into_iter()
            .filter_map(|uri| uri.parse().ok());
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(NameError::None),
            (Some(_), Some(_)) => Err(NameError::Several),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{NODE}{}", self.cluster_id, self.node)
    }
}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(uri: &str) -> Result<Self, NameError> {
        let rest = uri.strip_prefix(SCHEME).ok_or(NameError::None)?;
        let (cluster_id, node) = rest.split_once(NODE).ok_or(NameError::None)?;
        let name = Self {
            cluster_id: cluster_id.parse().map_err(|_not_an_id| NameError::None)?,
            node: node.parse().map_err(|_not_an_id| NameError::None)?,
        };
        // One way to write each: what is compared as text elsewhere is the same here.
        if name.to_string() == uri {
            Ok(name)
        } else {
            Err(NameError::None)
        }
    }
}

/// Whether a URI is in the form that is the nodes', of whatever cluster, and also if malformed.
pub(super) fn is_of_a_peer(uri: &str) -> bool {
    let head = uri.get(..SCHEME.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(SCHEME)) && uri.contains(NODE)
}

/// The URIs among a certificate's subject alternative names.
pub(super) fn uris(certificate: &CertificateDer<'_>) -> Result<Vec<String>, NameError> {
    let certificate = EndEntityCert::try_from(certificate).map_err(NameError::Certificate)?;
    Ok(certificate.valid_uri_names().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "01890a5d-ac96-474b-bcce-b302099a8057";

    #[test]
    fn a_name_is_a_uri_and_is_read_back() {
        let uri = format!("epochd://{CLUSTER}/node/2");
        let name: PeerName = uri.parse().unwrap();
        assert_eq!((name.node, name.to_string()), (2, uri));
    }

    #[test]
    fn what_is_written_otherwise_is_no_name() {
        for uri in [
            String::new(),
            "epochd-user:operator".to_owned(),
            format!("epochd://{CLUSTER}/node/"),
            format!("epochd://{CLUSTER}/node/02"),
            format!("epochd://{CLUSTER}/node/+2"),
            format!("epochd://{CLUSTER}/node/2/"),
            format!("epochd://{}/node/2", CLUSTER.to_uppercase()),
            format!("EPOCHD://{CLUSTER}/node/2"),
            format!("https://{CLUSTER}/node/2"),
        ] {
            assert!(uri.parse::<PeerName>().is_err(), "{uri}");
        }
    }

    #[test]
    fn the_form_of_a_peer_is_known_also_where_it_is_malformed() {
        for uri in ["epochd://x/node/1", "EPOCHD://x/node/", "epochd:///node/x"] {
            assert!(is_of_a_peer(uri), "{uri}");
        }
        for uri in [
            "epochd-user:operator",
            "epochd://x",
            "",
            "spiffe://x/node/1",
            "é",
        ] {
            assert!(!is_of_a_peer(uri), "{uri}");
        }
    }
}
