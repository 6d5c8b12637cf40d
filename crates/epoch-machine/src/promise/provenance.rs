//! P4: provenance, as far as the log goes; that a certificate says the same is for those who
//! verify it.

use std::collections::{BTreeMap, BTreeSet};

use super::{AppliedEntry, Committed, Violation};
use crate::command::Leadership;

/// Each grant's position names an entry that was applied, the leadership that wrote it and a
/// command of its batch, and no two grants of one scope name the same. (One command can hand over
/// several scopes: the end of a session does.)
///
/// # Errors
/// The first grant that names another place than its own.
pub fn provenance(grants: &[Committed], log: &[AppliedEntry]) -> Result<(), Violation> {
    let entries: BTreeSet<(u64, Leadership, u32)> = log
        .iter()
        .map(|applied| {
            (
                applied.entry.index,
                applied.entry.leadership,
                applied.commands,
            )
        })
        .collect();
    let mut places = BTreeMap::new();
    for grant in grants {
        let position = grant.position;
        let leadership = Leadership {
            term: position.term,
            node: position.leader,
        };
        let from = (
            position.index,
            leadership,
            position.offset.saturating_add(1),
        );
        let to = (position.index, leadership, u32::MAX);
        if entries.range(from..=to).next().is_none() {
            return Err(Violation::NoSuchPosition {
                grant: Box::new(grant.clone()),
            });
        }
        if let Some(first) = places.insert((grant.incarnation, position, &grant.scope), grant)
            && first != grant
        {
            return Err(Violation::SharedPosition {
                first: Box::new(first.clone()),
                second: Box::new(grant.clone()),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Entry;
    use crate::promise::testing::committed;

    #[test]
    fn a_position_that_is_not_the_grants_own_is_found() {
        let leadership = Leadership { term: 1, node: 1 };
        let log = [5, 6].map(|index| AppliedEntry {
            entry: Entry { leadership, index },
            commands: 2,
        });
        let good = [
            committed("a", 1, 5, 0),
            committed("a", 2, 5, 1),
            committed("b", 1, 6, 0),
        ];
        assert_eq!(provenance(&good, &log), Ok(()));

        let other_leader = {
            let mut grant = committed("c", 1, 6, 1);
            grant.position.leader = 2;
            grant
        };
        for bad in [
            committed("c", 1, 7, 0),
            committed("c", 1, 6, 2),
            other_leader,
        ] {
            let found = provenance(&[good[0].clone(), bad.clone()], &log);
            assert_eq!(
                found,
                Err(Violation::NoSuchPosition {
                    grant: Box::new(bad)
                })
            );
        }
        let elsewhere = [good[0].clone(), committed("c", 1, 5, 0)];
        assert_eq!(provenance(&elsewhere, &log), Ok(()));
        let shared = [good[0].clone(), committed("a", 3, 5, 0)];
        assert!(matches!(
            provenance(&shared, &log),
            Err(Violation::SharedPosition { .. })
        ));
    }
}
