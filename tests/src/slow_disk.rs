//! Disks whose flushes can be made slow while their nodes run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::Cluster;

/// The shim between every node and its disk.
#[derive(Debug)]
pub struct SlowDisks {
    folder: PathBuf,
}

impl SlowDisks {
    /// Puts the shim between the nodes and their disks, from the nodes' next start on. Flushes
    /// are as fast as they are until one is [`slowed`](Self::slow).
    ///
    /// # Errors
    /// There is no C compiler, or the shim does not compile.
    pub fn install(cluster: &mut Cluster) -> Result<Self> {
        let folder = cluster.path().to_path_buf();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims/slow_sync.c");
        let library = folder.join("slow_sync.so");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .context("starting cc")?;
        ensure!(
            output.status.success(),
            "the shim does not compile: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let disks = Self { folder };
        for id in cluster.ids() {
            cluster.set_environment(id, "LD_PRELOAD", library.as_os_str())?;
            cluster.set_environment(id, "SLOW_SYNC_FILE", disks.control(id))?;
        }
        Ok(disks)
    }

    /// From now on every flush of this node takes `ms` longer.
    ///
    /// # Errors
    /// The control file cannot be written.
    pub fn slow(&self, id: u64, ms: u64) -> Result<()> {
        Ok(fs::write(self.control(id), ms.to_string())?)
    }

    /// From now on this node's flushes are as fast as its disk is.
    ///
    /// # Errors
    /// The control file cannot be removed.
    pub fn heal(&self, id: u64) -> Result<()> {
        Ok(fs::remove_file(self.control(id))?)
    }

    fn control(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node{id}.slow"))
    }
}
