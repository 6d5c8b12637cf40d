//! The one fencing decision. Adapters run it inside the resource's own atomic step.

use std::cmp::Ordering;

use crate::certificate::{Certificate, Grant};
use crate::id::{Epoch, Incarnation, Position};
use crate::intent::{Intent, IntentRecord};
use crate::name::Scope;
use crate::refusal::Refusal;

/// A resource's durable record, per scope, of the highest (incarnation, epoch) it has admitted,
/// and whose it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The cluster's life; compared before the epoch.
    pub incarnation: Incarnation,
    /// The epoch.
    pub epoch: Epoch,
    /// Where that grant stands in the log.
    pub position: Position,
    /// Whose grant; none after the barrier of a holderless certificate.
    pub grant: Option<Grant>,
}

/// One write, as a guard sees it inside its atomic step.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The resource's scope: from the resource, never from the certificate.
    pub scope: &'a Scope,
    /// The fence found; none before the first certificate.
    pub fence: Option<&'a Fence>,
    /// What the caller presented.
    pub certificate: &'a Certificate,
    /// The caller's action, if it names one.
    pub intent: Option<&'a Intent>,
    /// What is recorded under that intent id.
    pub recorded: Option<&'a IntentRecord>,
    /// The revision the caller's change is based on, if it says so.
    pub expected_revision: Option<u64>,
    /// The content's revision.
    pub revision: u64,
}

/// What to do with a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Do it, and record the intent with its outcome.
    Admit,
    /// It took effect before: answer as then, without a second effect.
    Replay(&'a IntentRecord),
    /// Do not.
    Refuse(Refusal),
}

/// The verdict on a write, and what becomes of the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What to do with the write.
    pub verdict: Verdict<'a>,
    /// What to raise the fence to, in the same atomic step, whatever the verdict.
    pub raise: Option<Fence>,
}

impl Decision<'_> {
    fn refuse(refusal: Refusal) -> Self {
        Self {
            verdict: Verdict::Refuse(refusal),
            raise: None,
        }
    }
}

/// What to do with a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    /// Raise the fence to this.
    Raise(Fence),
    /// It stands there already, by the same grant.
    Unchanged,
    /// Leave it.
    Refuse(Refusal),
}

/// Judges one write.
///
/// The order matters. Scope and fence come first: who is below the fence learns nothing of the
/// content but whether its own intent took effect. A replay comes before the revision check, since
/// the first try has moved the revision on. The fence is raised also when the write is then a
/// replay or refused for its intent, its revision or for want of a holder: the higher epoch has
/// been seen, and an older holder's write admitted after that would be a late write.
#[must_use]
pub fn decide<'a>(attempt: &Attempt<'a>) -> Decision<'a> {
    let Attempt {
        scope,
        fence,
        certificate,
        intent,
        recorded,
        expected_revision,
        revision,
    } = *attempt;
    // A record counts only for the intent asked about.
    let recorded = intent.and(recorded);
    let same_payload = |record: &&IntentRecord| intent.is_some_and(|i| i.payload == record.payload);
    let raise = match decide_advance(scope, fence, certificate) {
        Advance::Raise(fence) => Some(fence),
        Advance::Unchanged => None,
        Advance::Refuse(Refusal::Superseded {
            presented,
            fence,
            intent_recorded: _,
        }) => {
            let intent_recorded = recorded.filter(same_payload).is_some();
            return Decision::refuse(Refusal::Superseded {
                presented,
                fence,
                intent_recorded,
            });
        }
        Advance::Refuse(refusal) => return Decision::refuse(refusal),
    };
    if certificate.grant().is_none() {
        return Decision {
            verdict: Verdict::Refuse(Refusal::Holderless),
            raise,
        };
    }
    let verdict = match (recorded, expected_revision) {
        (Some(record), _) if same_payload(&record) => Verdict::Replay(record),
        (Some(_), _) => Verdict::Refuse(Refusal::IntentReused),
        (None, Some(expected)) if expected != revision => {
            Verdict::Refuse(Refusal::RevisionDiffers {
                expected,
                actual: revision,
            })
        }
        (None, _) => Verdict::Admit,
    };
    Decision { verdict, raise }
}

/// Judges a barrier: raising the fence without a write. Good with a holderless certificate too.
#[must_use]
pub fn decide_advance(scope: &Scope, fence: Option<&Fence>, certificate: &Certificate) -> Advance {
    if certificate.scope() != scope {
        return Advance::Refuse(Refusal::ScopeDiffers {
            resource: scope.clone(),
            certificate: certificate.scope().clone(),
        });
    }
    let presented = certificate.fence();
    let Some(fence) = fence else {
        return Advance::Raise(presented.clone());
    };
    match presented.incarnation.cmp(&fence.incarnation) {
        Ordering::Greater => return Advance::Raise(presented.clone()),
        Ordering::Less => {
            return Advance::Refuse(Refusal::IncarnationVoid {
                presented: presented.incarnation,
                fence: fence.incarnation,
            });
        }
        Ordering::Equal => {}
    }
    match presented.epoch.cmp(&fence.epoch) {
        Ordering::Greater => Advance::Raise(presented.clone()),
        Ordering::Less => Advance::Refuse(Refusal::Superseded {
            presented: presented.epoch,
            fence: fence.epoch,
            intent_recorded: false,
        }),
        // Position, holder and grant hash all have to be the same.
        Ordering::Equal if presented == fence => Advance::Unchanged,
        Ordering::Equal => Advance::Refuse(Refusal::Forked {
            epoch: presented.epoch,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, certificate, fence, incarnation};
    use crate::{Holder, IntentId, PayloadDigest, Reason};

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Standing {
        /// No fence yet.
        First,
        LowerEpoch,
        LowerIncarnationHigherEpoch,
        Same,
        SameNumberOtherPosition,
        SameNumberOtherHolder,
        SameNumberOtherHash,
        /// The fence came from a holderless certificate with the presented number.
        SameNumberBurned,
        HigherEpoch,
        HigherIncarnationLowerEpoch,
    }

    const STANDINGS: [Standing; 10] = [
        Standing::First,
        Standing::LowerEpoch,
        Standing::LowerIncarnationHigherEpoch,
        Standing::Same,
        Standing::SameNumberOtherPosition,
        Standing::SameNumberOtherHolder,
        Standing::SameNumberOtherHash,
        Standing::SameNumberBurned,
        Standing::HigherEpoch,
        Standing::HigherIncarnationLowerEpoch,
    ];

    /// The fence that the presented one (incarnation 2, epoch 42) meets in this standing.
    fn met(standing: Standing, presented: &Fence) -> Option<Fence> {
        let mut fence = presented.clone();
        let epoch = |number| Epoch::new(number).unwrap();
        match standing {
            Standing::First => return None,
            Standing::LowerEpoch => fence.epoch = epoch(43),
            Standing::LowerIncarnationHigherEpoch => {
                (fence.incarnation, fence.epoch) = (incarnation(3), epoch(1));
            }
            Standing::Same => {}
            Standing::SameNumberOtherPosition => fence.position.offset += 1,
            Standing::SameNumberOtherHolder => {
                fence.grant.as_mut().unwrap().holder = Holder::parse("other").unwrap();
            }
            Standing::SameNumberOtherHash => fence.grant.as_mut().unwrap().hash.0[0] ^= 1,
            Standing::SameNumberBurned => fence.grant = None,
            Standing::HigherEpoch => fence.epoch = epoch(41),
            Standing::HigherIncarnationLowerEpoch => {
                (fence.incarnation, fence.epoch) = (incarnation(1), epoch(43));
            }
        }
        Some(fence)
    }

    fn presented() -> Fence {
        Fence {
            incarnation: incarnation(2),
            ..fence(42, "writer-b")
        }
    }

    fn intent() -> Intent {
        Intent {
            id: IntentId::parse("i-1").unwrap(),
            payload: PayloadDigest::of(b"payload"),
        }
    }

    /// What is recorded: nothing, the same payload, or another.
    fn records() -> [Option<IntentRecord>; 3] {
        let record = |payload: &[u8]| {
            let payload = PayloadDigest::of(payload);
            Some(IntentRecord {
                payload,
                outcome: b"done".to_vec(),
                revision: 7,
            })
        };
        [None, record(b"payload"), record(b"other")]
    }

    /// Every combination of standing, record and revision, against the rules stated one by one.
    #[test]
    fn every_combination_is_decided_by_the_rules() {
        let certificate = certificate(presented());
        let intent = intent();
        let mut cases = 0;
        for standing in STANDINGS {
            let fence = met(standing, &presented());
            for (kind, recorded) in records().iter().enumerate() {
                for expected_revision in [None, Some(8), Some(9)] {
                    for named in [true, false] {
                        let attempt = Attempt {
                            scope: &testing::scope(),
                            fence: fence.as_ref(),
                            certificate: &certificate,
                            intent: named.then_some(&intent),
                            recorded: recorded.as_ref(),
                            expected_revision,
                            revision: 8,
                        };
                        let kind = if named { kind } else { 0 };
                        let decision = decide(&attempt);
                        assert_eq!(
                            decision.raise,
                            above(standing).then(presented),
                            "{standing:?} {kind} {expected_revision:?}"
                        );
                        check_verdict(standing, kind, expected_revision, decision.verdict);
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 10 * 3 * 3 * 2);
    }

    fn above(standing: Standing) -> bool {
        matches!(
            standing,
            Standing::First | Standing::HigherEpoch | Standing::HigherIncarnationLowerEpoch
        )
    }

    fn check_verdict(standing: Standing, kind: usize, expected: Option<u64>, verdict: Verdict<'_>) {
        let refusal = match verdict {
            Verdict::Admit => {
                assert!(above(standing) || standing == Standing::Same);
                assert!(kind == 0 && expected != Some(9));
                return;
            }
            Verdict::Replay(record) => {
                assert!(above(standing) || standing == Standing::Same);
                assert_eq!(kind, 1);
                assert_eq!(record.outcome, b"done");
                return;
            }
            Verdict::Refuse(refusal) => refusal,
        };
        let reason = match standing {
            Standing::LowerEpoch => {
                let Refusal::Superseded {
                    intent_recorded, ..
                } = refusal
                else {
                    panic!()
                };
                assert_eq!(intent_recorded, kind == 1);
                Reason::EpochSuperseded
            }
            Standing::LowerIncarnationHigherEpoch => Reason::IncarnationVoid,
            Standing::SameNumberOtherPosition
            | Standing::SameNumberOtherHolder
            | Standing::SameNumberOtherHash
            | Standing::SameNumberBurned => Reason::EpochForked,
            Standing::First
            | Standing::Same
            | Standing::HigherEpoch
            | Standing::HigherIncarnationLowerEpoch => {
                if kind == 2 {
                    Reason::IntentReused
                } else {
                    assert_eq!((kind, expected), (0, Some(9)));
                    Reason::RevisionMismatch
                }
            }
        };
        assert_eq!(refusal.reason(), reason, "{standing:?}");
    }

    #[test]
    fn a_barrier_raises_only_what_is_above_and_confirms_the_same_grant() {
        let certificate = certificate(presented());
        for standing in STANDINGS {
            let fence = met(standing, &presented());
            let advance = decide_advance(&testing::scope(), fence.as_ref(), &certificate);
            if above(standing) {
                assert_eq!(advance, Advance::Raise(presented()), "{standing:?}");
            } else if standing == Standing::Same {
                assert_eq!(advance, Advance::Unchanged);
            } else {
                assert!(matches!(advance, Advance::Refuse(_)), "{standing:?}");
            }
        }
    }

    fn attempt<'a>(
        scope: &'a Scope,
        fence: Option<&'a Fence>,
        certificate: &'a Certificate,
    ) -> Attempt<'a> {
        Attempt {
            scope,
            fence,
            certificate,
            intent: None,
            recorded: None,
            expected_revision: None,
            revision: 0,
        }
    }

    #[test]
    fn a_certificate_of_another_scope_is_refused_whatever_its_epoch() {
        let certificate = certificate(presented());
        for other in [
            "reports/Research-note",
            "reports/",
            "reports/research-note/",
            "reports",
        ] {
            let other = Scope::parse(other).unwrap();
            let decision = decide(&attempt(&other, None, &certificate));
            let Verdict::Refuse(refusal) = decision.verdict else {
                panic!("{other}")
            };
            assert_eq!(refusal.reason(), Reason::CertificateInvalid);
            assert_eq!(decision.raise, None);
            let advance = decide_advance(&other, None, &certificate);
            assert!(matches!(
                advance,
                Advance::Refuse(Refusal::ScopeDiffers { .. })
            ));
        }
    }

    #[test]
    fn a_barrier_lets_its_own_grant_write_and_nobody_below() {
        let scope = testing::scope();
        let (old, new) = (certificate(fence(41, "a")), certificate(fence(42, "b")));
        let Advance::Raise(raised) = decide_advance(&scope, Some(old.fence()), &new) else {
            panic!("not raised");
        };
        assert_eq!(
            decide(&attempt(&scope, Some(&raised), &new)).verdict,
            Verdict::Admit
        );
        let late = decide(&attempt(&scope, Some(&raised), &old)).verdict;
        assert!(matches!(late, Verdict::Refuse(Refusal::Superseded { .. })));
    }

    #[test]
    fn after_a_holderless_barrier_nothing_at_its_epoch_writes() {
        let scope = testing::scope();
        let burned = Fence {
            grant: None,
            ..fence(42, "x")
        };
        let holderless = certificate(burned.clone());
        let advance = decide_advance(&scope, Some(&fence(41, "a")), &holderless);
        assert_eq!(advance, Advance::Raise(burned.clone()));
        for holder in ["x", "a"] {
            let same_number = certificate(fence(42, holder));
            let verdict = decide(&attempt(&scope, Some(&burned), &same_number)).verdict;
            assert!(matches!(verdict, Verdict::Refuse(Refusal::Forked { .. })));
        }
        let write = decide(&attempt(&scope, Some(&burned), &holderless));
        assert_eq!(write.verdict, Verdict::Refuse(Refusal::Holderless));
        let next = certificate(fence(43, "c"));
        assert_eq!(
            decide(&attempt(&scope, Some(&burned), &next)).verdict,
            Verdict::Admit
        );
    }

    #[test]
    fn a_holderless_certificate_writes_nowhere_but_still_raises() {
        let scope = testing::scope();
        let burned = Fence {
            grant: None,
            ..fence(42, "x")
        };
        let holderless = certificate(burned.clone());
        for fence in [None, Some(fence(41, "a"))] {
            let decision = decide(&attempt(&scope, fence.as_ref(), &holderless));
            assert_eq!(decision.verdict, Verdict::Refuse(Refusal::Holderless));
            assert_eq!(decision.raise, Some(burned.clone()));
        }
    }
}
