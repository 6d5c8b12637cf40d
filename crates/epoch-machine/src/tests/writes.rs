//! What records must be, by the answers alone.

use std::collections::{BTreeMap, BTreeSet};

use epoch_core::{Epoch, Scope};

use crate::command::Command;
use crate::event::{Event, GrantEventKind};
use crate::outcome::Outcome;
use crate::record::{DoneIntent, INTENTS_KEPT, REMOVED_KEPT_MS, Record};
use crate::state::State;

/// Records as their writers know them.
#[derive(Debug, Default)]
pub(super) struct Writes {
    records: BTreeMap<Scope, Record>,
}

impl Writes {
    pub(super) fn of(state: &State) -> Self {
        let rows = state.record_rows();
        Self {
            records: rows.map(|row| (row.scope, row.record)).collect(),
        }
    }

    /// Takes in what an entry did to records. `before` is the state before it.
    pub(super) fn follow(
        &mut self,
        before: &State,
        after: &State,
        done: &[(Command, Outcome)],
        events: &[Event],
    ) -> Result<(), String> {
        let kept = |record: &Record| {
            let forgotten = after.now_ms().saturating_sub(REMOVED_KEPT_MS) << 10;
            record.value.is_some() || record.revision > forgotten
        };
        self.records.retain(|_, record| kept(record));
        let granted: BTreeSet<(&str, Epoch)> = events
            .iter()
            .filter_map(|event| match event {
                Event::Grant(grant) if grant.kind != GrantEventKind::Revoked => {
                    Some((&*grant.scope, grant.epoch))
                }
                _ => None,
            })
            .collect();
        for (command, outcome) in done {
            let Command::WriteRecord { scope, epoch, .. } = command else {
                continue;
            };
            let Outcome::RecordWritten { .. } = outcome else {
                continue;
            };
            let held = before.scope(scope, 0).held.map(|held| held.epoch);
            if held != Some(*epoch) && !granted.contains(&(scope.as_str(), *epoch)) {
                return Err(format!("the grant was not current: {command:?}"));
            }
            self.write(command, outcome)
                .ok_or_else(|| format!("{command:?} cannot have come to {outcome:?}"))?;
        }
        if self.records == Self::of(after).records {
            Ok(())
        } else {
            Err(format!("they should be {:?}", self.records))
        }
    }

    /// `None` when the write cannot have had this outcome.
    fn write(&mut self, command: &Command, outcome: &Outcome) -> Option<()> {
        let (
            Command::WriteRecord {
                scope,
                epoch,
                value,
                expected_revision,
                intent,
                ..
            },
            Outcome::RecordWritten {
                revision,
                had_effect,
                replayed,
            },
        ) = (command, outcome)
        else {
            return None;
        };
        let old = self.records.get(scope);
        let mut intents: Vec<DoneIntent> =
            old.map_or(Vec::new(), |old| old.intents.iter().copied().collect());
        let known =
            intent.and_then(|intent| intents.iter().find(|done| done.intent.id == intent.id));
        if *replayed {
            let known = known?;
            let same = DoneIntent {
                intent: (*intent)?,
                revision: *revision,
                had_effect: *had_effect,
            };
            return (*known == same).then_some(());
        }
        let current = old.map_or(0, |old| if old.value.is_some() { old.revision } else { 0 });
        let fits = known.is_none()
            && expected_revision.is_none_or(|expected| expected == current)
            && *had_effect == (value.is_some() || current > 0);
        if !fits {
            return None;
        }
        if !had_effect && intent.is_none() {
            return Some(());
        }
        let rises = old.is_none_or(|old| *revision > old.revision);
        intents.extend(intent.map(|intent| DoneIntent {
            intent,
            revision: *revision,
            had_effect: *had_effect,
        }));
        let over = intents.len().saturating_sub(INTENTS_KEPT);
        let record = Record {
            revision: *revision,
            value: value.clone(),
            epoch: *epoch,
            intents: intents.split_off(over).into(),
        };
        self.records.insert(scope.clone(), record);
        rises.then_some(())
    }
}
