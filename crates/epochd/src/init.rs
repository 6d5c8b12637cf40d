//! Making a cluster: a folder for each of its first nodes, with its seed, its
//! certificate and its signing key; and the root key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use epoch_core::{ClusterId, Incarnation, NodeId, Pin, RootKey};
use uuid::Uuid;

use crate::first_trust::{self, FirstTrust, OPERATOR_TOKEN_FILE, ROOT_KEY_FILE, TrustArgs};
use crate::seed::{Addresses, Seed};
use crate::tls::{self, CA_KEY_FILE, DevCertificates, PeerCertificates};

/// First voters at most.
const NODES_MAX: u16 = 9;

/// The first ports; node n listens on the port that is n - 1 higher. They are chosen when the
/// seeds are made.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Ports {
    /// Node 1's port for clients, chosen when the folders are made [default: 7600].
    #[arg(long, env = "EPOCHD_CLIENT_PORT", value_name = "PORT")]
    pub client_port: Option<u16>,
    /// Node 1's port for the other nodes [default: 7610].
    #[arg(long, env = "EPOCHD_PEER_PORT", value_name = "PORT")]
    pub peer_port: Option<u16>,
    /// Node 1's port for metrics [default: 7620].
    #[arg(long, env = "EPOCHD_ADMIN_PORT", value_name = "PORT")]
    pub admin_port: Option<u16>,
}

impl Ports {
    /// Whether `addresses` are those of node 1 with these ports, as far as they are given.
    #[must_use]
    pub fn fit(self, addresses: &Addresses) -> bool {
        let fits = |port: Option<u16>, address: &str| {
            port.is_none_or(|port| address.ends_with(&format!(":{port}")))
        };
        fits(self.client_port, &addresses.client)
            && fits(self.peer_port, &addresses.peer)
            && fits(self.admin_port, &addresses.admin)
    }
}

/// The command line of `epochd init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Write the seed folders here, as node1, node2 and so on.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How many nodes, all on one host: 1 to 9. An even number stands no more failures than the
    /// odd one below it.
    #[arg(long, default_value_t = 3, conflicts_with = "node")]
    pub nodes: u16,
    /// The host that all nodes are on.
    #[arg(long, default_value = "127.0.0.1", conflicts_with = "node")]
    pub host: String,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub ports: Ports,
    /// One node with its addresses: ID=CLIENT,PEER,ADMIN, each host:port. Once for each node.
    #[arg(long, value_name = "ID=CLIENT,PEER,ADMIN", value_parser = parse_node)]
    pub node: Vec<(NodeId, Addresses)>,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub with: InitOptions,
}

/// What a cluster begins with besides its nodes.
#[derive(Debug, Clone, Default, Args)]
pub struct InitOptions {
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub ca: PeerCa,
    /// Make certificates for clients as well, to try TLS out: a CA, one certificate for each
    /// node's client and metrics addresses, and one for an operator.
    #[arg(long)]
    pub dev_certs: bool,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub trust: TrustArgs,
}

fn parse_node(text: &str) -> Result<(NodeId, Addresses), String> {
    let wrong = || format!("{text:?} is not of the form ID=CLIENT,PEER,ADMIN");
    let (id, addresses) = text.split_once('=').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
    let addresses: Vec<_> = addresses.split(',').collect();
    let [client, peer, admin] = addresses[..] else {
        return Err(wrong());
    };
    let [client, peer, admin] = [client, peer, admin].map(str::to_owned);
    let addresses = Addresses {
        client,
        peer,
        admin,
    };
    addresses.check()?;
    Ok((id, addresses))
}

/// Addresses of `count` nodes on one host.
///
/// # Errors
/// No node, too many, or a port beyond 65535.
pub fn on_one_host(
    host: &str,
    count: u16,
    ports: Ports,
) -> anyhow::Result<BTreeMap<NodeId, Addresses>> {
    ensure!(
        (1..=NODES_MAX).contains(&count),
        "{count} nodes; from 1 to {NODES_MAX} can be made"
    );
    let address = |first: u16, n: u16| {
        let port = first.checked_add(n).context("the ports go beyond 65535")?;
        anyhow::Ok(format!("{host}:{port}"))
    };
    (0..count)
        .map(|n| {
            let addresses = Addresses {
                client: address(ports.client_port.unwrap_or(7600), n)?,
                peer: address(ports.peer_port.unwrap_or(7610), n)?,
                admin: address(ports.admin_port.unwrap_or(7620), n)?,
            };
            Ok((NodeId::from(n) + 1, addresses))
        })
        .collect()
}

/// A CA that there is, which signs the nodes' certificates.
#[derive(Debug, Clone, Default, Args)]
pub struct PeerCa {
    /// Sign the nodes' certificates with this CA, instead of a new one: its certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "peer_ca_key")]
    pub peer_ca_cert: Option<PathBuf>,
    /// That CA's private key (PEM).
    #[arg(long, value_name = "FILE", requires = "peer_ca_cert")]
    pub peer_ca_key: Option<PathBuf>,
}

/// Writes a folder for each node, with its seed and its certificate; its path.
///
/// # Errors
/// A folder has a seed or certificates already, or cannot be written; or the CA cannot be used.
pub fn write_seeds(
    out: &Path,
    nodes: &BTreeMap<NodeId, Addresses>,
    with: &InitOptions,
) -> anyhow::Result<Vec<PathBuf>> {
    let folder = |id: &NodeId| out.join(format!("node{id}"));
    // Before the first is written: half a cluster helps nobody.
    if let Some(taken) = nodes.keys().map(folder).find(|folder| Seed::exists(folder)) {
        bail!(crate::seed::SeedError::Exists(taken));
    }
    let used = |folder: &PathBuf| crate::raft::has_been_served(folder);
    if let Some(used) = nodes.keys().map(folder).find(used) {
        bail!(
            "{} has been a node's folder: put its seed.json back, or choose another folder",
            used.display()
        );
    }
    if let Some(taken) = nodes
        .keys()
        .map(|id| folder(id).join(tls::FOLDER))
        .find(|folder| folder.exists())
    {
        bail!(
            "{} has certificates already; init never overwrites them: choose another folder",
            taken.display()
        );
    }
    let cluster_id = ClusterId(Uuid::new_v4());
    let incarnation = Incarnation(Uuid::now_v7());
    first_trust::check_room(out)?;
    let peers = PeerCertificates::begin(out, cluster_id, &with.ca)?;
    let clients = with.dev_certs.then(|| DevCertificates::begin(out));
    let clients = clients.transpose()?;
    let folders = nodes.keys().map(|id| (*id, folder(id))).collect();
    let trust = FirstTrust::make(out, cluster_id, incarnation, &folders, &with.trust)?;
    nodes
        .iter()
        .map(|(id, addresses)| {
            let path = folder(id);
            peers.write(*id, &path)?;
            if let Some(clients) = &clients {
                clients.write(addresses, &path)?;
            }
            // Last: what has a seed is whole.
            Seed::new(*id, nodes.clone(), &trust).write(&path)?;
            Ok(path)
        })
        .collect()
}

/// Runs `epochd init`; the folders written, and where the key of a new peer CA is.
///
/// # Errors
/// The nodes do not make a cluster, or a folder cannot be written.
pub fn run(args: &InitArgs) -> anyhow::Result<Made> {
    let nodes = if args.node.is_empty() {
        on_one_host(&args.host, args.nodes, args.ports)?
    } else {
        let nodes: BTreeMap<_, _> = args.node.iter().cloned().collect();
        ensure!(nodes.len() == args.node.len(), "two nodes have one id");
        ensure!(
            nodes.len() <= usize::from(NODES_MAX),
            "at most {NODES_MAX} nodes can be made"
        );
        nodes
    };
    let mut addresses: Vec<_> = nodes
        .values()
        .flat_map(|node| [&node.client, &node.peer, &node.admin])
        .collect();
    addresses.sort();
    if let Some(pair) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!(
            "{} is given twice; every listener needs its own address",
            pair[0]
        );
    }
    let folders = write_seeds(&args.out, &nodes, &args.with)?;
    let out = |file| args.out.join(file);
    let root_key = out(ROOT_KEY_FILE);
    Ok(Made {
        folders,
        pin: RootKey::from_json(&std::fs::read(&root_key)?)?.pin(),
        root_key,
        ca_key: args
            .with
            .ca
            .peer_ca_cert
            .is_none()
            .then(|| out(CA_KEY_FILE)),
        operator_token: args
            .with
            .trust
            .operator
            .is_some()
            .then(|| out(OPERATOR_TOKEN_FILE)),
    })
}

/// What `epochd init` made.
#[derive(Debug)]
pub struct Made {
    /// The nodes' folders.
    pub folders: Vec<PathBuf>,
    /// The root key.
    pub root_key: PathBuf,
    /// What resources pin.
    pub pin: Pin,
    /// The key of the new CA.
    pub ca_key: Option<PathBuf>,
    /// The first operator's token.
    pub operator_token: Option<PathBuf>,
}

impl Made {
    /// What an operator has to put away, a line each.
    #[must_use]
    pub fn to_keep(&self) -> String {
        let mut lines = vec![
            format!(
                "{} is the root key: move it offline, into a safe. Who has it can make any \
                 certificate valid. No node needs it.",
                self.root_key.display()
            ),
            format!("Resources pin {}", self.pin),
        ];
        if let Some(key) = &self.ca_key {
            lines.push(format!(
                "{} signs the certificates that nodes accept each other by: keep it offline, and \
                 give no node a copy. It is needed to renew them.",
                key.display()
            ));
        }
        if let Some(token) = &self.operator_token {
            lines.push(format!(
                "{} is the first operator's token, for --token-file: without it \
                 nobody operates the cluster.",
                token.display()
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_an_id_and_three_addresses() {
        let (id, addresses) = parse_node("2=a:1,b:2,[::1]:3").unwrap();
        assert_eq!((id, addresses.admin.as_str()), (2, "[::1]:3"));
        for bad in [
            "",
            "2",
            "0=a:1,b:2,c:3",
            "x=a:1,b:2,c:3",
            "2=a:1,b:2",
            "2=a:1,b:2,c",
        ] {
            assert!(parse_node(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_of_one_cluster_differ_in_the_node_only_and_are_never_overwritten() {
        let out = tempfile::tempdir().unwrap();
        let ports = Ports {
            client_port: Some(1),
            peer_port: Some(11),
            admin_port: Some(21),
        };
        let nodes = on_one_host("127.0.0.1", 3, ports).unwrap();
        let folders = write_seeds(out.path(), &nodes, &InitOptions::default()).unwrap();
        let seeds: Vec<_> = folders
            .iter()
            .map(|folder| Seed::read(folder).unwrap())
            .collect();
        assert_eq!(
            seeds.iter().map(|seed| seed.node).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(
            seeds
                .iter()
                .all(|seed| seed.cluster_id == seeds[0].cluster_id)
        );
        assert!(seeds.iter().all(|seed| seed.nodes == nodes));
        assert!(write_seeds(out.path(), &nodes, &InitOptions::default()).is_err());
    }

    #[test]
    fn a_folder_without_a_seed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Seed::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("epochd init"), "{error}");
    }
}
