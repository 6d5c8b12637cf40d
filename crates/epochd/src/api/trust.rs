//! Trust: the bundles, the node keys, and what operators and the root key say of them.

use std::sync::Arc;

use epoch_core::{KeySet, Pin, Reason, SignedBundle, Statement, error_chain};
use epoch_machine::{Command, KeyStanding, Outcome, State};
use epoch_proto::{duration, v1};

use super::access::{self, About};
use super::failure::Failure;
use super::{Api, Result, Server, forward, parse, unexpected};
use crate::clock;

/// Bundles of one answer at most.
const BUNDLES_MAX: usize = 32;

impl Api {
    /// Answered by the node asked: what it has applied is signed.
    pub(super) async fn bundle(&self, request: v1::BundleRequest) -> Result<v1::BundleResponse> {
        self.admit(access::BUNDLE, About::Nothing)?;
        let state = self.node.state.read();
        let Some(current) = state.bundle() else {
            return Err(no_bundle());
        };
        let chain = state.bundles_after(request.after).take(BUNDLES_MAX);
        Ok(v1::BundleResponse {
            bundles: chain.map(SignedBundle::to_text).collect(),
            statements: state.statements().map(str::to_owned).collect(),
            sequence: current.bundle().terms().sequence,
        })
    }

    /// Answered by the node asked.
    pub(super) async fn keys(&self, _request: v1::KeysRequest) -> Result<v1::KeysResponse> {
        self.admit_here(access::KEYS, About::Nothing).await?;
        let state = self.node.state.read();
        let Some(current) = state.bundle() else {
            return Err(no_bundle());
        };
        let keys = state
            .signing_keys()
            .into_iter()
            .map(|key| v1::NodeSigningKey {
                node: key.node,
                kid: key.key.id().to_string(),
                x: key.key.to_base64url(),
                state: standing(key.standing).to_owned(),
                since_s: key.since_s,
            });
        let terms = current.bundle().terms();
        Ok(v1::KeysResponse {
            keys: keys.collect(),
            sequence: terms.sequence,
            expires_s: terms.expires_at_s,
            max_age: Some(duration::from_ms(terms.max_age_s.saturating_mul(1000))),
        })
    }

    pub(super) async fn rotate(&self, request: v1::RotateRequest) -> Result<v1::RotateResponse> {
        if let Server::Leader(leader) = self.server()? {
            return forward::rotate(leader, request).await;
        }
        let by = self.admit(access::ROTATE, About::Nothing)?;
        let node = (request.node != 0).then_some(request.node);
        match self.propose(Command::RotateKeys { by, node }).await? {
            Outcome::RotationWanted { nodes } => Ok(v1::RotateResponse { nodes }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn retire(&self, request: v1::RetireRequest) -> Result<v1::RetireResponse> {
        let kid = parse::kid(&request.kid)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::retire(leader, request).await;
        }
        let by = self.admit(access::RETIRE, About::Nothing)?;
        match self.propose(Command::RetireKey { by, kid }).await? {
            Outcome::KeyRetired { retired } => Ok(v1::RetireResponse { retired }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn put_bundle(
        &self,
        request: v1::PutBundleRequest,
    ) -> Result<v1::PutBundleResponse> {
        let bundle = SignedBundle::parse(&request.bundle)
            .map_err(|error| Failure::field("bundle", error_chain(&error)))?;
        if let Server::Leader(leader) = self.server()? {
            return forward::put_bundle(leader, request).await;
        }
        let by = self.admit(access::PUT_BUNDLE, About::Nothing)?;
        if !bundle.names_signer(bundle.bundle().terms().root.id()) {
            let why = "only one that the root key has signed is taken in; nodes make the others";
            return Err(Failure::field("bundle", why));
        }
        fits(&self.node.state.read(), &bundle)?;
        let sequence = bundle.bundle().terms().sequence;
        let bundle = Arc::new(bundle);
        match self.propose(Command::PutBundle { by, bundle }).await? {
            Outcome::BundlePut => Ok(v1::PutBundleResponse { sequence }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn put_statement(
        &self,
        request: v1::PutStatementRequest,
    ) -> Result<v1::PutStatementResponse> {
        if let Server::Leader(leader) = self.server()? {
            return forward::put_statement(leader, request).await;
        }
        let by = self.admit(access::PUT_STATEMENT, About::Nothing)?;
        let root = {
            let state = self.node.state.read();
            let current = state.bundle().ok_or_else(no_bundle)?;
            current.bundle().terms().root.clone()
        };
        let pin = Pin {
            cluster: self.node.seed.cluster_id,
            root,
        };
        Statement::verify(&request.statement, &pin, clock::wall_ms())
            .map_err(|error| Failure::field("statement", error_chain(&error)))?;
        let text = request.statement.into();
        match self.propose(Command::PutStatement { by, text }).await? {
            Outcome::StatementPut => Ok(v1::PutStatementResponse {}),
            other => Err(unexpected(&other)),
        }
    }

    /// The public keys of the newest bundle.
    pub(super) fn jwks(&self) -> serde_json::Value {
        let state = self.node.state.read();
        let keys = state.bundle().map(|current| current.bundle().keys());
        let keys = keys.unwrap_or_default().iter().map(|key| key.key.clone());
        keys.collect::<KeySet>().to_jwks()
    }

    /// For how long the key set may be kept, in seconds: half its maximum age, so that who fetches
    /// it through a cache has it in time, too.
    pub(super) fn key_set_fresh_s(&self) -> u64 {
        let state = self.node.state.read();
        state
            .bundle()
            .map_or(0, |current| current.bundle().terms().max_age_s / 2)
    }

    /// How many nodes are to sign a certificate.
    pub(super) fn signatures(&self, asked: u32) -> Result<usize> {
        let state = self.node.state.read();
        let nodes = state
            .bundle()
            .map_or(1, |current| current.bundle().nodes().len());
        match usize::try_from(asked.max(1)) {
            Ok(asked) if asked <= nodes => Ok(asked),
            _ => Err(Failure::field(
                "signatures",
                format!("it is {asked}; {nodes} nodes have signing keys"),
            )),
        }
    }
}

/// Finds out an operator's slips with the root key, which the state machine would obey: an old
/// bundle, or a key that is no node's. Nobody would sign with that one, and the cluster's own
/// bundles would want for signatures from then on.
fn fits(state: &State, bundle: &SignedBundle) -> Result<()> {
    let Some(current) = state.bundle() else {
        return Ok(());
    };
    // A retry.
    if state.bundles_after(0).any(|known| known == bundle) {
        return Ok(());
    }
    let current = current.bundle();
    let (sequence, newest) = (bundle.bundle().terms().sequence, current.terms().sequence);
    if sequence <= newest {
        let why = format!(
            "it is bundle {sequence}, and the newest is {newest}: fetch the chain (epochctl key \
             bundle) and sign the one that follows it"
        );
        return Err(Failure::field("bundle", why));
    }
    for key in bundle.bundle().keys() {
        let (kid, node) = (key.key.id(), key.node);
        let known = current.find(kid).is_some_and(|its| its.node == node);
        if !known && state.offered(node) != Some(kid) {
            let why = format!(
                "it has the key {kid} for node {node}, which that node neither has nor offers: \
                 epochctl key list shows what nodes offer"
            );
            return Err(Failure::field("bundle", why));
        }
    }
    Ok(())
}

fn no_bundle() -> Failure {
    Failure::new(Reason::NoLeader, "this node has no trust bundle yet")
}

fn standing(standing: KeyStanding) -> &'static str {
    match standing {
        KeyStanding::Offered => "offered",
        KeyStanding::Unendorsed => "unendorsed",
        KeyStanding::Aging => "aging",
        KeyStanding::Signing => "signing",
        KeyStanding::Verifying => "verifying",
        KeyStanding::Retiring => "retiring",
    }
}
