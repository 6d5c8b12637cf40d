//! Random bundles, keys and statements.

use std::sync::{Arc, LazyLock};

use epoch_core::{
    Bundle, BundleKey, BundleTerms, KeyId, NodeId, SignedBundle, SigningKey, Statement,
    StatementKind, TextKind, Validity,
};
use epoch_machine::{Command, State};

use super::workload::principal;
use crate::SplitMix;

const ROOT: u8 = 0;
const NODES: u64 = 3;
/// Keys of each node.
const KEYS: u64 = 60;

static SIGNING: LazyLock<Vec<SigningKey>> = LazyLock::new(|| {
    let seeds = (0..=u8::MAX).map(|number| [number; 32]);
    seeds
        .map(|seed| SigningKey::from_seed(&seed).unwrap())
        .collect()
});

fn signing(number: u8) -> &'static SigningKey {
    &SIGNING[usize::from(number)]
}

fn number(node: NodeId, key: u64) -> u8 {
    u8::try_from(node * KEYS + key).unwrap()
}

/// The private half of a node's key.
fn signing_of(node: NodeId, kid: KeyId) -> &'static SigningKey {
    let mut all = (0..KEYS).map(|key| signing(number(node, key)));
    all.find(|key| key.id() == kid).unwrap()
}

fn bundle_key(node: NodeId, key: u64, since_s: u64) -> BundleKey {
    BundleKey {
        node,
        key: signing(number(node, key)).verifying_key().clone(),
        since_s,
    }
}

fn signed<'k>(bundle: &Bundle, by: impl IntoIterator<Item = &'k SigningKey>) -> Arc<SignedBundle> {
    let payload = bundle.to_json();
    let signatures = by.into_iter();
    let signatures = signatures.map(|key| (key.id(), key.signature(TextKind::Bundle, &payload)));
    let signatures = signatures.collect();
    Arc::new(SignedBundle::from_parts(payload, signatures).unwrap())
}

/// What keeps the keys as they should be, and what operators do with them; not in every batch, for
/// signatures take time.
pub(super) fn command(random: &mut SplitMix, state: &State, wall_ms: u64) -> Option<Command> {
    (state.bundle().is_none() || random.below(3) == 0).then(|| drawn(random, state, wall_ms))
}

fn drawn(random: &mut SplitMix, state: &State, wall_ms: u64) -> Command {
    let by = Some(principal("root"));
    let now_s = wall_ms / 1_000;
    let Some(newest) = state.bundle() else {
        let bundle = first(state, now_s);
        return Command::PutBundle { by, bundle };
    };
    let newest = newest.bundle();
    if let Some(due) = state.due_bundle(now_s)
        && random.below(2) == 0
    {
        let is_last = |key: &&BundleKey| newest.keys_of(key.node).last() == Some(*key);
        let keys = newest.keys().iter().filter(is_last);
        let keys = keys.map(|key| signing_of(key.node, key.key.id()));
        let bundle = signed(&due, keys);
        return Command::PutBundle { by: None, bundle };
    }
    let node = 1 + random.below(NODES);
    match random.below(20) {
        0..8 => offer(random, state, newest, node),
        8..14 => Command::RotateKeys {
            by,
            node: Some(node),
        },
        14 => Command::RetireKey {
            by,
            kid: signing(number(node, random.below(KEYS))).id(),
        },
        15 => {
            // The root key signs the keys of now, and one for each node that has none.
            let mut keys = newest.keys().to_vec();
            for node in 1..=NODES {
                let mut fresh = (0..KEYS).map(|key| bundle_key(node, key, now_s));
                if newest.keys_of(node).next().is_none() {
                    keys.extend(fresh.find(|key| !state.is_retired(key.key.id())));
                }
            }
            let bundle = newest.next(now_s, keys).unwrap();
            let bundle = signed(&bundle, [signing(ROOT)]);
            Command::PutBundle { by, bundle }
        }
        _ => Command::PutStatement {
            by,
            text: statement(state, now_s, random.below(9)),
        },
    }
}

fn first(state: &State, now_s: u64) -> Arc<SignedBundle> {
    let root = signing(ROOT);
    let lifetime_s = 30 * 86_400;
    let terms = BundleTerms {
        cluster: state.cluster_id(),
        incarnation: state.incarnation(),
        sequence: 1,
        root: root.verifying_key().clone(),
        issued_at_s: now_s,
        expires_at_s: now_s + lifetime_s,
        lifetime_s,
        max_age_s: 600,
    };
    let keys = (1..=NODES).map(|node| bundle_key(node, 0, 0)).collect();
    signed(&Bundle::new(terms, keys).unwrap(), [root])
}

/// Half of them endorsed.
fn offer(random: &mut SplitMix, state: &State, newest: &Bundle, node: NodeId) -> Command {
    let key = signing(number(node, random.below(KEYS)));
    let endorser = newest.keys_of(node).last();
    let endorser = endorser.filter(|_| random.below(2) == 0);
    let endorser = endorser.map(|by| signing_of(node, by.key.id()));
    let endorser = endorser.filter(|by| by.id() != key.id());
    let (cluster, incarnation) = (state.cluster_id(), state.incarnation());
    let offer = key.offer(cluster, incarnation, node, endorser);
    Command::OfferKey(Arc::new(offer.unwrap()))
}

fn statement(state: &State, now_s: u64, seconds: u64) -> Arc<str> {
    let validity = Validity {
        issued_at_s: now_s,
        expires_at_s: now_s + 60,
        jti: "jti".to_owned(),
    };
    let kind = match seconds {
        0 => StatementKind::Clock,
        seconds => StatementKind::MaxFuture { seconds },
    };
    let statement = Statement::new(state.cluster_id(), validity, kind).unwrap();
    signing(ROOT).sign_statement(&statement).unwrap().into()
}
