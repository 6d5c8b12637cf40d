//! Free loopback ports, claimed for as long as a cluster lives.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result, bail};

/// The lowest port tried: above the ports of well-known services, and above the defaults of
/// epochd, where a developer's own cluster may run.
const FIRST: u16 = 10_000;
/// Below the ports that the kernel gives to outgoing connections: while a node is down, one of
/// those could otherwise take its port.
const LAST: u16 = 31_900;
/// Ports in one block: three listeners for each of up to five nodes, rounded up.
const BLOCK: u16 = 20;
/// Blocks tried before giving up.
const ATTEMPTS: u16 = 200;

/// A block of ports that no other test uses. The claim ends when this is dropped.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    _claim: File,
}

impl Ports {
    /// Claims a block in which every port is free.
    ///
    /// # Errors
    /// None was free in 200 attempts, or the folder of claims cannot be written.
    pub fn claim() -> Result<Self> {
        let folder = env::temp_dir().join("epochd-test-ports");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let blocks = (LAST - FIRST) / BLOCK;
        let start = rand::random_range(0..blocks);
        for attempt in 0..ATTEMPTS {
            let first = FIRST + (start + attempt) % blocks * BLOCK;
            let path = folder.join(first.to_string());
            let claim = File::create(&path).with_context(|| format!("opening {path:?}"))?;
            if claim.try_lock().is_ok() && all_free(first) {
                return Ok(Self {
                    first,
                    _claim: claim,
                });
            }
        }
        bail!("no block of {BLOCK} free ports between {FIRST} and {LAST}")
    }

    /// The first node's client port; node n has this plus n - 1.
    #[must_use]
    pub fn client(&self) -> u16 {
        self.first
    }

    /// The first node's peer port.
    #[must_use]
    pub fn peer(&self) -> u16 {
        self.first + 5
    }

    /// The first node's admin port.
    #[must_use]
    pub fn admin(&self) -> u16 {
        self.first + 10
    }
}

fn all_free(first: u16) -> bool {
    let listeners: Vec<_> = (first..first + BLOCK)
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)))
        .collect();
    listeners.iter().all(Result::is_ok)
}
