//! P5: no late write.

use std::collections::BTreeMap;

use super::{Admission, Violation};

/// What one resource lets through in a scope never goes down, in order of (incarnation, epoch).
///
/// `history` is everything that the resource let through, in the order in which it took effect.
///
/// # Errors
/// The first write or barrier below one before it.
pub fn no_late_write(history: &[Admission]) -> Result<(), Violation> {
    let mut fences: BTreeMap<&str, &Admission> = BTreeMap::new();
    for admission in history {
        let rank = (admission.incarnation, admission.epoch);
        let before = fences.insert(admission.scope.as_str(), admission);
        if let Some(before) = before.filter(|before| (before.incarnation, before.epoch) > rank) {
            return Err(Violation::LateWrite {
                before: Box::new(before.clone()),
                late: Box::new(admission.clone()),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::AdmissionKind;
    use crate::promise::testing::{epoch, incarnation, scope};

    fn admission(name: &str, life: u128, number: u64, kind: AdmissionKind) -> Admission {
        Admission {
            scope: scope(name),
            incarnation: incarnation(life),
            epoch: epoch(number),
            kind,
        }
    }

    #[test]
    fn a_write_below_a_write_or_a_barrier_is_found() {
        use AdmissionKind::{Barrier, Write};
        let good = vec![
            admission("a", 1, 5, Write),
            admission("a", 1, 5, Write),
            admission("b", 1, 3, Write),
            admission("a", 1, 9, Barrier),
            admission("a", 2, 1, Write),
            admission("b", 1, 4, Write),
        ];
        assert_eq!(no_late_write(&good), Ok(()));
        for (at, late) in [
            (1, admission("a", 1, 4, Write)),
            (4, admission("a", 1, 8, Write)),
            (5, admission("a", 1, 99, Write)),
            (6, admission("b", 1, 3, Barrier)),
        ] {
            let mut history = good.clone();
            history.insert(at, late.clone());
            let found = no_late_write(&history);
            assert!(
                matches!(&found, Err(Violation::LateWrite { late: named, .. }) if **named == late),
                "{found:?}"
            );
        }
    }
}
