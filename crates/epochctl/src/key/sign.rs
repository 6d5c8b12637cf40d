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
    tell(output, newest, signed.bundle());
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
    now_s: u64,
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
    // A new key waits until every resource knows it, as any other, unless nobody would sign
    // meanwhile.
    let since_s = match keys.iter().any(|key| key.since_s <= now_s) {
        true => now_s.saturating_add(newest.terms().max_age_s),
        false => now_s,
    };
    keys.extend(add.iter().map(|NodeKey { node, key }| BundleKey {
        node: *node,
        key: key.clone(),
        since_s,
    }));
    Ok(keys)
}

/// What the signature is about to bring about: a slip here can be undone with the root key only.
fn tell(output: Output, before: &Bundle, after: &Bundle) {
    output.note(&format!("bundle {}:", after.terms().sequence));
    for BundleKey { node, key, since_s } in after.keys() {
        let kid = key.id();
        if before.find(kid).is_none() {
            let since = times::rfc3339(since_s.saturating_mul(1_000));
            output.note(&format!(
                "  node {node} gets the key {kid}, which signs from {since}"
            ));
        }
    }
    for BundleKey { node, key, .. } in before.keys() {
        let kid = key.id();
        if after.find(kid).is_none() {
            output.note(&format!(
                "  node {node} loses the key {kid}: it is refused from now on"
            ));
        }
    }
    output.note(&format!(
        "  the one after it needs the signatures of {} of {} nodes",
        after.majority(),
        after.nodes().len()
    ));
}

#[cfg(test)]
mod tests;
