//! Certificates verify with stock libraries of other languages, straight from the cluster's keys,
//! and nothing that an outsider can make of them does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use epoch_core::HolderKey;
use epoch_tests::binaries::target_folder;
use epoch_tests::certificates::{self, Hostile, Issuer};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::command_line::{Ran, run, run_epochctl};
use serde_json::{Value, json};
use tokio::process::Command;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop");

/// A cluster, and a certificate of it.
struct Setting {
    cluster: Cluster,
    session: String,
    certificate: String,
    /// The parts of a certificate of the same holder that two nodes have signed.
    quorum: Vec<String>,
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
        let quorum = json!({
            "scope": "reports/quorum", "session_id": session, "request_id": 2, "signatures": 2,
        });
        let quorum = client.post("/v1/acquire", &quorum).await?.ok()?;
        let parts = text(&quorum, "certificate")?.split(',');
        Ok(Self {
            quorum: parts.map(str::to_owned).collect(),
            certificate: text(&grant, "certificate")?.to_owned(),
            epoch: number(&grant, "epoch")?,
            issuer: format!("epochd:{}", text(&status, "cluster_id")?),
            jwks_url: client.jwks_url(),
            jwks: client.get("/.well-known/jwks.json", &[]).await?.ok()?,
            session,
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
        Ok(Self {
            program,
            script: Path::new(SCRIPTS).join("verify_pyjwt.py"),
        })
    }

    fn jwcrypto() -> Result<Self> {
        let program = installed(Path::new("venv/bin/python"))?;
        Ok(Self {
            program,
            script: Path::new(SCRIPTS).join("verify_jwcrypto.py"),
        })
    }

    fn jose() -> Result<Self> {
        // Node.js looks for packages next to the script, so that it has to run from there.
        let packages = installed(Path::new("node/node_modules/jose"))?;
        let folder = packages.ancestors().nth(2).context("no folder")?;
        let script = folder.join("verify_jose.mjs");
        fs::copy(Path::new(SCRIPTS).join("verify_jose.mjs"), &script)?;
        Ok(Self {
            program: "node".into(),
            script,
        })
    }

    async fn verify(&self, setting: &Setting, token: &str) -> Result<Ran> {
        let mut command = Command::new(&self.program);
        command
            .arg(&self.script)
            .args([&setting.jwks_url, &setting.issuer])
            .arg(token);
        run(command
            .env("NO_PROXY", "127.0.0.1")
            .env("no_proxy", "127.0.0.1"))
        .await
    }

    async fn checks(&self, setting: &Setting) -> Result<()> {
        let ran = self.verify(setting, &setting.certificate).await?;
        ensure!(
            ran.code == Some(0),
            "a genuine certificate was refused: {}",
            ran.stderr
        );
        let claims = ran.json()?;
        assert_eq!(claims["sub"], "writer");
        assert_eq!(claims["iss"], setting.issuer.as_str());
        assert_eq!(claims["fence"]["scope"], "reports/interop");
        assert_eq!(claims["fence"]["epoch"], setting.epoch);
        ensure!(
            setting.quorum.len() == 2,
            "not two parts: {:?}",
            setting.quorum
        );
        for part in &setting.quorum {
            let ran = self.verify(setting, part).await?;
            ensure!(ran.code == Some(0), "a part was refused: {}", ran.stderr);
            assert_eq!(ran.json()?["fence"]["scope"], "reports/quorum");
        }
        // The signature of one payload under another.
        let part = &setting.quorum[0];
        let (signed, _) = setting
            .certificate
            .rsplit_once('.')
            .context("no signature")?;
        let (_, signature) = part.rsplit_once('.').context("no signature")?;
        let ran = self
            .verify(setting, &format!("{signed}.{signature}"))
            .await?;
        ensure!(ran.code == Some(1), "another's signature: {ran:?}");
        // A foreign library is started for each token: a few of each kind are enough here.
        for Hostile { name, token } in forged(setting)? {
            let kinds = [
                "changed byte",
                "another key",
                "alg none",
                "HS256",
                "no signature",
            ];
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
    let mut setting = Setting::new().await?;
    Foreign::pyjwt()?.checks(&setting).await?;
    setting.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn jwcrypto_verifies_a_certificate_from_the_jwks_url() -> Result<()> {
    let mut setting = Setting::new().await?;
    Foreign::jwcrypto()?.checks(&setting).await?;
    setting.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn jose_verifies_a_certificate_from_the_jwks_url() -> Result<()> {
    let mut setting = Setting::new().await?;
    Foreign::jose()?.checks(&setting).await?;
    setting.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn pyjwt_checks_the_proof_of_a_holders_key() -> Result<()> {
    const URL: &str = "https://files.example.org/reports/7";
    let mut setting = Setting::new().await?;
    let cluster = &setting.cluster;
    let folder = tempfile::tempdir()?;
    let [mine, other] = ["mine.pem", "other.pem"].map(|name| folder.path().join(name));
    let endpoints = cluster.endpoints();
    let mut thumbprints = Vec::new();
    for key in [&mine, &other] {
        let out = key.to_str().context("a path")?;
        let make = ["holder-key", "make", "--out", out, "-o", "json"];
        let made = run_epochctl(&endpoints, &make).await?;
        ensure!(made.code == Some(0), "{made:?}");
        thumbprints.push(text(&made.json()?, "thumbprint")?.to_owned());
    }
    let client = cluster.client(cluster.leader().await?)?;
    let open = json!({"holder": "writer", "ttl": "60s", "holder_key": thumbprints[0]});
    let session = client.post("/v1/sessions", &open).await?.ok()?;
    let session = text(&session, "session_id")?;
    let grant = client.acquire("reports/bound", session, 1).await?.ok()?;
    let certificate = text(&grant, "certificate")?;

    let prove = async |key: &Path, certificate: &str| {
        let key = key.to_str().context("a path")?;
        let request = [
            "--method",
            "PUT",
            "--url",
            URL,
            "--certificate",
            certificate,
        ];
        let prove = [&["proof", "-o", "json", "--holder-key", key], &request[..]].concat();
        run_epochctl(&endpoints, &prove).await
    };
    let proof = async || {
        let made = prove(&mine, certificate).await?;
        ensure!(made.code == Some(0), "{made:?}");
        anyhow::Ok(text(&made.json()?, "proof")?.to_owned())
    };
    // None is made that nobody would take.
    for (key, certificate) in [(&other, certificate), (&mine, &setting.certificate)] {
        let refused = prove(key, certificate).await?;
        ensure!(refused.code == Some(2), "{refused:?}");
    }
    let check = async |method, certificate: &str, proof: &str| {
        let mut command = Command::new(installed(Path::new("venv/bin/python"))?);
        command.arg(Path::new(SCRIPTS).join("verify_dpop.py"));
        run(command.args([method, URL, certificate, proof])).await
    };
    let good = proof().await?;
    let checked = check("PUT", certificate, &good).await?;
    ensure!(
        checked.code == Some(0),
        "a good proof was refused: {checked:?}"
    );
    let (signed, _) = good.rsplit_once('.').context("no signature")?;
    let second = proof().await?;
    let (_, signature) = second.rsplit_once('.').context("no signature")?;
    let now_s = epoch_tests::clock::unix_ms() / 1_000;
    let anothers = HolderKey::from_seed(&[1; 32])?.proof("PUT", URL, certificate, now_s, "1");
    for (method, certificate, proof) in [
        ("GET", certificate, good.clone()),
        ("PUT", &setting.certificate, good.clone()),
        ("PUT", certificate, anothers),
        ("PUT", certificate, format!("{signed}.{signature}")),
    ] {
        let checked = check(method, certificate, &proof).await?;
        ensure!(checked.code == Some(1), "{method} {proof}: {checked:?}");
    }
    setting.cluster.unharmed()
}

/// What `epochctl verify` says of a token, with every demand it can be given.
struct Ours {
    jwks: String,
    cluster: String,
    folder: PathBuf,
}

impl Ours {
    async fn verify(&self, token: &str) -> Result<Ran> {
        // The longest do not fit on a command line.
        let given = if token.len() > 100_000 {
            let path = self.folder.join("token");
            fs::write(&path, token)?;
            format!("@{}", path.display())
        } else {
            token.to_owned()
        };
        let args = [
            "verify",
            "--jwks",
            &self.jwks,
            "--cluster",
            &self.cluster,
            "--audience",
            "files",
            "--scope",
            "reports/interop",
            "-o",
            "json",
            "--",
            &given,
        ];
        run_epochctl("127.0.0.1:1", &args).await
    }

    /// A genuine certificate has to be refused for any other scope, audience or cluster.
    async fn refuses_elsewhere(&self, genuine: &str) -> Result<()> {
        let wrong = [
            ("--scope", "Reports/interop"),
            ("--scope", "reports/interop/"),
            ("--scope", "reports/inter"),
            ("--scope", "reports/interop\u{301}"),
            ("--audience", "file"),
            ("--audience", "Files"),
            ("--cluster", "00000000-0000-4000-8000-000000000000"),
        ];
        for (flag, value) in wrong {
            let args = [
                "verify", "--jwks", &self.jwks, flag, value, "-o", "json", "--", genuine,
            ];
            let ran = run_epochctl("127.0.0.1:1", &args).await?;
            let refused = ran.code == Some(1) && ran.stderr.contains("CERTIFICATE_INVALID");
            ensure!(refused && ran.stdout.is_empty(), "{flag} {value}: {ran:?}");
        }
        Ok(())
    }

    /// Every token has to be refused, for what it is.
    async fn refuses(&self, hostile: &[Hostile]) -> Result<()> {
        let mut wrong = Vec::new();
        for Hostile { name, token } in hostile {
            let ran = self.verify(token).await?;
            let problem: Value = serde_json::from_str(&ran.stderr).unwrap_or_default();
            let refused = ran.code == Some(1) && problem["reason"] == "CERTIFICATE_INVALID";
            if !refused || !ran.stdout.is_empty() || ran.stderr.contains("panicked") {
                wrong.push(format!("{name}: {ran:?}"));
            }
        }
        ensure!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn epochctl_verifies_what_is_genuine_and_refuses_what_is_not() -> Result<()> {
    let mut setting = Setting::new().await?;
    let client = setting
        .cluster
        .client(setting.cluster.leader().await?)?
        .clone();
    let cluster = setting
        .issuer
        .strip_prefix("epochd:")
        .context("issuer")?
        .to_owned();
    let folder = setting.cluster.path().to_path_buf();
    let ours = Ours {
        jwks: setting.jwks_url.clone(),
        cluster,
        folder,
    };

    // Not for the audience that is demanded, though genuine.
    let refused = ours.verify(&setting.certificate).await?;
    ensure!(
        refused.code == Some(1),
        "a certificate without an audience: {refused:?}"
    );
    let plain = [
        "verify",
        "--jwks",
        &setting.jwks_url,
        "-o",
        "json",
        "--",
        &setting.certificate,
    ];
    let ran = run_epochctl("127.0.0.1:1", &plain).await?;
    ensure!(ran.code == Some(0), "{ran:?}");

    let session = client.open("auditor", "60s").await?;
    client
        .release("reports/interop", &setting.session, setting.epoch)
        .await?
        .ok()?;
    let body = json!({
        "scope": "reports/interop", "session_id": session, "request_id": 1,
        "audience": ["other", "files"],
    });
    let grant = client.post("/v1/acquire", &body).await?.ok()?;
    let genuine = text(&grant, "certificate")?;
    let ran = ours.verify(genuine).await?;
    ensure!(
        ran.code == Some(0),
        "a genuine certificate was refused: {ran:?}"
    );
    ours.refuses_elsewhere(genuine).await?;
    ours.refuses(&certificates::forged(genuine, &setting.jwks)?)
        .await?;

    // The same checks where the signature is good: a key that the verifier trusts, misused.
    let issuer = Issuer::new(7)?;
    let jwks = ours.folder.join("jwks.json");
    fs::write(&jwks, issuer.jwks().to_string())?;
    let ours = Ours {
        jwks: jwks.display().to_string(),
        ..ours
    };
    let payload = certificates::parts(genuine)?.payload;
    let ran = ours.verify(&issuer.token(&payload)).await?;
    ensure!(
        ran.code == Some(0),
        "the issuer's well-formed certificate was refused: {ran:?}"
    );
    ours.refuses(&issuer.malformed(&payload)).await?;
    setting.cluster.unharmed()
}
