//! Chains of trust bundles, as documents and as the cluster tells them.

use epoch_client::Client;
use epoch_core::{Pin, SignedBundle, StatementError, Trust};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::files;
use crate::output::Output;
use crate::times;

/// Longest document: many times a chain of all rotations of years.
pub(crate) const CHAIN_BYTES_MAX: usize = 16 << 20;

/// A chain, oldest bundle first, and the operator's statements. Nothing of it is verified yet.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) bundles: Vec<SignedBundle>,
    pub(crate) statements: Vec<String>,
}

/// A chain as JSON. The names are stable.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChainDocument {
    bundles: Vec<String>,
    #[serde(default)]
    statements: Vec<String>,
    /// The newest bundle's number: a node says it in its own JSON, which may be one page.
    #[serde(default, skip_serializing)]
    sequence: Option<u64>,
}

impl Chain {
    /// All that the cluster has after a number.
    pub(crate) async fn fetch(client: &Client, after: u64) -> Result<Self, Failure> {
        let (bundles, statements) = client.bundles(after).await?;
        Ok(Self {
            bundles,
            statements,
        })
    }

    /// The chain of a file, or of stdin.
    pub(crate) fn read(given: &str) -> Result<Self, Failure> {
        Self::parse(&files::read_named(given, "chain", CHAIN_BYTES_MAX)?)
    }

    pub(crate) fn parse(document: &[u8]) -> Result<Self, Failure> {
        let malformed = |error: &dyn std::fmt::Display| {
            let next_step = "give it as `epochctl key bundle` printed it";
            Failure::usage(
                format!("that is no chain of trust bundles: {error}"),
                next_step,
            )
        };
        if document.len() > CHAIN_BYTES_MAX {
            return Err(malformed(&format_args!(
                "it has more than {CHAIN_BYTES_MAX} bytes"
            )));
        }
        let document: ChainDocument =
            serde_json::from_slice(document).map_err(|error| malformed(&error))?;
        let bundles = document.bundles.iter();
        let bundles: Result<Vec<_>, _> = bundles.map(|text| SignedBundle::parse(text)).collect();
        let bundles = bundles.map_err(|error| malformed(&error))?;
        let last = bundles.last();
        let last = last.map_or(0, |signed| signed.bundle().rank().sequence);
        if document.sequence.is_some_and(|newest| newest > last) {
            return Err(malformed(&"it is one page of it, and there are more"));
        }
        Ok(Self {
            bundles,
            statements: document.statements,
        })
    }

    /// What it leads to from the pin.
    pub(crate) fn trust(&self, pin: &Pin) -> Result<Trust, Failure> {
        let mut trust = Trust::new(pin.clone());
        trust.adopt(&self.bundles).map_err(|error| {
            let message = format!("the chain does not lead from the pin: {error}");
            crate::verify::invalid(message)
        })?;
        Ok(trust)
    }

    /// The same, with the operator's statements for guards.
    pub(crate) fn trust_with_statements(
        &self,
        pin: &Pin,
        now_ms: u64,
        output: Output,
    ) -> Result<Trust, Failure> {
        let mut trust = self.trust(pin)?;
        for statement in &self.statements {
            match trust.adopt_statement(statement, now_ms) {
                Ok(_) | Err(StatementError::ForTheCluster | StatementError::Expired { .. }) => {}
                Err(error) => output.note(&format!("a statement is passed over: {error}")),
            }
        }
        Ok(trust)
    }

    /// The document, with bundles after a number only.
    pub(crate) fn document(&self, after: u64) -> ChainDocument {
        let later = self.bundles.iter();
        let later = later.filter(|signed| signed.bundle().rank().sequence > after);
        ChainDocument {
            bundles: later.map(SignedBundle::to_text).collect(),
            statements: self.statements.clone(),
            sequence: None,
        }
    }
}

/// Says it when the newest bundle is of no use any more.
pub(crate) fn note_expiry(output: Output, trust: &Trust, now_ms: u64) {
    let expires_s = trust.bundle().map(|bundle| bundle.terms().expires_at_s);
    if let Some(expires_ms) = expires_s.map(|seconds| seconds.saturating_mul(1_000))
        && expires_ms <= now_ms
    {
        let moment = times::moment(expires_ms, now_ms);
        output.note(&format!(
            "the newest bundle expired at {moment}: sign another one with `epochctl key sign`"
        ));
    }
}
