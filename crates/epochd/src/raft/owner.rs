//! Whose log a data folder holds, kept beside it: a seed that was edited or mixed up, and a log
//! that is gone, are found before anything is answered.
//!
//! A node that starts empty under an id that has voted and acknowledged could vote and acknowledge
//! the opposite. Wiped or rolled back as a whole, a folder cannot know it; this finds the rest.

use std::io;
use std::path::{Path, PathBuf};

use epoch_core::{ClusterId, Incarnation, NodeId};
use epoch_store::{RealFs, read_sealed, write_sealed};
use serde::{Deserialize, Serialize};

use super::memory::PEERS_FILE;
use crate::seed::Seed;

const OWNER_FILE: &str = "owner.json";
const OWNER_BYTES_MAX: usize = 4 << 10;

/// Why a data folder is not the seed's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    #[error(
        "{} was written by node {found} of another cluster or incarnation than its seed says, or \
         by another node: put the right seed.json back",
        .folder.display()
    )]
    Foreign { folder: PathBuf, found: NodeId },
    #[error(
        "{} has been a node's folder, but its log is gone: an emptied member must not vote again; \
         put the log back, or leave the node off",
        .0.display()
    )]
    LogLost(PathBuf),
    #[error(
        "{} has a log, but no {OWNER_FILE} that says whose: put the file back",
        .0.display()
    )]
    Missing(PathBuf),
    #[error("{} cannot be read or written", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is damaged: put the file back", .path.display())]
    Damaged { path: PathBuf },
    #[error("{} is malformed: put the file back", .path.display())]
    Malformed {
        path: PathBuf,
        source: serde_json::Error,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    cluster_id: ClusterId,
    incarnation: Incarnation,
    node: NodeId,
}

/// Whether a node has ever been started in a folder.
pub(crate) fn has_been_served(folder: &Path) -> bool {
    folder.join(OWNER_FILE).exists() || folder.join("log").exists() || has_remains(folder)
}

/// Whether there is something that only a node that has served leaves. A signing key is not: it is
/// made before the log is.
fn has_remains(folder: &Path) -> bool {
    let is_filled =
        |name| std::fs::read_dir(folder.join(name)).is_ok_and(|mut all| all.next().is_some());
    folder.join(PEERS_FILE).exists() || is_filled("snapshots") || is_filled("checkpoint")
}

/// The two halves of the check: before the log is opened, which makes its folder, and after.
#[derive(Debug)]
pub(super) struct OwnerCheck {
    folder: PathBuf,
    seed: Owner,
    known: bool,
}

impl OwnerCheck {
    /// Compares the folder's owner, if it has one, with the seed.
    pub(super) fn begin(folder: &Path, seed: &Seed) -> Result<Self, OwnerError> {
        let seed = Owner {
            cluster_id: seed.cluster_id,
            incarnation: seed.incarnation,
            node: seed.node,
        };
        let path = folder.join(OWNER_FILE);
        let known = match read_sealed(&RealFs, &path, OWNER_BYTES_MAX) {
            Ok(text) => Some(
                serde_json::from_str::<Owner>(&text)
                    .map_err(|source| OwnerError::Malformed { path, source })?,
            ),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(OwnerError::Damaged { path });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(OwnerError::Io { path, source }),
        };
        if let Some(owner) = &known
            && *owner != seed
        {
            return Err(OwnerError::Foreign {
                folder: folder.to_path_buf(),
                found: owner.node,
            });
        }
        // The owner is written once the log has its first segment.
        let has_served = known.is_some() || has_remains(folder);
        if has_served && !epoch_store::has_log(&folder.join("log")) {
            return Err(OwnerError::LogLost(folder.to_path_buf()));
        }
        Ok(Self {
            folder: folder.to_path_buf(),
            seed,
            known: known.is_some(),
        })
    }

    /// Whether the folder has a log that nobody owns.
    pub(super) fn lacks_owner(&self, log_is_new: bool) -> Option<OwnerError> {
        let lacks = !self.known && !log_is_new;
        lacks.then(|| OwnerError::Missing(self.folder.clone()))
    }

    /// Judges the log once it is open, and takes possession of a new folder.
    pub(super) fn finish(self, log_is_new: bool, has_snapshot: bool) -> Result<(), OwnerError> {
        // The owner is written after the log's folder is made: a first start that was cut off in
        // between is begun again.
        match (log_is_new, self.known) {
            (true, _) if has_snapshot => Err(OwnerError::LogLost(self.folder)),
            (_, true) => Ok(()),
            (false, false) => Err(OwnerError::Missing(self.folder)),
            (true, false) => {
                let path = self.folder.join(OWNER_FILE);
                let json = serde_json::to_string_pretty(&self.seed).map_err(|source| {
                    OwnerError::Malformed {
                        path: path.clone(),
                        source,
                    }
                })?;
                write_sealed(&RealFs, &path, &json)
                    .map_err(|source| OwnerError::Io { path, source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::first_trust::FirstTrust;
    use crate::seed::Addresses;

    fn seed(node: NodeId, cluster: u128) -> Seed {
        let nodes = BTreeMap::from([(1, Addresses::default()), (2, Addresses::default())]);
        let cluster_id = ClusterId(Uuid::from_u128(cluster));
        let incarnation = Incarnation(Uuid::from_u128(7));
        let trust = FirstTrust::of_test(cluster_id, incarnation, [1, 2, 3]);
        Seed::new(node, nodes, &trust)
    }

    /// A start with a log that has a vote or entries, or none yet.
    fn start(folder: &Path, seed: &Seed, log_is_new: bool) -> Result<(), OwnerError> {
        let check = OwnerCheck::begin(folder, seed)?;
        std::fs::create_dir_all(folder.join("log")).unwrap();
        std::fs::write(folder.join("log/log-00000000000000000001"), "").unwrap();
        check.finish(log_is_new, false)
    }

    #[test]
    fn a_folder_is_its_first_owners_for_good() {
        let folder = tempfile::tempdir().unwrap();
        start(folder.path(), &seed(1, 5), true).unwrap();
        start(folder.path(), &seed(1, 5), false).unwrap();
        for other in [seed(2, 5), seed(1, 6)] {
            let refused = start(folder.path(), &other, false);
            assert!(matches!(refused, Err(OwnerError::Foreign { found: 1, .. })));
        }
    }

    #[test]
    fn a_log_that_is_gone_is_not_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        start(folder.path(), &seed(1, 5), true).unwrap();
        // Emptied, with a new segment that a crash cut off, or gone as a whole.
        let log = folder.path().join("log");
        std::fs::remove_file(log.join("log-00000000000000000001")).unwrap();
        let refused = || OwnerCheck::begin(folder.path(), &seed(1, 5)).unwrap_err();
        assert!(matches!(refused(), OwnerError::LogLost(_)));
        std::fs::write(log.join("log-00000000000000000001.tmp"), "").unwrap();
        assert!(matches!(refused(), OwnerError::LogLost(_)));
        std::fs::remove_dir_all(&log).unwrap();
        assert!(matches!(refused(), OwnerError::LogLost(_)));
    }

    #[test]
    fn what_only_a_node_that_has_served_leaves_is_not_a_new_folder() {
        for left in ["peers.json", "snapshots/snapshot-1-1", "checkpoint/db"] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(left);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            assert!(!has_been_served(folder.path()), "{left}");
            std::fs::write(&file, "").unwrap();
            assert!(has_been_served(folder.path()), "{left}");
            let refused = OwnerCheck::begin(folder.path(), &seed(1, 5));
            assert!(matches!(refused, Err(OwnerError::LogLost(_))), "{left}");
        }
    }

    #[test]
    fn a_snapshot_without_a_log_is_not_a_new_folder() {
        let folder = tempfile::tempdir().unwrap();
        let check = OwnerCheck::begin(folder.path(), &seed(1, 5)).unwrap();
        assert!(matches!(
            check.finish(true, true),
            Err(OwnerError::LogLost(_))
        ));
    }

    #[test]
    fn a_log_without_an_owner_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let refused = start(folder.path(), &seed(1, 5), false);
        assert!(matches!(refused, Err(OwnerError::Missing(_))));
    }

    #[test]
    fn a_first_start_that_was_cut_off_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("log")).unwrap();
        start(folder.path(), &seed(1, 5), true).unwrap();
    }
}
