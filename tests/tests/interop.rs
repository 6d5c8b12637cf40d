//! Certificates verify with stock libraries of other languages, straight from the cluster's keys,
//! and nothing that an outsider can make of them does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use epoch_tests::binaries::target_folder;
use epoch_tests::certificates::{self, Hostile, Issuer};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::command_line::{Ran, run, run_epochctl};
use epoch_tests::wait;
use serde_json::{Value, json};
use tokio::process::Command;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop");

/// A cluster, and a certificate of it.
struct Setting {
    cluster: Cluster,
    certificate: String,
    epoch: u64,
    issuer: String,
    jwks_url: String,
    jwks: Value,
}

impl Setting {
    async fn new() -> Result<Self> {
        let cluster = Cluster::start().await?;
        let client = cluster.client(cluster.leader().await?)?;
        let session = client.open("writer", "60s").await?;
        let grant = client.acquire("reports/interop", &session, 1).await?.ok()?;
        let status = client.cluster().await?;
        Ok(Self {
            certificate: text(&grant, "certificate")?.to_owned(),
            epoch: number(&grant, "epoch")?,
            issuer: format!("epochd:{}", text(&status, "cluster_id")?),
            jwks_url: client.jwks_url(),
            jwks: client.get("/.well-known/jwks.json", &[]).await?.ok()?,
            cluster,
        })
    }
}

/// A verifier of another language: a program and what comes before its arguments.
struct Foreign {
    program: PathBuf,
    script: PathBuf,
}

impl Foreign {
    fn pyjwt() -> Result<Self> {
        let program = installed(Path::new("venv/bin/python"))?;
        Ok(Self { program, script: Path::new(SCRIPTS).join("verify_pyjwt.py") })
    }

    fn jose() -> Result<Self> {
        // Node.js looks for packages next to the script, so that it has to run from there.
        let packages = installed(Path::new("node/node_modules/jose"))?;
        let folder = packages.ancestors().nth(2).context("no folder")?;
        let script = folder.join("verify_jose.mjs");
        fs::copy(Path::new(SCRIPTS).join("verify_jose.mjs"), &script)?;
        Ok(Self { program: "node".into(), script })
    }

    async fn verify(&self, setting: &Setting, token: &str) -> Result<Ran> {
        let mut command = Command::new(&self.program);
        command.arg(&self.script).args([&setting.jwks_url, &setting.issuer]).arg(token);
        run(command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1")).await
    }

    async fn checks(&self, setting: &Setting) -> Result<()> {
        let ran = self.verify(setting, &setting.certificate).await?;
        ensure!(ran.code == Some(0), "a genuine certificate was refused: {}", ran.stderr);
        let claims = ran.json()?;
        assert_eq!(claims["sub"], "writer");
        assert_eq!(claims["iss"], setting.issuer.as_str());
        assert_eq!(claims["fence"]["scope"], "reports/interop");
        assert_eq!(claims["fence"]["epoch"], setting.epoch);
        // A foreign library is started for each token: a few of each kind are enough here.
        for Hostile { name, token } in forged(setting)? {
            let kinds = ["changed byte", "another key", "alg none", "HS256", "no signature"];
            if kinds.iter().any(|kind| name.contains(kind)) {
                let ran = self.verify(setting, &token).await?;
                ensure!(ran.code == Some(1), "{name}: {ran:?}");
            }
        }
        Ok(())
    }
}

fn installed(path: &Path) -> Result<PathBuf> {
    let path = target_folder()?.join("interop").join(path);
    ensure!(
        path.exists(),
        "{} is not there: run scripts/prerequisites (it needs the network once)",
        path.display()
    );
    Ok(path)
}

fn forged(setting: &Setting) -> Result<Vec<Hostile>> {
    certificates::forged(&setting.certificate, &setting.jwks)
}

#[tokio::test(flavor = "multi_thread")]
async fn pyjwt_verifies_a_certificate_from_the_jwks_url() -> Result<()> {
    Foreign::pyjwt()?.checks(&Setting::new().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jose_verifies_a_certificate_from_the_jwks_url() -> Result<()> {
    Foreign::jose()?.checks(&Setting::new().await?).await
}
