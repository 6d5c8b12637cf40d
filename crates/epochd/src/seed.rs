//! The seed of a node: which cluster it belongs to, who it is, and who the first voters are.
//!
//! Only a folder with a seed may start a node, so that a mistyped path is an error and not a new,
//! empty member.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epoch_core::{
    BundleError, ClusterId, Incarnation, NodeId, Principal, SignedBundle, error_chain,
};
use epoch_machine::{Command, Prefix, TokenHash, TokenLabel, Verb, Verbs};
use epoch_store::{RealFs, read_bounded, write_durably};
use serde::{Deserialize, Serialize};

use crate::first_trust::FirstTrust;

const SEED_FILE: &str = "seed.json";
const SEED_BYTES_MAX: usize = 64 << 10;
const FORMAT: u32 = 2;
/// What the first operator's token is called.
const FIRST_LABEL: &str = "init";

/// Where a node can be reached, each `host:port`. The same addresses are listened on unless the
/// settings say otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// gRPC, JSON, JWKS and health for clients.
    pub client: String,
    /// For the other nodes.
    pub peer: String,
    /// Metrics.
    pub admin: String,
}

impl Addresses {
    /// Whether each can be one.
    ///
    /// # Errors
    /// Which one cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        for address in [&self.client, &self.peer, &self.admin] {
            let port = address
                .rsplit_once(':')
                .filter(|(host, _)| !host.is_empty())
                .and_then(|(_, port)| port.parse::<NonZeroU16>().ok());
            if port.is_none() {
                return Err(format!("{address:?} is not of the form host:port"));
            }
        }
        Ok(())
    }
}

/// The contents of a seed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seed {
    format: u32,
    /// The cluster.
    pub(crate) cluster_id: ClusterId,
    /// This life of its state.
    pub(crate) incarnation: Incarnation,
    /// This node.
    pub(crate) node: NodeId,
    /// The first voters, this node among them.
    pub(crate) nodes: BTreeMap<NodeId, Addresses>,
    /// The first trust bundle, signed by the root key: its text.
    bundle: String,
    /// Who operates the cluster from the first moment, if anyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator: Option<FirstOperator>,
}

/// A cluster's first operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstOperator {
    /// Its name.
    pub(crate) principal: Principal,
    /// The SHA-256 of its token, in base64url.
    #[serde(with = "token_hash")]
    pub(crate) token: TokenHash,
}

/// Why a folder has no usable seed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeedError {
    /// There is none.
    #[error(
        "{} has no {SEED_FILE}: it is not a node's data folder; make one with `epochd init`",
        .0.display()
    )]
    Missing(PathBuf),
    /// There was one.
    #[error(
        "{} has been a node's folder, but its {SEED_FILE} is gone: put it back, or copy another \
         node's and change its \"node\"",
        .0.display()
    )]
    Lost(PathBuf),
    /// It cannot be read or written.
    #[error("{} cannot be read or written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It was made before clusters had trust bundles.
    #[error(
        "{} was made by a version without trust bundles, and its cluster cannot be taken over: make \
         a new one with `epochd init`, in another folder",
        .path.display()
    )]
    Before {
        /// The file.
        path: PathBuf,
    },
    /// It is not a seed.
    #[error(
        "{}: {why}; put the file back, or copy another node's and change its \"node\"",
        .path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The folder has a seed already.
    #[error("{} has a seed already; init never overwrites one", .0.display())]
    Exists(PathBuf),
}

/// All that every version's seed has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

mod token_hash {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use epoch_machine::TokenHash;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(hash: &TokenHash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&URL_SAFE_NO_PAD.encode(hash.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TokenHash, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(TokenHash)
            .ok_or_else(|| D::Error::custom("the operator's token is not a SHA-256 in base64url"))
    }
}

impl Seed {
    /// A seed for `node`, one of `nodes`.
    #[must_use]
    pub(crate) fn new(
        node: NodeId,
        nodes: BTreeMap<NodeId, Addresses>,
        trust: &FirstTrust,
    ) -> Self {
        let terms = trust.bundle.bundle().terms();
        Self {
            format: FORMAT,
            cluster_id: terms.cluster,
            incarnation: terms.incarnation,
            node,
            nodes,
            bundle: trust.bundle.to_text(),
            operator: trust.operator.clone(),
        }
    }

    /// The first trust bundle. [`read`](Self::read) has checked it.
    pub(crate) fn bundle(&self) -> Result<SignedBundle, BundleError> {
        SignedBundle::parse(&self.bundle)
    }

    /// What a new cluster's log begins with.
    pub(crate) fn first_commands(&self) -> Vec<Command> {
        let Ok(bundle) = self.bundle() else {
            return Vec::new();
        };
        let mut commands = vec![Command::PutBundle {
            by: None,
            bundle: Arc::new(bundle),
        }];
        if let Some(operator) = &self.operator {
            let principal = || operator.principal.clone();
            let verbs = [Verb::Operate, Verb::Read, Verb::Revoke];
            // The token comes first: what closes the cluster must leave a way in.
            let label = TokenLabel::parse(FIRST_LABEL).ok();
            commands.extend(label.map(|label| Command::AddToken {
                by: None,
                principal: principal(),
                label,
                hash: operator.token,
                expires_ms: None,
            }));
            commands.extend(
                Verbs::new(verbs)
                    .ok()
                    .map(|verbs| Command::GrantPermission {
                        by: None,
                        principal: principal(),
                        prefix: Prefix::default(),
                        verbs,
                    }),
            );
        }
        commands
    }

    /// Whether `folder` has a seed.
    #[must_use]
    pub(crate) fn exists(folder: &Path) -> bool {
        folder.join(SEED_FILE).exists()
    }

    /// Reads and checks the seed of `folder`.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is not one.
    pub(crate) fn read(folder: &Path) -> Result<Self, SeedError> {
        let path = folder.join(SEED_FILE);
        let bytes = match read_bounded(&RealFs, &path, SEED_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = folder.to_path_buf();
                return Err(if crate::raft::has_been_served(&folder) {
                    SeedError::Lost(folder)
                } else {
                    SeedError::Missing(folder)
                });
            }
            Err(source) => return Err(SeedError::Io { path, source }),
        };
        let malformed = |why: String| SeedError::Malformed {
            path: path.clone(),
            why,
        };
        let format: Format =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        if format.format == 1 {
            return Err(SeedError::Before { path });
        }
        let seed: Self =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        if seed.format != FORMAT {
            return Err(malformed(format!("format {} is not {FORMAT}", seed.format)));
        }
        if seed.node == 0 || !seed.nodes.contains_key(&seed.node) {
            return Err(malformed(format!(
                "node {} is not among the nodes",
                seed.node
            )));
        }
        for addresses in seed.nodes.values() {
            addresses.check().map_err(malformed)?;
        }
        seed.check_bundle().map_err(malformed)?;
        Ok(seed)
    }

    fn check_bundle(&self) -> Result<(), String> {
        let signed = self.bundle().map_err(|error| error_chain(&error))?;
        let terms = signed.bundle().terms();
        if (terms.cluster, terms.incarnation) != (self.cluster_id, self.incarnation) {
            return Err("its trust bundle is of another cluster".to_owned());
        }
        signed
            .check_first(&terms.root)
            .map_err(|error| error_chain(&error))
    }

    /// Writes the seed into `folder`, which is made if need be.
    ///
    /// # Errors
    /// The folder has one already, or cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), SeedError> {
        let path = folder.join(SEED_FILE);
        if path.exists() {
            return Err(SeedError::Exists(folder.to_path_buf()));
        }
        let io = |source| SeedError::Io {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(io)?;
        let json = serde_json::to_vec_pretty(self).map_err(|error| SeedError::Malformed {
            path: path.clone(),
            why: error.to_string(),
        })?;
        write_durably(&RealFs, &path, &json).map_err(io)
    }

    /// This node's own addresses.
    #[must_use]
    pub(crate) fn addresses(&self) -> Addresses {
        self.nodes.get(&self.node).cloned().unwrap_or_default()
    }
}
