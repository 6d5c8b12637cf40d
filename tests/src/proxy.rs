//! Proxies between clients and nodes, which hold back what passes, and cut connections.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

/// What a proxy lets through. What it does not is held back: it comes later, or is lost when the
/// connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Everything.
    All,
    /// What clients send, and no answer.
    Requests,
    /// Nothing; connections stay open.
    Nothing,
}

/// One proxy for each node, at the address that the cluster tells clients for it.
#[derive(Debug)]
pub struct Proxies {
    proxies: BTreeMap<u64, Proxy>,
    /// Ends the proxies when dropped.
    _tasks: JoinSet<Infallible>,
}

#[derive(Debug)]
struct Proxy {
    address: String,
    pass: watch::Sender<Pass>,
    /// Connections made before the latest cut are closed.
    cuts: watch::Sender<u64>,
    /// Bytes that clients have sent to the node.
    requested: Arc<AtomicU64>,
}

impl Proxies {
    /// Puts proxies before the nodes, before these are started. Each is at 127.0.0.2, on the port
    /// at which its node is at 127.0.0.1, so that whoever follows a hint to the leader comes to a
    /// proxy as well.
    ///
    /// # Errors
    /// An address is taken, or a seed cannot be written.
    pub async fn install(cluster: &mut Cluster) -> Result<Self> {
        let mut proxies = BTreeMap::new();
        let mut tasks = JoinSet::new();
        for id in cluster.ids() {
            let node = cluster.client(id)?.url().trim_start_matches("http://");
            let (node, port) = (node.to_owned(), node.rsplit(':').next().context("no port")?);
            let address = format!("127.0.0.2:{port}");
            cluster.set_environment(id, "EPOCHD_CLIENT_LISTEN", &node)?;
            for other in cluster.ids() {
                let seed = cluster.folder(other).join("seed.json");
                let text = fs::read_to_string(&seed)?;
                fs::write(&seed, text.replace(&node, &address))?;
            }
            let listener = TcpListener::bind(&address).await?;
            let proxy = Proxy {
                address,
                pass: watch::Sender::new(Pass::All),
                cuts: watch::Sender::new(0),
                requested: Arc::default(),
            };
            tasks.spawn(serve(listener, node, proxy.connections()));
            proxies.insert(id, proxy);
        }
        Ok(Self {
            proxies,
            _tasks: tasks,
        })
    }

    fn proxy(&self, id: u64) -> Result<&Proxy> {
        self.proxies
            .get(&id)
            .with_context(|| format!("no proxy of node {id}"))
    }

    /// All proxies as the command line takes them.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let proxies = self.proxies.values();
        let addresses: Vec<&str> = proxies.map(|proxy| proxy.address.as_str()).collect();
        addresses.join(",")
    }

    /// The address of the proxy before a node.
    ///
    /// # Errors
    /// There is none.
    pub fn address(&self, id: u64) -> Result<&str> {
        Ok(&self.proxy(id)?.address)
    }

    /// From now on every proxy lets this through.
    pub fn pass(&self, pass: Pass) {
        for proxy in self.proxies.values() {
            proxy.pass.send_replace(pass);
        }
    }

    /// Closes all connections that there are. What they were held up with is lost.
    pub fn cut(&self) {
        for proxy in self.proxies.values() {
            proxy.cuts.send_modify(|cuts| *cuts += 1);
        }
    }

    /// How many bytes clients have sent to each node.
    #[must_use]
    pub fn requested(&self) -> BTreeMap<u64, u64> {
        let proxies = self.proxies.iter();
        proxies
            .map(|(id, proxy)| (*id, proxy.requested.load(Ordering::Relaxed)))
            .collect()
    }
}

impl Proxy {
    fn connections(&self) -> Connections {
        Connections {
            pass: self.pass.subscribe(),
            cuts: self.cuts.subscribe(),
            requested: Arc::clone(&self.requested),
        }
    }
}

/// What the connections of one proxy share.
#[derive(Debug, Clone)]
struct Connections {
    pass: watch::Receiver<Pass>,
    cuts: watch::Receiver<u64>,
    requested: Arc<AtomicU64>,
}

async fn serve(listener: TcpListener, node: String, connections: Connections) -> Infallible {
    let mut open = JoinSet::new();
    loop {
        // One that failed before it was taken is nobody's.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        while open.try_join_next().is_some() {}
        let cuts = *connections.cuts.borrow();
        open.spawn(connections.clone().join(client, node.clone(), cuts));
    }
}

impl Connections {
    /// Passes on between a client and its node until one of them ends, or the proxy cuts.
    async fn join(self, client: TcpStream, node: String, cuts: u64) {
        // A node that is down is seen as a connection that ends.
        let Ok(node) = TcpStream::connect(&node).await else {
            return;
        };
        let (from_client, to_client) = client.into_split();
        let (from_node, to_node) = node.into_split();
        let mut cut = self.cuts.clone();
        let requests = self.requests(from_client, to_node);
        let answers = pump(from_node, to_client, self.pass.clone(), Pass::is_all, None);
        tokio::select! {
            // What is held back is lost by a cut, also when everything is let through right after.
            biased;
            _cut = cut.wait_for(|now| *now > cuts) => {}
            _ended = requests => {}
            _ended = answers => {}
        }
    }

    async fn requests(&self, from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
        let count = Some(&*self.requested);
        pump(from, to, self.pass.clone(), Pass::is_some, count).await
    }
}

impl Pass {
    fn is_all(self) -> bool {
        self == Self::All
    }

    fn is_some(self) -> bool {
        self != Self::Nothing
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut pass: watch::Receiver<Pass>,
    passes: fn(Pass) -> bool,
    count: Option<&AtomicU64>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        if pass.wait_for(|pass| passes(*pass)).await.is_err() {
            return Ok(());
        }
        to.write_all(bytes).await?;
        if let Some(count) = count {
            count.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        }
    }
}
