//! Random bundles, offers and statements, by those who may and by those who stole something.

use std::sync::Arc;

use epoch_core::{Bundle, BundleKey, BundleTerms, NodeId, SignedBundle, StatementKind};

use super::keys::{ROOT, bundle_key, kid, number_of, offer, signed, statement, terms};
use super::random::{Random, operator};
use crate::command::Command;
use crate::state::State;

/// What is drawn about a state, which the honest know.
pub(super) fn trust_command(random: &mut Random, state: &State, wall_ms: u64) -> Command {
    let now_s = wall_ms / 1_000;
    let by = operator(random);
    let Some(newest) = state.bundle() else {
        let bundle = first(random, state, now_s);
        return Command::PutBundle { by: None, bundle };
    };
    let newest = newest.bundle();
    match random.below(20) {
        0..6 => Command::PutBundle {
            by: None,
            bundle: next(random, state, newest, now_s),
        },
        6 => Command::PutBundle {
            by,
            bundle: by_root(random, newest, now_s),
        },
        7..13 => offered(random, state, newest),
        13..16 => Command::RotateKeys {
            by,
            node: (!random.one_in(3)).then(|| 1 + random.below(5)),
        },
        16..18 => Command::RetireKey {
            by,
            kid: kid(known(random, newest)),
        },
        _ => {
            let kind = match random.below(2) {
                0 => StatementKind::Clock,
                _ => StatementKind::MaxFuture { seconds: 86_400 },
            };
            let issued_at_s = now_s - random.below(3);
            let signer = if random.one_in(5) { 1 } else { ROOT };
            let validity = (issued_at_s, issued_at_s + 1 + random.below(3_600));
            let text = statement(state, kind, validity, signer);
            Command::PutStatement { by, text }
        }
    }
}

/// The keys of nodes 1 to 4 are few, so that they come up again.
fn number(random: &mut Random, node: NodeId) -> u8 {
    let number = node * 40 + random.below(12);
    u8::try_from(number).unwrap()
}

/// Mostly one of the bundle.
fn known(random: &mut Random, newest: &Bundle) -> u8 {
    match random.of(newest.keys()) {
        Some(key) if !random.one_in(4) => number_of(key.key.id()),
        _ => {
            let node = 1 + random.below(4);
            number(random, node)
        }
    }
}

fn lasting(terms: BundleTerms) -> BundleTerms {
    BundleTerms {
        expires_at_s: terms.issued_at_s + 3_600,
        lifetime_s: 3_600,
        max_age_s: 60,
        ..terms
    }
}

fn first(random: &mut Random, state: &State, now_s: u64) -> Arc<SignedBundle> {
    let keys = (1..=3).map(|node| bundle_key(node, number(random, node), 0));
    let bundle = Bundle::new(lasting(terms(state, 1, now_s)), keys.collect()).unwrap();
    let signer = if random.one_in(4) { 40 } else { ROOT };
    signed(&bundle, &[signer])
}

/// Mostly what is due, signed by most; some with one key more, or signed by few.
fn next(random: &mut Random, state: &State, newest: &Bundle, now_s: u64) -> Arc<SignedBundle> {
    let usual = || newest.next(now_s, newest.keys().to_vec()).ok();
    let mut bundle = state.due_bundle(now_s).or_else(usual);
    if random.one_in(6) {
        let node = 1 + random.below(4);
        let mut keys = newest.keys().to_vec();
        keys.push(bundle_key(node, number(random, node), now_s + 60));
        bundle = newest.next(now_s, keys).ok().or(bundle);
    }
    let bundle = bundle.unwrap_or_else(|| newest.clone());
    let mut signers: Vec<u8> = Vec::new();
    for node in newest.nodes() {
        let key = newest.keys_of(node).next();
        let drawn = key.filter(|_| !random.one_in(6));
        signers.extend(drawn.map(|key| number_of(key.key.id())));
    }
    if signers.is_empty() {
        signers.push(known(random, newest));
    }
    signed(&bundle, &signers)
}

/// Keys of now, some left out, some new.
fn by_root(random: &mut Random, newest: &Bundle, now_s: u64) -> Arc<SignedBundle> {
    let mut keys: Vec<BundleKey> = newest.keys().to_vec();
    if keys.len() > 2 && random.one_in(2) {
        keys.remove(usize::try_from(random.below(3)).unwrap());
    }
    let node = 1 + random.below(4);
    let new = bundle_key(node, number(random, node), now_s);
    if keys.len() < 12 && keys.iter().all(|key| key.key != new.key) {
        keys.push(new);
    }
    let next = newest.next(now_s, keys).ok();
    signed(&next.unwrap_or_else(|| newest.clone()), &[ROOT])
}

/// Mostly endorsed by a key of the same node.
fn offered(random: &mut Random, state: &State, newest: &Bundle) -> Command {
    let node = 1 + random.below(5);
    let number = number(random, 1 + (node - 1) % 4);
    let own: Vec<_> = newest.keys_of(node).collect();
    let endorser = match random.below(8) {
        0 => Some(known(random, newest)),
        1 => None,
        _ => random.of(&own).map(|key| number_of(key.key.id())),
    };
    let endorser = endorser.filter(|endorser| *endorser != number);
    Command::OfferKey(offer(state, node, number, endorser))
}
