//! `key sign`: the successor of a chain's newest bundle, offline.

use epoch_core::{Bundle, BundleKey, KeyId};
use serde_json::json;

use super::root_key;
use crate::args::{KeySign, NodeKey};
use crate::chain::Chain;
use crate::exit::Failure;
use crate::output::Output;
use crate::times;

pub(super) fn sign(output: Output, command: &KeySign) -> Result<(), Failure> {
    let root = root_key(&command.root.root)?;
    let trust = Chain::read(&command.chain)?.trust(&root.pin())?;
    let newest = trust
        .bundle()
        .ok_or_else(|| Failure::usage("the chain has no bundle", "fetch it again"))?;
    let now_s = times::now_ms() / 1_000;
    let issued_at_s = newest.terms().issued_at_s.max(now_s);
    let keys = keys(newest, &command.add, &command.remove, issued_at_s)?;
    let signed = root
        .sign_next(newest, issued_at_s, keys)
        .map_err(|error| Failure::usage(format!("not signed: {error}"), "check chain and keys"))?;
    let rank = signed.bundle().rank();
    if rank.incarnation > root.incarnation() {
        output.note(&format!(
            "this copy of the root key does not know incarnation {}: a later copy was used for a \
             restore; keep that one",
            rank.incarnation
        ));
    }
    let text = signed.to_text();
    let json = json!({
        "bundle": text,
        "incarnation": rank.incarnation.to_string(),
        "sequence": rank.sequence,
        "expires_s": signed.bundle().terms().expires_at_s,
    });
    output.result(&json, || text)
}

/// The newest bundle's keys, with some more and without others.
fn keys(
    newest: &Bundle,
    add: &[NodeKey],
    remove: &[KeyId],
    since_s: u64,
) -> Result<Vec<BundleKey>, Failure> {
    for kid in remove {
        if newest.find(*kid).is_none() {
            let message = format!("the newest bundle has no key {kid}");
            return Err(Failure::usage(
                message,
                "leave out --remove, or check the chain",
            ));
        }
    }
    let mut keys = newest.keys().to_vec();
    keys.retain(|key| !remove.contains(&key.key.id()));
    keys.extend(add.iter().map(|NodeKey { node, key }| BundleKey {
        node: *node,
        key: key.clone(),
        since_s,
    }));
    Ok(keys)
}

#[cfg(test)]
mod tests;
