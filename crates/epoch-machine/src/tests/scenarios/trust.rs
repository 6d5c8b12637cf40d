//! What scripts say of bundles, signing keys and statements. Keys have small numbers.

use std::fmt::Write as _;

use epoch_core::{Bundle, BundleKey, BundleTerms, NodeId, Pin, Statement, StatementKind};

use super::language::{Line, Result, byte, number, text};
use crate::admin::StatementTopic;
use crate::command::Command;
use crate::state::State;
use crate::tests::keys::{
    AGE_S, ROOT, bundle_key, kid, number_of, offer, signed, standings, statement, terms, verifying,
};

/// The command of a line, if it is one of these.
pub(super) fn command(line: &mut Line<'_>, state: &State, wall_ms: u64) -> Result<Option<Command>> {
    let now_s = wall_ms / 1_000;
    Ok(Some(match line.verb {
        "put-bundle" => Command::PutBundle {
            by: line.by()?,
            bundle: {
                let bundle = bundle(line, state, now_s)?;
                signed(&bundle, &numbers(line.required("signed")?)?)
            },
        },
        "offer-key" => {
            let node = number(line.word("a node")?)?;
            let key = byte(line.word("a key")?)?;
            let endorser = line.optional("endorsed").map(byte).transpose()?;
            Command::OfferKey(offer(state, node, key, endorser))
        }
        "rotate" => Command::RotateKeys {
            by: line.by()?,
            node: line.optional("node").map(number).transpose()?,
        },
        "retire" => Command::RetireKey {
            by: line.by()?,
            kid: kid(byte(line.word("a key")?)?),
        },
        "put-statement" => Command::PutStatement {
            by: line.by()?,
            text: {
                let kind = match line.optional("max-future").map(number).transpose()? {
                    Some(seconds) => StatementKind::MaxFuture { seconds },
                    None => StatementKind::Clock,
                };
                let issued = line.optional("issued").map_or(Ok(now_s), number)?;
                let expires = number(line.required("expires")?)?;
                let signer = number_or_root(line.optional("signed").unwrap_or("root"))?;
                statement(state, kind, (issued, expires), signer)
            },
        },
        _ => return Ok(None),
    }))
}

/// What anyone may ask.
pub(super) fn told(line: &mut Line<'_>, state: &State, wall_ms: u64) -> Result<String> {
    let mut out = String::new();
    match line.verb {
        "keys" => {
            for standing in standings(state) {
                let _ = writeln!(out, "  {standing}");
            }
            for node in state.rotations() {
                let _ = writeln!(out, "  of node {node} one is wanted");
            }
        }
        "bundles" => {
            for bundle in state.bundles_after(0) {
                let signers = bundle.signatures().iter().map(|(kid, _)| *kid);
                let signers: Vec<_> = signers.map(|kid| name(number_of(kid))).collect();
                let shown = shown(bundle.bundle());
                let _ = writeln!(out, "  {shown}, signed by {}", signers.join(","));
            }
        }
        "due" => {
            let at_s = line.optional("at").map_or(Ok(wall_ms / 1_000), number)?;
            let due = state.due_bundle(at_s);
            let _ = due.map(|due| writeln!(out, "  {}", shown(&due)));
        }
        _ => {
            let pin = Pin {
                cluster: state.cluster_id(),
                root: verifying(ROOT),
            };
            for topic in [StatementTopic::Clock, StatementTopic::MaxFuture] {
                let Some(kept) = state.kept_statement(topic) else {
                    continue;
                };
                let then_ms = kept.issued_at_s * 1_000;
                let said = Statement::verify(&kept.text, &pin, then_ms).map_err(text)?;
                let (kind, validity) = (said.kind(), said.validity());
                let (from, until) = (validity.issued_at_s, validity.expires_at_s);
                let _ = writeln!(out, "  {kind:?} from {from} until {until}");
            }
        }
    }
    Ok(if out.is_empty() {
        "  none\n".to_owned()
    } else {
        out
    })
}

/// `due`, or one of `keys=1:1,2:2`: those that the newest bundle has stay as they are there.
fn bundle(line: &mut Line<'_>, state: &State, now_s: u64) -> Result<Bundle> {
    let issued_at_s = line.optional("issued").map_or(Ok(now_s), number)?;
    let newest = state.bundle().map(|newest| newest.bundle());
    let Some(keys) = line.optional("keys") else {
        let due = state.due_bundle(issued_at_s);
        return due.ok_or_else(|| "nothing is due, and it has no keys=".to_owned());
    };
    let sequence = newest.map_or(1, |newest| newest.terms().sequence + 1);
    let sequence = line.optional("sequence").map_or(Ok(sequence), number)?;
    let mut terms = terms(state, sequence, issued_at_s);
    if let Some(life_s) = line.optional("life").map(number).transpose()? {
        terms = BundleTerms {
            expires_at_s: issued_at_s + life_s,
            lifetime_s: life_s,
            ..terms
        };
    }
    let since_s = if newest.is_some() {
        issued_at_s + AGE_S
    } else {
        0
    };
    let key = |word: &str| -> Result<BundleKey> {
        let (node, key) = word.split_once(':').ok_or("keys=NODE:KEY,...")?;
        let new = bundle_key(number(node)?, byte(key)?, since_s);
        let kept = newest.and_then(|newest| newest.find(new.key.id()));
        Ok(kept
            .filter(|kept| kept.node == new.node)
            .cloned()
            .unwrap_or(new))
    };
    let keys = keys.split(',').map(key).collect::<Result<_>>()?;
    Bundle::new(terms, keys).map_err(text)
}

fn shown(bundle: &Bundle) -> String {
    let terms = bundle.terms();
    let key = |key: &BundleKey| {
        let (node, number): (NodeId, u8) = (key.node, number_of(key.key.id()));
        match key.since_s {
            0 => format!("{node}:{number}"),
            since_s => format!("{node}:{number} since {since_s}"),
        }
    };
    let keys: Vec<_> = bundle.keys().iter().map(key).collect();
    format!(
        "{} of {}, until {}: {}",
        terms.sequence,
        terms.issued_at_s,
        terms.expires_at_s,
        keys.join(", ")
    )
}

fn name(key: u8) -> String {
    match key {
        ROOT => "root".to_owned(),
        other => other.to_string(),
    }
}

fn number_or_root(word: &str) -> Result<u8> {
    match word {
        "root" => Ok(ROOT),
        word => byte(word),
    }
}

/// `root`, or `1,2`.
fn numbers(word: &str) -> Result<Vec<u8>> {
    word.split(',').map(number_or_root).collect()
}
