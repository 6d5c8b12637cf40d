//! A cluster of real processes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use epoch_client::{Endpoint, Options};
use epoch_core::{Pin, RootKey};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::binaries::binary;
use crate::json_client::JsonClient;
use crate::node_log::{self, LogLine};
use crate::ports::Ports;
use crate::wait;

/// How many nodes a cluster here has, unless a test says otherwise.
pub const NODES: u64 = 3;

/// Three `epochd serve` processes on loopback, their data in a temporary folder. They end with
/// this value. The folder is kept, and named, unless the last word was that they are
/// [`unharmed`](Self::unharmed).
#[derive(Debug)]
pub struct Cluster {
    folder: Option<TempDir>,
    path: PathBuf,
    ports: Ports,
    arguments: Vec<String>,
    nodes: Vec<Node>,
    passed: bool,
}

#[derive(Debug)]
struct Node {
    id: u64,
    environment: Vec<(String, OsString)>,
    process: Option<Child>,
    client: JsonClient,
    admin: JsonClient,
}

impl Cluster {
    /// Seeds three nodes with `epochd init`; none is started.
    ///
    /// # Errors
    /// `epochd init` fails, or no ports are free.
    pub fn init() -> Result<Self> {
        Self::init_with(&[])
    }

    /// As [`init`](Self::init); each node will be served with `arguments` behind its folder.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_with(arguments: &[&str]) -> Result<Self> {
        Self::init_nodes(NODES, arguments)
    }

    /// As [`init_with`](Self::init_with), of `count` nodes, five at most.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_nodes(count: u64, arguments: &[&str]) -> Result<Self> {
        Self::init_by(count, arguments, &[], false)
    }

    /// As [`init`](Self::init), with other arguments of `epochd init`.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_as(of_init: &[&str]) -> Result<Self> {
        Self::init_by(NODES, &[], of_init, false)
    }

    /// As [`init`](Self::init), with certificates for clients: [`client_ca`](Self::client_ca).
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_with_certificates() -> Result<Self> {
        Self::init_by(NODES, &[], &["--dev-certs"], true)
    }

    fn init_by(
        count: u64,
        arguments: &[&str],
        of_init: &[&str],
        certificates: bool,
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("epochd-test-")?;
        let path = folder.path().to_path_buf();
        let ports = Ports::claim()?;
        let output = Command::new(binary("epochd")?)
            .arg("init")
            .args(["--nodes", &count.to_string(), "--out"])
            .arg(&path)
            .args(["--client-port", &ports.client().to_string()])
            .args(["--peer-port", &ports.peer().to_string()])
            .args(["--admin-port", &ports.admin().to_string()])
            .args(of_init)
            .stdin(Stdio::null())
            .output()
            .context("starting epochd init")?;
        ensure!(
            output.status.success(),
            "epochd init failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let ca = certificates.then(|| fs::read(path.join("client-ca.pem")));
        let ca = ca.transpose()?;
        let client = |port: u16| {
            let address = format!("127.0.0.1:{port}");
            match &ca {
                None => JsonClient::new(&address),
                Some(ca) => JsonClient::over_tls(&address, ca, None),
            }
        };
        let mut nodes = Vec::new();
        for (id, step) in (1..=count).zip(0..) {
            nodes.push(Node {
                id,
                environment: Vec::new(),
                process: None,
                client: client(ports.client() + step)?,
                admin: client(ports.admin() + step)?,
            });
        }
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Ok(Self {
            folder: Some(folder),
            path,
            ports,
            arguments,
            nodes,
            passed: false,
        })
    }

    /// Seeds and starts three nodes, and waits until all are ready.
    ///
    /// # Errors
    /// A node does not come up.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// As [`start`](Self::start), each node served with `arguments` behind its folder.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(arguments: &[&str]) -> Result<Self> {
        let mut cluster = Self::init_with(arguments)?;
        for id in cluster.ids() {
            cluster.start_node(id)?;
        }
        cluster.all_ready().await?;
        Ok(cluster)
    }

    /// The nodes' ids.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The ids of all nodes but one.
    #[must_use]
    pub fn all_but(&self, id: u64) -> Vec<u64> {
        let mut others = self.ids();
        others.retain(|other| *other != id);
        others
    }

    /// Where everything is: `node<id>` is a node's data, `node<id>.log` its log.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What resources pin.
    ///
    /// # Errors
    /// There is no root key (any more).
    pub fn pin(&self) -> Result<Pin> {
        let file = self.path.join("root-key.json");
        Ok(RootKey::from_json(&fs::read(file)?)?.pin())
    }

    /// The CA of the nodes' certificates for clients, if they have any.
    #[must_use]
    pub fn client_ca(&self) -> PathBuf {
        self.path.join("client-ca.pem")
    }

    /// Asks a node to read its certificates again (SIGHUP).
    ///
    /// # Errors
    /// It does not run.
    pub fn hang_up(&self, id: u64) -> Result<()> {
        self.signal(id, Signal::HUP)
    }

    /// A node's data folder.
    #[must_use]
    pub fn folder(&self, id: u64) -> PathBuf {
        self.path.join(format!("node{id}"))
    }

    /// Resident memory of a running node, in bytes.
    ///
    /// # Errors
    /// It does not run, or the system does not say.
    pub fn resident_bytes(&self, id: u64) -> Result<u64> {
        let process = self.node(id)?.process.as_ref();
        let pid = process
            .with_context(|| format!("node {id} does not run"))?
            .id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        Ok(kib.context("no VmRSS")?.parse::<u64>()? * 1_024)
    }

    /// What `epochd inspect` says of the folder of a node that does not run.
    ///
    /// # Errors
    /// It found damage, or cannot be started.
    pub fn inspect(&self, id: u64, arguments: &[&str]) -> Result<Value> {
        let output = Command::new(binary("epochd")?)
            .args(["inspect", "--json", "--data-dir"])
            .arg(self.folder(id))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("starting epochd inspect")?;
        ensure!(
            output.status.success(),
            "epochd inspect says of node {id} ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Stops every running node and checks that all hold the same state: the hash of the state at
    /// the last index that all logs have; that index.
    ///
    /// # Errors
    /// A node does not stop, a folder is damaged, or the states differ.
    pub async fn stop_and_compare(&mut self) -> Result<u64> {
        self.agreed().await?;
        for id in self.running() {
            self.terminate(id).await?;
        }
        let mut last = u64::MAX;
        for id in self.ids() {
            last = last.min(number(&self.inspect(id, &[])?["state"], "index")?);
        }
        let mut hashes = Vec::new();
        for id in self.ids() {
            let report = self.inspect(id, &["--index", &last.to_string()])?;
            hashes.push(text(&report["state"], "hash")?.to_owned());
        }
        ensure!(
            hashes.iter().all(|hash| hashes.first() == Some(hash)),
            "the states at index {last} differ: {hashes:?}"
        );
        Ok(last)
    }

    /// Calls all nodes as the bearer of this token from now on.
    pub fn call_as(&mut self, token: &str) {
        for node in &mut self.nodes {
            node.client = node.client.with_token(Some(token));
        }
    }

    /// Gives a node one variable of the environment more, from its next start on.
    ///
    /// # Errors
    /// There is no such node.
    pub fn set_environment(
        &mut self,
        id: u64,
        name: &str,
        value: impl Into<OsString>,
    ) -> Result<()> {
        let variable = (name.to_owned(), value.into());
        self.node_mut(id)?.environment.push(variable);
        Ok(())
    }

    /// Starts a node that is not running.
    ///
    /// # Errors
    /// It runs already, or cannot be started.
    pub fn start_node(&mut self, id: u64) -> Result<()> {
        let log = self.log_path(id);
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(binary("epochd")?);
        command
            .args(["serve", "--data-dir"])
            .arg(self.folder(id))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let node = self.node_mut(id)?;
        ensure!(node.process.is_none(), "node {id} runs already");
        command.envs(node.environment.iter().map(|(name, value)| (name, value)));
        node.process = Some(command.spawn().context("starting epochd serve")?);
        Ok(())
    }

    /// Ends a node at once, as a power cut would end its process: `kill -9`.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self, id: u64) -> Result<()> {
        let mut process = self.take_process(id)?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Asks a node to stop (SIGTERM), and waits until it has.
    ///
    /// # Errors
    /// It does not run, or does not stop.
    pub async fn terminate(&mut self, id: u64) -> Result<ExitStatus> {
        self.signal(id, Signal::TERM)?;
        self.exited(id).await
    }

    /// Waits until a node has ended by itself.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn exited(&mut self, id: u64) -> Result<ExitStatus> {
        let mut process = self.take_process(id)?;
        let ended = wait::until("a node has ended", async || {
            process.try_wait()?.context("it is still running")
        });
        let ended = ended.await;
        if ended.is_err() {
            self.node_mut(id)?.process = Some(process);
        }
        ended
    }

    /// Holds a node still (SIGSTOP).
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self, id: u64) -> Result<()> {
        self.signal(id, Signal::STOP)
    }

    /// Lets a held node go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self, id: u64) -> Result<()> {
        self.signal(id, Signal::CONT)
    }

    fn signal(&self, id: u64, signal: Signal) -> Result<()> {
        let process = self.node(id)?.process.as_ref();
        let process = process.with_context(|| format!("node {id} does not run"))?;
        kill_process(Pid::from_child(process), signal)?;
        Ok(())
    }

    fn take_process(&mut self, id: u64) -> Result<Child> {
        self.node_mut(id)?
            .process
            .take()
            .with_context(|| format!("node {id} does not run"))
    }

    /// Whether a node's process runs (paused or not).
    ///
    /// # Errors
    /// There is no such node, or the system does not say.
    pub fn is_running(&mut self, id: u64) -> Result<bool> {
        match &mut self.node_mut(id)?.process {
            Some(process) => Ok(process.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Waits until a node says that it is ready.
    ///
    /// # Errors
    /// It ended, or was not ready in time; with the end of its log.
    pub async fn ready(&mut self, id: u64) -> Result<()> {
        let client = self.client(id)?.impatient();
        let what = format!("node {id} is ready");
        let ready = wait::until(&what, async || {
            if !self.is_running(id)? {
                return Ok(Err(anyhow!("node {id} has ended")));
            }
            client
                .get("/readyz", &[])
                .await?
                .ok_text()
                .map(|_ok| Ok(()))
        });
        match ready.await.and_then(|ready| ready) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.log_tail(id))),
        }
    }

    /// Waits until every running node is ready.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub async fn all_ready(&mut self) -> Result<()> {
        for id in self.running() {
            self.ready(id).await?;
        }
        Ok(())
    }

    /// The nodes that have a process.
    #[must_use]
    pub fn running(&self) -> Vec<u64> {
        self.nodes
            .iter()
            .filter(|node| node.process.is_some())
            .map(|node| node.id)
            .collect()
    }

    /// Waits until a running node says itself that it leads and is ready; its id.
    ///
    /// # Errors
    /// None did in time.
    pub async fn leader(&self) -> Result<u64> {
        self.leader_among(&self.running()).await
    }

    /// As [`leader`](Self::leader), while not every node can answer.
    ///
    /// # Errors
    /// None of these did in time.
    pub async fn leader_among(&self, ids: &[u64]) -> Result<u64> {
        wait::until("a node leads", async || {
            for &id in ids {
                let client = self.client(id)?.impatient();
                let Ok(cluster) = client.cluster().await else {
                    continue;
                };
                if cluster["leader"] == id && client.get("/readyz", &[]).await?.status == 200 {
                    return Ok(id);
                }
            }
            bail!("none of {ids:?} says that it leads")
        })
        .await
    }

    /// Kills the leader, waits until another node leads, and starts the killed one again; the new
    /// leader.
    ///
    /// # Errors
    /// No other node leads in time, or the killed one does not come back.
    pub async fn replace_leader(&mut self) -> Result<u64> {
        let old = self.leader().await?;
        self.kill(old)?;
        let new = self.leader().await?;
        self.start_node(old)?;
        self.all_ready().await?;
        Ok(new)
    }

    /// Waits until the running nodes have applied the same entries; the index.
    ///
    /// # Errors
    /// They did not in time.
    pub async fn agreed(&self) -> Result<u64> {
        wait::until("all nodes have applied the same", async || {
            let mut views = Vec::new();
            for id in self.running() {
                let cluster = self.client(id)?.cluster().await?;
                views.push((
                    cluster["applied"].as_u64().context("no applied index")?,
                    cluster["term"].as_u64().context("no term")?,
                    cluster["leader"].as_u64().context("no leader")?,
                ));
            }
            let first = *views.first().context("no node runs")?;
            ensure!(
                views.iter().all(|view| *view == first),
                "they differ: {views:?}"
            );
            Ok(first.0)
        })
        .await
    }

    /// A node's client listener.
    ///
    /// # Errors
    /// There is no such node.
    pub fn client(&self, id: u64) -> Result<&JsonClient> {
        Ok(&self.node(id)?.client)
    }

    /// Every node's client listener, in the order of ids.
    #[must_use]
    pub fn clients(&self) -> Vec<JsonClient> {
        self.nodes.iter().map(|node| node.client.clone()).collect()
    }

    /// A node's admin listener.
    ///
    /// # Errors
    /// There is no such node.
    pub fn admin(&self, id: u64) -> Result<&JsonClient> {
        Ok(&self.node(id)?.admin)
    }

    /// All client listeners as the command line takes them.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let urls: Vec<&str> = self.nodes.iter().map(|node| node.client.url()).collect();
        urls.join(",")
    }

    /// A client of the library, for all nodes.
    ///
    /// # Errors
    /// An address is not an endpoint.
    pub fn library_client(&self) -> Result<epoch_client::Client> {
        let endpoints = self.nodes.iter().map(|node| node.client.url().parse());
        let endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
        Ok(epoch_client::Client::connect(
            endpoints,
            Options::default(),
        )?)
    }

    /// A node's peer address.
    #[must_use]
    pub fn peer_port(&self) -> u16 {
        self.ports.peer()
    }

    /// A node's log so far, over all its lives.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log(&self, id: u64) -> Result<Vec<LogLine>> {
        node_log::read(&self.log_path(id))
    }

    /// A node's log as text, over all its lives, with what it said before its log was set up.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn raw_log(&self, id: u64) -> Result<String> {
        Ok(fs::read_to_string(self.log_path(id))?)
    }

    /// Checks that no running node has ended and none has panicked: the end of every test.
    ///
    /// # Errors
    /// One has; with the end of its log.
    pub fn unharmed(&mut self) -> Result<()> {
        self.passed = false;
        for id in self.running() {
            ensure!(
                self.is_running(id)?,
                "node {id} has ended: {}",
                self.log_tail(id)
            );
            let panicked = self
                .log(id)?
                .iter()
                .any(|line| line.message().contains("panicked"));
            ensure!(!panicked, "node {id} has panicked: {}", self.log_tail(id));
        }
        self.passed = true;
        Ok(())
    }

    fn log_path(&self, id: u64) -> PathBuf {
        self.path.join(format!("node{id}.log"))
    }

    fn log_tail(&self, id: u64) -> String {
        let text = fs::read_to_string(self.log_path(id)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(30)..)
            .unwrap_or_default();
        format!("the log of node {id} ends:\n{}", tail.join("\n"))
    }

    fn node(&self, id: u64) -> Result<&Node> {
        self.nodes
            .iter()
            .find(|node| node.id == id)
            .with_context(|| format!("no node {id}"))
    }

    fn node_mut(&mut self, id: u64) -> Result<&mut Node> {
        self.nodes
            .iter_mut()
            .find(|node| node.id == id)
            .with_context(|| format!("no node {id}"))
    }
}

impl Drop for Cluster {
    #[expect(clippy::print_stderr, reason = "where to look has to be seen")]
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut process) = node.process.take() {
                // Already dead is as good.
                let _killed = process.kill();
                let _reaped = process.wait();
            }
        }
        if let Some(folder) = self.folder.take_if(|_folder| !self.passed) {
            eprintln!("data and logs are kept in {}", folder.keep().display());
        }
    }
}

/// The text of one field.
///
/// # Errors
/// It is missing or no text.
pub fn text<'a>(document: &'a Value, field: &str) -> Result<&'a str> {
    document[field]
        .as_str()
        .with_context(|| format!("no text {field:?} in {document}"))
}

/// The number in one field.
///
/// # Errors
/// It is missing or no whole number.
pub fn number(document: &Value, field: &str) -> Result<u64> {
    document[field]
        .as_u64()
        .with_context(|| format!("no number {field:?} in {document}"))
}
