//! Signing keys of small numbers, and what they sign.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use epoch_core::{
    Bundle, BundleKey, BundleTerms, KeyId, KeyOffer, NodeId, Pin, SignedBundle, SigningKey,
    Statement, StatementKind, TextKind, Trust, Validity, VerifyingKey,
};

use super::machine::{Machine, WALL_MS};
use crate::command::Command;
use crate::outcome::Outcome;
use crate::state::State;

/// The number of the root key.
pub(super) const ROOT: u8 = 200;
pub(super) const NOW_S: u64 = WALL_MS / 1_000;
pub(super) const LIFE_S: u64 = 30 * 86_400;
pub(super) const AGE_S: u64 = 600;

static NUMBERS: LazyLock<BTreeMap<KeyId, u8>> =
    LazyLock::new(|| (0..=u8::MAX).map(|number| (kid(number), number)).collect());

/// The key of a number.
pub(super) fn signing(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).unwrap()
}

pub(super) fn verifying(number: u8) -> VerifyingKey {
    signing(number).verifying_key().clone()
}

pub(super) fn kid(number: u8) -> KeyId {
    signing(number).id()
}

/// The number of a key.
pub(super) fn number_of(kid: KeyId) -> u8 {
    NUMBERS[&kid]
}

pub(super) fn bundle_key(node: NodeId, number: u8, since_s: u64) -> BundleKey {
    BundleKey {
        node,
        key: verifying(number),
        since_s,
    }
}

/// Of a bundle of the state's cluster and incarnation.
pub(super) fn terms(state: &State, sequence: u64, issued_at_s: u64) -> BundleTerms {
    BundleTerms {
        cluster: state.cluster_id(),
        incarnation: state.incarnation(),
        sequence,
        root: verifying(ROOT),
        issued_at_s,
        expires_at_s: issued_at_s + LIFE_S,
        lifetime_s: LIFE_S,
        max_age_s: AGE_S,
    }
}

pub(super) fn signed(bundle: &Bundle, signers: &[u8]) -> Arc<SignedBundle> {
    let payload = bundle.to_json();
    let signatures = signers.iter().map(|number| {
        let key = signing(*number);
        (key.id(), key.signature(TextKind::Bundle, &payload))
    });
    Arc::new(SignedBundle::from_parts(payload.clone(), signatures.collect()).unwrap())
}

/// Nodes with keys that sign at once, as (node, number).
pub(super) fn old_keys(keys: &[(NodeId, u8)]) -> Vec<BundleKey> {
    let keys = keys.iter();
    keys.map(|(node, number)| bundle_key(*node, *number, 0))
        .collect()
}

/// The key of a number as a node's next one, endorsed by the key of another number.
pub(super) fn offer(
    state: &State,
    node: NodeId,
    number: u8,
    endorser: Option<u8>,
) -> Arc<KeyOffer> {
    let endorser = endorser.map(signing);
    let (cluster, incarnation) = (state.cluster_id(), state.incarnation());
    let offer = signing(number).offer(cluster, incarnation, node, endorser.as_ref());
    Arc::new(offer.unwrap())
}

pub(super) fn statement(
    state: &State,
    kind: StatementKind,
    (issued_at_s, expires_at_s): (u64, u64),
    signer: u8,
) -> Arc<str> {
    let validity = Validity {
        issued_at_s,
        expires_at_s,
        jti: "jti".to_owned(),
    };
    let statement = Statement::new(state.cluster_id(), validity, kind).unwrap();
    signing(signer).sign_statement(&statement).unwrap().into()
}

/// Who knows nothing but the root key believes the chain, link by link, to its end.
pub(super) fn newcomers_believe(state: &State) -> Result<(), String> {
    let Some(newest) = state.bundle() else {
        return Ok(());
    };
    let mut trust = Trust::new(Pin {
        cluster: state.cluster_id(),
        root: newest.bundle().terms().root.clone(),
    });
    let chain: Vec<_> = state.bundles_after(0).cloned().collect();
    trust.adopt(&chain).map_err(|error| error.to_string())?;
    if trust.bundle() == Some(newest.bundle()) {
        Ok(())
    } else {
        Err(format!("the chain ends at {:?}", trust.bundle()))
    }
}

impl Machine {
    pub(super) fn put_bundle(&mut self, bundle: Arc<SignedBundle>) -> Outcome {
        let came = self.one(Command::PutBundle { by: None, bundle });
        newcomers_believe(&self.state).unwrap();
        came
    }

    /// Bundle 1: nodes 1 to 3 with keys 1 to 3, which sign at once.
    pub(super) fn first_bundle(&mut self) -> Arc<SignedBundle> {
        let keys = old_keys(&[(1, 1), (2, 2), (3, 3)]);
        let bundle = Bundle::new(terms(&self.state, 1, NOW_S), keys).unwrap();
        let bundle = signed(&bundle, &[ROOT]);
        assert_eq!(self.put_bundle(Arc::clone(&bundle)), Outcome::BundlePut);
        bundle
    }

    /// A machine with bundle 1.
    pub(super) fn with_bundle() -> Self {
        let mut machine = Self::new();
        machine.first_bundle();
        machine
    }

    pub(super) fn now_s(&self) -> u64 {
        self.wall_ms / 1_000
    }

    /// What is due now.
    pub(super) fn due(&self) -> Option<Bundle> {
        self.state.due_bundle(self.now_s())
    }

    /// Has these keys sign what is due, and takes it in.
    pub(super) fn renew(&mut self, signers: &[u8]) -> Outcome {
        let due = self.due().expect("nothing is due");
        self.put_bundle(signed(&due, signers))
    }

    /// A successor of the newest bundle, issued now, whatever is due.
    pub(super) fn next(&self, keys: Vec<BundleKey>) -> Bundle {
        let current = self.state.bundle().unwrap().bundle();
        current.next(self.now_s(), keys).unwrap()
    }

    pub(super) fn offer(&mut self, node: NodeId, number: u8, endorser: Option<u8>) -> Outcome {
        let offer = offer(&self.state, node, number, endorser);
        self.one(Command::OfferKey(offer))
    }

    pub(super) fn rotate(&mut self, node: Option<NodeId>) -> Outcome {
        self.one(Command::RotateKeys { by: None, node })
    }

    pub(super) fn retire(&mut self, number: u8) -> Outcome {
        let kid = kid(number);
        self.one(Command::RetireKey { by: None, kid })
    }

    /// The keys of the newest bundle, as (node, number).
    pub(super) fn in_bundle(&self) -> Vec<(NodeId, u8)> {
        let newest = self.state.bundle().unwrap().bundle();
        let keys = newest.keys().iter();
        keys.map(|key| (key.node, number_of(key.key.id())))
            .collect()
    }

    /// All keys and how they stand, as `1:7 aging`.
    pub(super) fn standings(&self) -> Vec<String> {
        standings(&self.state)
    }
}

pub(super) fn standings(state: &State) -> Vec<String> {
    let keys = state.signing_keys().into_iter();
    keys.map(|key| {
        let number = number_of(key.key.id());
        let standing = format!("{:?}", key.standing).to_lowercase();
        format!("{}:{number} {standing}", key.node)
    })
    .collect()
}
