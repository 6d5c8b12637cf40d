//! Signing keys and trust bundles: `key list`, `rotate`, `retire`, `pin`, `bundle`, `sign`, `submit`.

mod sign;

use epoch_client::Client;
use epoch_core::{KeyId, Pin, ROOT_KEY_BYTES_MAX, RootKey, SignedBundle, TextKind};
use epoch_proto::v1;
use serde_json::json;

use crate::args::KeyCommand;
use crate::chain::{Chain, note_expiry};
use crate::exit::Failure;
use crate::files;
use crate::output::{Output, pairs, rows};
use crate::times;
use crate::verify::invalid;

/// `client` is made where the cluster is asked.
pub(crate) async fn key(
    client: impl FnOnce() -> Result<Client, Failure>,
    output: Output,
    command: KeyCommand,
) -> Result<(), Failure> {
    match command {
        KeyCommand::List => list(&client()?, output).await,
        KeyCommand::Rotate { node } => rotate(&client()?, output, node).await,
        KeyCommand::Retire { kid } => retire(&client()?, output, kid).await,
        KeyCommand::Pin { root: Some(file) } => shown_pin(output, &root_key(&file)?.pin()),
        KeyCommand::Pin { root: None } => fetched_pin(&client()?, output).await,
        KeyCommand::Bundle { after, check } => {
            bundle(&client()?, output, after, check.as_ref()).await
        }
        KeyCommand::Sign(command) => sign::sign(output, &command),
        KeyCommand::Submit { bundle } => submit(client, output, &bundle).await,
    }
}

/// The operator's root key. Nothing of its file is repeated.
pub(crate) fn root_key(file: &str) -> Result<RootKey, Failure> {
    let content = files::read_named(file, "root key", ROOT_KEY_BYTES_MAX)?;
    RootKey::from_json(&content).map_err(|error| {
        let next_step = "check --root, or restore it from your copy";
        Failure::usage(format!("{file} is no root key: {error}"), next_step)
    })
}

async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.keys(v1::KeysRequest {}).await?;
    output.result(&answer, || {
        let now_ms = times::now_ms();
        let moment = |seconds: u64| times::moment(seconds.saturating_mul(1_000), now_ms);
        let head = pairs([
            ("bundle", answer.sequence.to_string()),
            ("expires", moment(answer.expires_s)),
            ("maximum age", times::duration(answer.max_age.as_ref())),
        ]);
        let row = |key: &v1::NodeSigningKey| {
            let since = match (key.since_s, key.state.as_str()) {
                (0, "offered" | "unendorsed") => "-".to_owned(),
                (0, _in_bundle) => "always".to_owned(),
                (seconds, _in_bundle) => moment(seconds),
            };
            [
                key.node.to_string(),
                key.kid.clone(),
                key.state.clone(),
                since,
                key.x.clone(),
            ]
        };
        let header = ["NODE", "KID", "STATE", "SIGNS FROM", "X"];
        format!("{head}\n\n{}", rows(header, answer.keys.iter().map(row)))
    })
}

async fn rotate(client: &Client, output: Output, node: Option<u64>) -> Result<(), Failure> {
    let node = node.unwrap_or_default();
    let answer = client.rotate_keys(v1::RotateRequest { node }).await;
    let answer = answer.map_err(|error| {
        if error.outcome_unknown() {
            output.note("nodes may have been asked: look with `epochctl key list`");
        }
        Failure::from(error)
    })?;
    output.result(&answer, || {
        let nodes: Vec<_> = answer.nodes.iter().map(ToString::to_string).collect();
        match nodes.len() {
            0 => "no node was asked".to_owned(),
            _some => format!("asked for new keys: node {}", nodes.join(", ")),
        }
    })
}

async fn retire(client: &Client, output: Output, kid: KeyId) -> Result<(), Failure> {
    let kid = kid.to_string();
    let request = v1::RetireRequest { kid: kid.clone() };
    let answer = client.retire_key(request).await?;
    output.result(&answer, || match answer.retired {
        true => "retired".to_owned(),
        false => "nothing to retire: the newest bundle has no such key (epochctl key list)".into(),
    })?;
    // What was asked for is done: that the list does not come is no failure of it.
    if answer.retired
        && let Ok(keys) = client.keys(v1::KeysRequest {}).await
        && let Some(node) = left_without_key(&keys.keys, &kid)
    {
        output.note(&format!(
            "node {node} has no other key: until the root key signs its next one (`epochctl key \
             sign --add`), no certificate of it verifies"
        ));
    }
    Ok(())
}

/// The node of a retired key, if it has no other one that is in use or is to be.
fn left_without_key(keys: &[v1::NodeSigningKey], retired: &str) -> Option<u64> {
    let node = keys.iter().find(|key| key.kid == retired)?.node;
    let goes_on = |state: &str| !matches!(state, "retiring" | "unendorsed");
    let mut of_node = keys
        .iter()
        .filter(|key| key.node == node && key.kid != retired);
    (!of_node.any(|key| goes_on(&key.state))).then_some(node)
}

fn shown_pin(output: Output, pin: &Pin) -> Result<(), Failure> {
    output.result(&json!({ "pin": pin.to_string() }), || pin.to_string())
}

/// The pin that the cluster itself names.
async fn fetched_pin(client: &Client, output: Output) -> Result<(), Failure> {
    let chain = Chain::fetch(client, 0).await?;
    let newest = chain.bundles.last().ok_or_else(|| {
        Failure::local(
            "the cluster has no trust bundle yet",
            "try again in a moment",
        )
    })?;
    let terms = newest.bundle().terms();
    let pin = Pin {
        cluster: terms.cluster,
        root: terms.root.clone(),
    };
    chain.trust(&pin)?;
    output.note(
        "whoever answered names this root key itself: compare it with what the operator has \
         (`epochctl key pin --root FILE`) before anything pins it",
    );
    shown_pin(output, &pin)
}

async fn bundle(
    client: &Client,
    output: Output,
    after: u64,
    check: Option<&Pin>,
) -> Result<(), Failure> {
    let document = match check {
        None => Chain::fetch(client, after).await?.document(after),
        Some(pin) => {
            // From where the root key signed it: the rest of it proves nothing alone.
            let chain = Chain::fetch(client, 0).await?;
            note_expiry(output, &chain.trust(pin)?, times::now_ms());
            chain.document(after)
        }
    };
    output.result(&document, || {
        // Strings always serialise.
        serde_json::to_string(&document).unwrap_or_default()
    })
}

async fn submit(
    client: impl FnOnce() -> Result<Client, Failure>,
    output: Output,
    given: &str,
) -> Result<(), Failure> {
    let bundle = files::read_text(given, "bundle", TextKind::Bundle.bytes_max())?;
    let signed = SignedBundle::parse(&bundle)
        .map_err(|error| Failure::usage(format!("that is no bundle: {error}"), "check it"))?;
    let root = signed.bundle().terms().root.clone();
    signed.check_first(&root).map_err(|error| {
        invalid(format!(
            "the bundle is not signed by the root key it names: {error}"
        ))
    })?;
    let answer = client()?
        .put_bundle(v1::PutBundleRequest { bundle })
        .await?;
    output.result(&answer, || format!("bundle {}", answer.sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_left_without_a_key_by_the_retirement_of_its_last_one() {
        let key = |node, kid: &str, state: &str| v1::NodeSigningKey {
            node,
            kid: kid.to_owned(),
            state: state.to_owned(),
            ..Default::default()
        };
        let others = [key(2, "b", "signing"), key(1, "a", "retiring")];
        assert_eq!(left_without_key(&others, "a"), Some(1));
        for (state, left) in [
            ("aging", None),
            ("offered", None),
            ("verifying", None),
            ("unendorsed", Some(1)),
        ] {
            let keys = [others.as_slice(), &[key(1, "c", state)]].concat();
            assert_eq!(left_without_key(&keys, "a"), left, "{state}");
        }
        // It has left the bundle already: nobody knows whose it was.
        assert_eq!(left_without_key(&others, "z"), None);
    }
}
