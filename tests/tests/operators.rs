//! What operators do by mistake: the cluster refuses it while it still can.

use anyhow::{Context as _, Result, ensure};
use epoch_core::{BundleKey, RootKey, SignedBundle, SigningKey};
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::json_client::{Answer, JsonClient};
use epoch_tests::token_hash;
use serde_json::{Value, json};

/// A token of a principal, for good or for an hour.
async fn token_of(client: &JsonClient, principal: &str, lasting: bool) -> Result<()> {
    let ttl = if lasting { Value::Null } else { json!("1h") };
    let label = if lasting { "lasting" } else { "hour" };
    let hash = token_hash(&format!("epochd_{principal}_{label}"));
    let add = json!({"principal": principal, "label": label, "hash": hash, "ttl": ttl});
    client.post("/v1/tokens/add", &add).await?.ok().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_locks_the_last_operator_out() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let open = cluster.client(cluster.leader().await?)?.clone();
    let grant = async |client: &JsonClient, who: &str, verbs: &[&str]| {
        let grant = json!({"principal": who, "prefix": "", "verbs": verbs});
        client.post("/v1/permissions/grant", &grant).await
    };
    let refused = |answer: &Answer| answer.reason() == Some("INVALID_ARGUMENT");

    // The first one has to be able to come back.
    ensure!(refused(&grant(&open, "ops", &["operate"]).await?));
    token_of(&open, "ops", false).await?;
    ensure!(refused(&grant(&open, "ops", &["operate"]).await?));
    token_of(&open, "ops", true).await?;
    grant(&open, "ops", &["operate"]).await?.ok()?;

    let ops = open.with_token(Some("epochd_ops_lasting"));
    let remove = json!({"principal": "ops", "label": "lasting"});
    ensure!(refused(&ops.post("/v1/tokens/remove", &remove).await?));
    // Another one who cannot show who he is makes no difference.
    grant(&ops, "ghost", &["operate"]).await?.ok()?;
    token_of(&ops, "ghost", false).await?;
    ensure!(refused(&ops.post("/v1/tokens/remove", &remove).await?));
    let revoke = json!({"principal": "ops", "prefix": ""});
    ensure!(refused(&ops.post("/v1/permissions/revoke", &revoke).await?));
    ensure!(refused(&grant(&ops, "ops", &["read"]).await?));
    // One who can does.
    token_of(&ops, "ghost", true).await?;
    ops.post("/v1/permissions/revoke", &revoke).await?.ok()?;
    let ghost = open.with_token(Some("epochd_ghost_lasting"));
    ghost.post("/v1/tokens/remove", &remove).await?.ok()?;
    // And so does a certificate's name, which no node can check.
    grant(&ghost, "spiffe://ops", &["operate"]).await?.ok()?;
    let revoke = json!({"principal": "ghost", "prefix": ""});
    ghost.post("/v1/permissions/revoke", &revoke).await?.ok()?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_no_node_could_follow_is_refused_though_the_root_signed_it() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let root = std::fs::read(cluster.path().join("root-key.json"))?;
    let root = RootKey::from_json(&root)?;
    let client = cluster.client(cluster.leader().await?)?;
    let chain = client.get("/v1/bundle", &[]).await?.ok()?;
    let newest = chain["bundles"].as_array().and_then(|all| all.last());
    let newest = newest
        .and_then(Value::as_str)
        .context("no bundle")?
        .to_owned();
    let current = SignedBundle::parse(&newest)?;
    let current = current.bundle();
    let now_s = epoch_tests::clock::unix_ms() / 1_000;
    let put = async |bundle: &str| {
        let put = json!({ "bundle": bundle });
        client.post("/v1/bundle", &put).await
    };
    let signed = |node, key: &SigningKey| {
        let added = BundleKey {
            node,
            key: key.verifying_key().clone(),
            since_s: now_s,
        };
        let keys = [current.keys(), &[added]].concat();
        anyhow::Ok(root.sign_next(current, now_s, keys)?.to_text())
    };
    let nobodys = SigningKey::from_seed(&[7; 32])?;
    let own = current.keys().first().context("no key")?.key.id();
    for (bundle, told) in [
        (signed(2, &nobodys)?, nobodys.id().to_string()),
        (signed(7, &nobodys)?, "node 7".to_owned()),
    ] {
        let refused = put(&bundle).await?;
        assert_eq!(refused.reason(), Some("INVALID_ARGUMENT"), "{refused:?}");
        ensure!(refused.text.contains(&told), "{refused:?}");
        ensure!(!refused.text.contains(&own.to_string()), "{refused:?}");
    }
    let good = root
        .sign_next(current, now_s, current.keys().to_vec())?
        .to_text();
    for _ in 0..2 {
        let put = put(&good).await?.ok()?;
        assert_eq!(number(&put, "sequence")?, current.terms().sequence + 1);
    }
    let old = put(&newest).await?;
    ensure!(old.text.contains("the newest is"), "{old:?}");
    cluster.unharmed()
}
