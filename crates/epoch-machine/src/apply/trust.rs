//! Trust bundles and the operator's statements: their signatures say whether they count.

use std::sync::Arc;

use epoch_core::{Pin, Principal, SignedBundle, Statement, StatementKind};

use super::Applying;
use crate::admin::{AdminRow, KeptStatement, StatementTopic};
use crate::audit::AuditAction;
use crate::outcome::{Outcome, Refusal};
use crate::state::BUNDLES_MAX;

impl Applying<'_> {
    /// `by` is who brought it, where an operator did.
    pub(super) fn put_bundle(
        &mut self,
        by: Option<&Principal>,
        bundle: &Arc<SignedBundle>,
    ) -> Result<Outcome, Refusal> {
        let terms = bundle.bundle().terms();
        let (sequence, by_root) = (terms.sequence, bundle.names_signer(terms.root.id()));
        let came = self.put_bundle_unaudited(bundle, by_root);
        if !by_root {
            return came;
        }
        let target = format!("bundle {sequence}, signed by the root key");
        self.audited(by, AuditAction::BundlePut, &target, came)
    }

    fn put_bundle_unaudited(
        &mut self,
        bundle: &Arc<SignedBundle>,
        by_root: bool,
    ) -> Result<Outcome, Refusal> {
        let state = &mut *self.state;
        let terms = bundle.bundle().terms();
        if (terms.cluster, terms.incarnation) != (state.cluster_id, state.incarnation) {
            return Err(Refusal::BundleInvalid);
        }
        // A retry may come late, when others have followed.
        if state.bundle_of(terms.sequence) == Some(&**bundle) {
            return Ok(Outcome::BundlePut);
        }
        let before = state.bundle().map(|current| current.bundle().clone());
        if !by_root {
            // Whoever has stolen a majority's keys changes nothing here: what they sign is what is
            // due by this state, or does not count.
            let due = state.due_bundle(terms.issued_at_s);
            if due.as_ref() != Some(bundle.bundle()) {
                return Err(Refusal::BundleInvalid);
            }
            if state.bundles_after(0).count() >= BUNDLES_MAX {
                return Err(Refusal::BundleLimit);
            }
        }
        if let Some(current) = &before {
            let fits = bundle.check_successor(current, &current.terms().root);
            fits.map_err(|_untrusted| Refusal::BundleInvalid)?;
        }
        if by_root {
            // Newcomers begin with it: they know no other key than the root.
            let fits = bundle.check_first(&terms.root);
            fits.map_err(|_untrusted| Refusal::BundleInvalid)?;
            // The chain begins anew: what is before it leads nowhere any more.
            let old: Vec<_> = state.bundle_keys().collect();
            for key in old {
                state.rows.remove_admin(&key);
            }
        }
        state.add_admin(AdminRow::Bundle(Arc::clone(bundle)));
        self.settle_offers(before.as_ref(), by_root);
        let kids = before.iter().flat_map(|before| before.keys());
        for kid in kids.map(|key| key.key.id()) {
            if bundle.bundle().find(kid).is_none() {
                self.note_retired(kid);
            }
        }
        Ok(Outcome::BundlePut)
    }

    pub(super) fn put_statement(
        &mut self,
        by: Option<&Principal>,
        text: &Arc<str>,
    ) -> Result<Outcome, Refusal> {
        let verified = self.statement(text);
        let target = match verified.as_ref().map(Statement::kind) {
            Ok(StatementKind::Clock) => "clock".to_owned(),
            Ok(StatementKind::MaxFuture { seconds }) => format!("max_future of {seconds} s"),
            Err(_) => "a statement".to_owned(),
        };
        let came = self.put_statement_unaudited(by, verified, text);
        self.audited(by, AuditAction::StatementPut, &target, came)
    }

    fn put_statement_unaudited(
        &mut self,
        by: Option<&Principal>,
        verified: Result<Statement, Refusal>,
        text: &Arc<str>,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let statement = verified?;
        let topic = StatementTopic::from(statement.kind());
        let issued_at_s = statement.validity().issued_at_s;
        let kept = self.state.kept_statement(topic);
        if kept.is_some_and(|kept| kept.issued_at_s > issued_at_s) {
            return Err(Refusal::StatementOlder);
        }
        self.state.add_admin(AdminRow::Statement(KeptStatement {
            topic,
            issued_at_s,
            text: Arc::clone(text),
        }));
        Ok(Outcome::StatementPut)
    }

    fn statement(&self, text: &str) -> Result<Statement, Refusal> {
        let bundle = self.state.bundle().ok_or(Refusal::StatementInvalid)?;
        let pin = Pin {
            cluster: self.state.cluster_id,
            root: bundle.bundle().terms().root.clone(),
        };
        Statement::verify(text, &pin, self.state.now_ms)
            .map_err(|_invalid| Refusal::StatementInvalid)
    }
}
