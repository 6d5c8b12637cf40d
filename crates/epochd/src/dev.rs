//! `epochd dev`: three real nodes in one process, on loopback.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;

use crate::init::{InitOptions, Ports, on_one_host, write_seeds};
use crate::seed::Seed;
use crate::server::Server;
use crate::settings::{Settings, Tuning};

const NODES: u16 = 3;
const HOST: &str = "127.0.0.1";

/// The command line of `epochd dev`.
#[derive(Debug, Clone, Args)]
pub struct DevArgs {
    /// Keep the data here; made at the first start.
    #[arg(
        long,
        env = "EPOCHD_DATA_DIR",
        value_name = "DIR",
        default_value = "epochd-data"
    )]
    pub data_dir: PathBuf,
    /// Keep the data in a temporary folder that is removed at the end.
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub ports: Ports,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "a doc comment here would become the command's help"
    )]
    pub tuning: Tuning,
}

/// Three nodes.
#[derive(Debug)]
pub struct Dev {
    servers: Vec<Server>,
    /// Removed when dropped, after the nodes.
    _temporary: Option<tempfile::TempDir>,
}

impl Dev {
    /// Makes the data folder if need be, and starts its nodes.
    ///
    /// # Errors
    /// A node does not start.
    pub async fn start(args: &DevArgs) -> anyhow::Result<Self> {
        let temporary = args.ephemeral.then(tempfile::tempdir).transpose()?;
        let folder = temporary
            .as_ref()
            .map_or(args.data_dir.as_path(), |folder| folder.path());
        let mut servers = Vec::new();
        for data_dir in node_folders(folder, args.ports)? {
            let settings = Settings {
                data_dir,
                client_listen: None,
                peer_listen: None,
                admin_listen: None,
                timing: args.tuning.timing()?,
                storage: args.tuning.storage()?,
                tls: None,
                allow_plaintext: false,
            };
            servers.push(Server::start(&settings, None).await?);
        }
        Ok(Self {
            servers,
            _temporary: temporary,
        })
    }

    /// Where clients are served.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let addresses = self
            .servers
            .iter()
            .map(|server| server.client_address().to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Ends all nodes.
    pub async fn stop(self) {
        for server in self.servers {
            server.stop().await;
        }
    }
}

fn node_folders(folder: &Path, ports: Ports) -> anyhow::Result<Vec<PathBuf>> {
    let folders: Vec<_> = (1..=NODES)
        .map(|id| folder.join(format!("node{id}")))
        .collect();
    if !folders.iter().all(|folder| Seed::exists(folder)) {
        // Some but not all: refused by name, since a new seed would be another cluster's.
        return write_seeds(
            folder,
            &on_one_host(HOST, NODES, ports)?,
            &InitOptions::default(),
        );
    }
    if let Some(first) = folders.first() {
        let made = Seed::read(first)?.addresses();
        ensure!(
            ports.fit(&made),
            "{} was made for {}, {} and {}: leave the port flags away, or choose another --data-dir",
            folder.display(),
            made.client,
            made.peer,
            made.admin
        );
    }
    Ok(folders)
}
