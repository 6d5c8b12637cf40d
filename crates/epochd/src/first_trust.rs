//! What a new cluster's trust begins with: the root key, the nodes' signing keys, the first bundle,
//! and perhaps an operator.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use epoch_core::{
    BUNDLE_AGE_S, BUNDLE_LIFETIME_S, BundleKey, ClusterId, FirstTerms, Incarnation, NodeId,
    Principal, RootKey, SignedBundle,
};
use epoch_store::{RealFs, write_durably};

use crate::clock;
use crate::node::make_first;
use crate::seed::FirstOperator;
use crate::token::hash_of_token;

/// The root key's file, in the folder that holds the nodes' folders.
pub(crate) const ROOT_KEY_FILE: &str = "root-key.json";
/// The first operator's token, beside it.
pub(crate) const OPERATOR_TOKEN_FILE: &str = "operator.token";

/// What resources are told of keys, and who operates the cluster.
#[derive(Debug, Clone, Args)]
pub struct TrustArgs {
    /// How long a trust bundle is good for, from 10s to 3653d; the nodes renew it once a third of
    /// this is over.
    #[arg(long, value_name = "DURATION", value_parser = lifetime, default_value = "30d")]
    pub bundle_lifetime: Duration,
    /// How long a resource may go without fetching the trust bundle again, and how long a new
    /// signing key waits before it signs: from 1s to 1d.
    #[arg(long, value_name = "DURATION", value_parser = max_age, default_value = "10m")]
    pub key_max_age: Duration,
    /// Close the cluster from its first moment: this principal may operate, read and revoke, and
    /// its token is written to operator.token. Without it, everyone who reaches the cluster may do
    /// everything until the first permission is given.
    #[arg(long, value_name = "PRINCIPAL", value_parser = principal)]
    pub operator: Option<Principal>,
}

impl Default for TrustArgs {
    fn default() -> Self {
        Self {
            bundle_lifetime: Duration::from_secs(30 * 86_400),
            key_max_age: Duration::from_secs(600),
            operator: None,
        }
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    whole_seconds(text, &BUNDLE_LIFETIME_S)
}

fn max_age(text: &str) -> Result<Duration, String> {
    whole_seconds(text, &BUNDLE_AGE_S)
}

fn whole_seconds(text: &str, bounds: &RangeInclusive<u64>) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if parsed.subsec_nanos() == 0 && bounds.contains(&parsed.as_secs()) {
        return Ok(parsed);
    }
    let [least, most] = [bounds.start(), bounds.end()].map(|s| Duration::from_secs(*s));
    let [least, most] = [least, most].map(humantime::format_duration);
    Err(format!("it is from {least} to {most}, in whole seconds"))
}

fn principal(text: &str) -> Result<Principal, String> {
    Principal::parse(text).map_err(|error| error.to_string())
}

/// A new cluster's trust, on the disk.
#[derive(Debug)]
pub(crate) struct FirstTrust {
    pub(crate) bundle: SignedBundle,
    pub(crate) operator: Option<FirstOperator>,
}

impl FirstTrust {
    /// Makes the root key in `out`, a signing key in each node's folder, and signs the bundle.
    ///
    /// # Errors
    /// There is a root key or a token in `out` already, a time is out of bounds, or something
    /// cannot be written.
    pub(crate) fn make(
        out: &Path,
        cluster_id: ClusterId,
        incarnation: Incarnation,
        folders: &BTreeMap<NodeId, PathBuf>,
        args: &TrustArgs,
    ) -> anyhow::Result<Self> {
        let mut seed = [0; 32];
        rand::fill(&mut seed).context("the system gave no random bytes for a root key")?;
        let root = RootKey::from_seed(cluster_id, incarnation, &seed)?;
        let mut keys = Vec::new();
        for (node, folder) in folders {
            keys.push(BundleKey {
                node: *node,
                key: make_first(folder)?.verifying_key().clone(),
                since_s: 0,
            });
        }
        let terms = FirstTerms {
            issued_at_s: clock::wall().as_secs(),
            lifetime_s: args.bundle_lifetime.as_secs(),
            max_age_s: args.key_max_age.as_secs(),
        };
        let bundle = root.sign_first(terms, keys)?;
        write_new(&out.join(ROOT_KEY_FILE), root.to_json()?.as_bytes())?;
        let operator = args.operator.as_ref().map(|name| operator(out, name));
        Ok(Self {
            bundle,
            operator: operator.transpose()?,
        })
    }
}

/// Whether `out` has what `make` would have to overwrite.
pub(crate) fn check_room(out: &Path) -> anyhow::Result<()> {
    for name in [ROOT_KEY_FILE, OPERATOR_TOKEN_FILE] {
        let file = out.join(name);
        ensure!(
            !file.exists(),
            "{} is another cluster's: choose another folder",
            file.display()
        );
    }
    Ok(())
}

fn operator(out: &Path, principal: &Principal) -> anyhow::Result<FirstOperator> {
    let mut secret = [0; 32];
    rand::fill(&mut secret).context("the system gave no random bytes for a token")?;
    let token = format!("epochd_{}", URL_SAFE_NO_PAD.encode(secret));
    write_new(
        &out.join(OPERATOR_TOKEN_FILE),
        format!("{token}\n").as_bytes(),
    )?;
    Ok(FirstOperator {
        principal: principal.clone(),
        token: hash_of_token(&token),
    })
}

fn write_new(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_durably(&RealFs, path, bytes)
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
impl FirstTrust {
    /// Trust of nodes whose keys nobody keeps.
    pub(crate) fn of_test(
        cluster_id: ClusterId,
        incarnation: Incarnation,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Self {
        let root = RootKey::from_seed(cluster_id, incarnation, &[9; 32]).unwrap();
        let key = |node: NodeId| BundleKey {
            node,
            key: epoch_core::VerifyingKey::new([u8::try_from(node).unwrap(); 32]),
            since_s: 0,
        };
        let terms = FirstTerms {
            issued_at_s: 1,
            lifetime_s: 60,
            max_age_s: 10,
        };
        let keys = nodes.into_iter().map(key).collect();
        Self {
            bundle: root.sign_first(terms, keys).unwrap(),
            operator: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_first_bundle_has_every_node_s_key_and_nothing_is_overwritten() {
        let out = tempfile::tempdir().unwrap();
        let folders = (1..=3).map(|node| (node, out.path().join(format!("node{node}"))));
        let folders = folders.collect();
        let args = TrustArgs {
            operator: Some(Principal::parse("ops").unwrap()),
            ..TrustArgs::default()
        };
        let ids = (
            ClusterId(Uuid::from_u128(1)),
            Incarnation(Uuid::from_u128(2)),
        );
        check_room(out.path()).unwrap();
        let trust = FirstTrust::make(out.path(), ids.0, ids.1, &folders, &args).unwrap();
        let bundle = trust.bundle.bundle();
        assert_eq!(bundle.nodes().len(), 3);
        assert!(trust.bundle.check_first(&bundle.terms().root).is_ok());
        let token = std::fs::read_to_string(out.path().join(OPERATOR_TOKEN_FILE)).unwrap();
        assert_eq!(trust.operator.unwrap().token, hash_of_token(token.trim()));
        assert!(check_room(out.path()).is_err());
    }
}
