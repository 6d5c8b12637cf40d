//! TLS: who is let in where, and by which certificates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::command_line::run_epochctl;
use epoch_tests::json_client::JsonClient;
use epoch_tests::tls::{Shown, knock, knock_in_plaintext};
use epoch_tests::wait;

/// Three nodes that serve clients over TLS.
async fn start() -> Result<Cluster> {
    let mut cluster = Cluster::init_with_certificates()?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    Ok(cluster)
}

/// The files of one certificate.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of_node(cluster: &Cluster, id: u64) -> Self {
        let tls = cluster.folder(id).join("tls");
        Self {
            certificate: tls.join("peer.pem"),
            key: tls.join("peer-key.pem"),
        }
    }

    fn of_operator(cluster: &Cluster) -> Self {
        Self {
            certificate: cluster.path().join("operator.pem"),
            key: cluster.path().join("operator-key.pem"),
        }
    }

    fn shown(&self) -> Option<Shown<'_>> {
        Some(Shown {
            certificate: &self.certificate,
            key: &self.key,
        })
    }
}

fn port(client: &JsonClient) -> Result<u16> {
    let port = client.url().rsplit(':').next().context("no port")?;
    Ok(port.parse()?)
}

/// The log of a node says `what`, some time soon.
async fn says(cluster: &Cluster, id: u64, what: &str) -> Result<()> {
    wait::until(&format!("node {id} says {what:?}"), async || {
        ensure!(cluster.raw_log(id)?.contains(what), "it does not");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_and_json_work_over_tls_on_any_node() -> Result<()> {
    let mut cluster = start().await?;
    let leader = cluster.leader().await?;
    let follower = cluster.all_but(leader)[0];
    let ca = cluster.client_ca();
    let ca = ca.to_str().context("the path is no text")?;
    // Without a scheme, and through a node that passes it on: the leader is called over TLS too.
    let address = cluster
        .client(follower)?
        .url()
        .trim_start_matches("https://");
    let opened = ["--ca", ca, "-o", "json", "session", "open", "--holder", "a"];
    let opened = [&opened[..], &["--ttl", "1m"]].concat();
    let ran = run_epochctl(address, &opened).await?;
    ensure!(ran.code == Some(0), "{ran:?}");
    let session = ran.json()?["session_id"].clone();
    let session = session.as_str().context("no session id")?;
    for id in [leader, follower] {
        let request = if id == leader { 1 } else { 2 };
        let scope = format!("a/{id}");
        let grant = cluster
            .client(id)?
            .acquire(&scope, session, request)
            .await?;
        number(&grant.ok()?, "epoch")?;
    }

    // The chain of bundles comes over the same connection.
    let certified = cluster.client(leader)?.acquire("a/pinned", session, 3);
    let certified = certified.await?.ok()?;
    let certificate = text(&certified, "certificate")?;
    let pin = cluster.pin()?.to_string();
    let verify = ["--ca", ca, "verify", certificate, "--pin", &pin];
    let ran = run_epochctl(address, &verify).await?;
    ensure!(ran.code == Some(0), "{ran:?}");

    // With a certificate of its own.
    let operator = Files::of_operator(&cluster);
    let (cert, key) = (operator.certificate, operator.key);
    let shown = ["--cert", path(&cert)?, "--key", path(&key)?];
    let ran = run_epochctl(address, &[&["--ca", ca], &shown[..], &["status"]].concat()).await?;
    ensure!(ran.code == Some(0), "{ran:?}");
    let pem = [fs::read(&cert)?, fs::read(&key)?].concat();
    let client = JsonClient::over_tls(address, &fs::read(ca)?, Some(&pem))?;
    assert_eq!(number(&client.cluster().await?, "node")?, follower);

    // Metrics are served with the same certificate.
    let metrics = cluster
        .admin(leader)?
        .get("/metrics", &[])
        .await?
        .ok_text()?;
    ensure!(metrics.contains("epochd_is_leader"), "{metrics}");
    cluster.unharmed()
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the path is no text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_says_what_to_do_about_tls() -> Result<()> {
    let mut cluster = start().await?;
    let address = cluster
        .client(1)?
        .url()
        .trim_start_matches("https://")
        .to_owned();
    let status = ["--deadline", "2s", "status"];
    let unknown = run_epochctl(&format!("https://{address}"), &status).await?;
    assert_eq!(unknown.code, Some(6), "{unknown:?}");
    ensure!(unknown.stderr.contains("give the CA"), "{unknown:?}");

    let plain = run_epochctl(&format!("http://{address}"), &status).await?;
    assert_eq!(plain.code, Some(6), "{plain:?}");

    let ca = cluster.client_ca();
    let both = run_epochctl(
        &format!("http://{address}"),
        &["--ca", path(&ca)?, "status"],
    )
    .await?;
    assert_eq!(both.code, Some(2), "{both:?}");

    let token = cluster.path().join("token");
    fs::write(&token, "s3cret")?;
    let plain = run_epochctl("192.0.2.1:1", &["--token-file", path(&token)?, "status"]).await?;
    assert_eq!(plain.code, Some(2), "{plain:?}");
    ensure!(plain.stderr.contains("plaintext"), "{plain:?}");
    ensure!(!plain.stderr.contains("s3cret"), "{plain:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nodes_of_the_cluster_get_past_the_handshake_of_peers() -> Result<()> {
    let mut cluster = start().await?;
    // Made by the same CA, so that it is the name alone by which it is refused.
    let stranger = cluster.path().join("stranger");
    let [ca, key] = ["peer-ca.pem", "peer-ca-key.pem"].map(|file| cluster.path().join(file));
    let given = ["--peer-ca-cert", path(&ca)?, "--peer-ca-key", path(&key)?];
    let mut init = std::process::Command::new(epoch_tests::binaries::binary("epochd")?);
    init.args(["init", "--out", path(&stranger)?]).args(given);
    ensure!(init.output()?.status.success(), "epochd init failed");
    let tls = stranger.join("node2/tls");
    let stranger = Files {
        certificate: tls.join("peer.pem"),
        key: tls.join("peer-key.pem"),
    };

    let peers = cluster.peer_port();
    knock(peers, Files::of_node(&cluster, 2).shown()).await?;
    for shown in [stranger.shown(), Files::of_operator(&cluster).shown(), None] {
        ensure!(knock(peers, shown).await.is_err(), "{shown:?}");
    }
    ensure!(knock_in_plaintext(peers).await.is_err(), "plaintext");
    says(&cluster, 1, "of another cluster").await?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_certificate_is_no_clients() -> Result<()> {
    let mut cluster = Cluster::init_with_certificates()?;
    // Trusted as a client by its CA, so that it is the name alone by which it is refused.
    let trusted = cluster.folder(1).join("tls/client-ca.pem");
    let peers = fs::read_to_string(cluster.path().join("peer-ca.pem"))?;
    fs::write(&trusted, fs::read_to_string(&trusted)? + &peers)?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let clients = port(cluster.client(1)?)?;
    knock(clients, None).await?;
    knock(clients, Files::of_operator(&cluster).shown()).await?;
    let refused = knock(clients, Files::of_node(&cluster, 2).shown()).await;
    ensure!(refused.is_err(), "a node was let in");
    ensure!(knock_in_plaintext(clients).await.is_err(), "plaintext");
    says(&cluster, 1, "nodes are no clients").await?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_are_used_without_a_restart_and_broken_ones_are_not() -> Result<()> {
    let mut cluster = start().await?;
    let other = Cluster::init_with_certificates()?;
    let address = cluster
        .client(1)?
        .url()
        .trim_start_matches("https://")
        .to_owned();
    let (old, new) = (fs::read(cluster.client_ca())?, fs::read(other.client_ca())?);
    // Each of its own: connections that are open stay so.
    let served = async |ca: &[u8]| -> Result<()> {
        let client = JsonClient::over_tls(&address, ca, None)?.impatient();
        client.get("/livez", &[]).await?.ok_text().map(drop)
    };
    served(&old).await?;
    ensure!(served(&new).await.is_err(), "before it has them");
    let [to, from] = [&cluster, &other].map(|cluster| cluster.folder(1).join("tls"));
    for file in ["server-key.pem", "server.pem"] {
        fs::copy(from.join(file), to.join(file))?;
    }
    wait::until("the new certificate is used", async || served(&new).await).await?;
    ensure!(served(&old).await.is_err(), "the old one is no more");

    for (file, id) in [("server.pem", 1), ("peer.pem", 2)] {
        fs::write(cluster.folder(id).join("tls").join(file), "broken")?;
        cluster.hang_up(id)?;
        says(&cluster, id, "the old ones stay in use").await?;
    }
    served(&new).await?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_neither_without_its_certificate_nor_with_anothers() -> Result<()> {
    let mut cluster = Cluster::init()?;
    let [two, three] = [2, 3].map(|id| cluster.folder(id).join("tls"));
    for file in ["peer.pem", "peer-key.pem"] {
        fs::copy(three.join(file), two.join(file))?;
    }
    fs::remove_dir_all(&three)?;
    for (id, why) in [
        (2, "of node 3, and not of node 2"),
        (3, "peer.pem is missing"),
    ] {
        cluster.start_node(id)?;
        let ended = cluster.exited(id).await?;
        assert_eq!(ended.code(), Some(1));
        says(&cluster, id, why).await?;
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_is_served_to_other_hosts_only_if_that_is_asked_for() -> Result<()> {
    let mut cluster = Cluster::init_nodes(1, &[])?;
    let everywhere = format!("0.0.0.0:{}", port(cluster.client(1)?)?);
    cluster.set_environment(1, "EPOCHD_CLIENT_LISTEN", everywhere)?;
    cluster.start_node(1)?;
    let ended = cluster.exited(1).await?;
    assert_eq!(ended.code(), Some(2));
    says(&cluster, 1, "--allow-plaintext").await?;
    cluster.set_environment(1, "EPOCHD_ALLOW_PLAINTEXT", "true")?;
    cluster.start_node(1)?;
    cluster.ready(1).await?;
    says(&cluster, 1, "serving in plaintext").await?;
    cluster.unharmed()
}
