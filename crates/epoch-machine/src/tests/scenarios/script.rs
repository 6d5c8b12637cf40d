//! Runs a script, and writes it anew with what came of each line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use epoch_core::{ClusterId, Holder, Incarnation};
use uuid::Uuid;

use super::language::{Line, Names, number, scope, verb};
use super::trust;
use crate::apply::apply;
use crate::command::{Batch, Command, Entry, Leadership, SessionKey};
use crate::event::Event;
use crate::outcome::{Applied, Outcome};
use crate::promise::{consistent, first_come_first_served};
use crate::state::{SessionItem, State};
use crate::tests::keys::newcomers_believe;
use crate::tests::load::reloaded;
use crate::tests::text::{Text, seconds};
use crate::tests::told::Told;
use crate::tests::trusted::Trusted;

type Result<T> = std::result::Result<T, String>;

pub(super) struct Script {
    state: State,
    replica: State,
    leadership: Leadership,
    index: u64,
    wall_ms: u64,
    names: Names,
    text: Text,
    told: Told,
    trusted: Trusted,
    events: Vec<Event>,
    /// All that was done, in order.
    pub(super) done: Vec<(Command, Outcome)>,
}

impl Default for Script {
    fn default() -> Self {
        let state = State::new(
            ClusterId(Uuid::from_u128(1)),
            Incarnation(Uuid::from_u128(2)),
            0,
        );
        Self {
            replica: state.clone(),
            state,
            leadership: Leadership { term: 1, node: 1 },
            index: 0,
            wall_ms: 0,
            names: Names::default(),
            text: Text::default(),
            told: Told::default(),
            trusted: Trusted::default(),
            events: Vec::new(),
            done: Vec::new(),
        }
    }
}

impl Script {
    /// The script with what came of it: indented lines are what came, all others are kept.
    pub(super) fn run(&mut self, script: &str) -> Result<String> {
        let mut out = String::new();
        let lines: Vec<&str> = script
            .lines()
            .filter(|line| !line.starts_with(' '))
            .collect();
        let mut at = 0;
        while let Some(first) = lines.get(at) {
            let more = lines[at + 1..].iter();
            let more = more.take_while(|line| line.starts_with("& ")).count();
            let group = &lines[at..=at + more];
            at += group.len();
            if first.is_empty() || first.starts_with('#') {
                out += first;
                out.push('\n');
                continue;
            }
            let came = self.group(group);
            out += &came.map_err(|why| format!("{first}: {why}"))?;
        }
        first_come_first_served(&self.events).map_err(|violation| violation.to_string())?;
        Ok(out)
    }

    fn group(&mut self, group: &[&str]) -> Result<String> {
        let first = group[0];
        if let Some(text) = first.strip_prefix("repeat ") {
            return Ok(format!("{first}\n{}", self.repeat(text)?));
        }
        if let Some(text) = first.strip_prefix("foreign ") {
            return Ok(format!("{first}\n{}", self.foreign(text)?));
        }
        let line = Line::parse(first)?;
        if let Some(came) = self.no_command(line)? {
            return Ok(format!("{first}\n{came}"));
        }
        let texts = group.iter().map(|text| text.trim_start_matches("& "));
        let commands: Vec<_> = texts
            .clone()
            .map(|text| self.command(text))
            .collect::<Result<_>>()?;
        let applied = self.apply(commands)?;
        let mut out = String::new();
        for ((line, text), outcome) in group.iter().zip(texts).zip(&applied.outcomes) {
            self.opened(text, outcome)?;
            let _ = write!(out, "{line}\n  {}\n", self.text.outcome(outcome));
        }
        for event in &applied.events {
            let _ = writeln!(out, "  * {}", self.text.event(event));
        }
        Ok(out)
    }

    fn command(&mut self, text: &str) -> Result<Command> {
        let line = Line::parse(text)?;
        self.names.command(line, &self.state, self.wall_ms)
    }

    /// From here on, the name is this session's.
    fn opened(&mut self, text: &str, outcome: &Outcome) -> Result<()> {
        if let Outcome::Opened { session, .. } = outcome {
            let name = Line::parse(text)?.word("a name")?.to_owned();
            let key = SessionKey::from(session);
            self.text.sessions.entry(key).or_insert(name.clone());
            self.names.sessions.insert(name, *session);
        }
        Ok(())
    }

    fn apply(&mut self, commands: Vec<Command>) -> Result<Applied> {
        self.index += 1;
        let entry = Entry {
            leadership: self.leadership,
            index: self.index,
        };
        let batch = Batch {
            leadership: self.leadership,
            wall_ms: self.wall_ms,
            commands,
        };
        let applied = apply(&mut self.state, entry, &batch).map_err(|no| no.to_string())?;
        self.on_replica(entry, &batch, &applied)?;
        consistent(&self.state).map_err(|violation| violation.to_string())?;
        newcomers_believe(&self.state)?;
        self.trusted
            .follow(&self.state, &batch, &applied.outcomes)?;
        self.told
            .follow(entry, self.state.now_ms(), &applied.events)?;
        if self.told != Told::of(&self.state) {
            return Err("events do not tell what happened".to_owned());
        }
        self.events.extend(applied.events.iter().cloned());
        let outcomes = applied.outcomes.iter().cloned();
        self.done.extend(batch.commands.into_iter().zip(outcomes));
        Ok(applied)
    }

    /// A second node, whose state comes from a snapshot before each entry, comes to the same.
    fn on_replica(&mut self, entry: Entry, batch: &Batch, expected: &Applied) -> Result<()> {
        self.replica = reloaded(&self.replica).map_err(|error| error.to_string())?;
        let applied = apply(&mut self.replica, entry, batch).map_err(|no| no.to_string())?;
        if applied == *expected
            && self.replica == self.state
            && self.replica.hash() == self.state.hash()
        {
            Ok(())
        } else {
            Err("another node came to something else".to_owned())
        }
    }

    /// `FROM..TO COMMAND`, with `{n}` in it: all in one entry, and shown as how many came to what.
    fn repeat(&mut self, text: &str) -> Result<String> {
        let (range, template) = text.split_once(' ').ok_or("repeat what?")?;
        let (from, to) = range.split_once("..").ok_or("how often?")?;
        let texts: Vec<String> = (number(from)?..=number(to)?)
            .map(|n| template.replace("{n}", &n.to_string()))
            .collect();
        let commands = texts
            .iter()
            .map(|text| self.command(text))
            .collect::<Result<_>>()?;
        let applied = self.apply(commands)?;
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for (text, outcome) in texts.iter().zip(&applied.outcomes) {
            self.opened(text, outcome)?;
            let shown = self.text.outcome(outcome);
            let kind = shown.split_once(": ").map_or(&*shown, |(kind, _)| kind);
            *times.entry(kind.to_owned()).or_default() += 1;
        }
        let lines = times
            .iter()
            .map(|(kind, times)| format!("  {times} x {kind}\n"));
        Ok(lines.collect())
    }

    /// A command that was queued under another leadership.
    fn foreign(&mut self, text: &str) -> Result<String> {
        let command = self.command(text)?;
        let before = self.state.clone();
        self.index += 1;
        let entry = Entry {
            leadership: self.leadership,
            index: self.index,
        };
        let batch = Batch {
            leadership: Leadership { term: 0, node: 9 },
            wall_ms: self.wall_ms,
            commands: vec![command],
        };
        match apply(&mut self.state, entry, &batch) {
            Err(foreign) if self.state == before => Ok(format!("  {foreign}\n")),
            other => Err(format!("{other:?}")),
        }
    }

    /// What is no command: the time, the leader, and what anyone may ask.
    fn no_command(&mut self, mut line: Line<'_>) -> Result<Option<String>> {
        let came = match line.verb {
            "at" => {
                self.wall_ms = number(line.word("a time")?)?;
                String::new()
            }
            "leader" => {
                self.leadership = Leadership {
                    term: number(line.optional("term").ok_or("of which term?")?)?,
                    node: number(line.optional("node").ok_or("which node?")?)?,
                };
                String::new()
            }
            "nothing" => {
                self.apply(Vec::new())?;
                String::new()
            }
            "counts" => {
                let counts = self.state.counts();
                format!(
                    "  sessions {}, grants {}, waits {}, rows {}, spent ids {}, records {}\n",
                    counts.sessions,
                    counts.grants,
                    counts.waits,
                    counts.rows,
                    counts.spent,
                    counts.records
                )
            }
            "list" => {
                let holder = line.optional("holder").map(Holder::parse).transpose();
                let holder = holder.map_err(|error| error.to_string())?;
                let prefix = line.optional("prefix").unwrap_or("");
                let page = self.state.list(prefix, holder.as_ref(), None, 100);
                page.scopes.iter().map(|scope| self.scope(scope)).collect()
            }
            "scope" => {
                let scope = scope(line.word("a scope")?)?;
                self.scope(&self.state.scope(&scope, 100))
            }
            "record" => self.record(line.word("a scope")?)?,
            "permissions" | "tokens" | "whose" | "limits" | "audit" | "may" => {
                self.rare(&mut line)?
            }
            "keys" | "bundles" | "due" | "statements" => {
                trust::told(&mut line, &self.state, self.wall_ms)?
            }
            "session" => self.session(line.word("a session")?)?,
            _ => return Ok(None),
        };
        line.end()?;
        Ok(Some(came))
    }

    fn scope(&self, state: &crate::state::ScopeState) -> String {
        let name_of = |hash| {
            let name = self.state.session_by_hash(&hash);
            name.map_or("nobody".to_owned(), |key| self.text.session(key))
        };
        let mut out = format!("  {}: ", state.scope);
        match &state.held {
            Some(held) => {
                let epoch = self.text.epoch(held.epoch);
                let _ = write!(out, "{epoch} {} ({})", name_of(held.session), held.holder);
                if !held.metadata.as_str().is_empty() {
                    let _ = write!(out, " {:?}", held.metadata.as_str());
                }
            }
            None if state.delayed => out += "delayed",
            None => out += "free",
        }
        if state.waiting > 0 {
            let _ = write!(out, ", waiting {}", state.waiting);
        }
        for wait in &state.queue {
            let _ = write!(out, " {}", name_of(wait.session));
        }
        out + "\n"
    }

    /// What the rare rows say.
    fn rare(&self, line: &mut Line<'_>) -> Result<String> {
        let none = || "  none\n".to_owned();
        let mut out = String::new();
        match line.verb {
            "permissions" => {
                for its in self.state.permissions(None, 1_000).permissions {
                    let _ = writeln!(
                        out,
                        "  {}: {} on {:?}",
                        its.principal, its.verbs, its.prefix
                    );
                }
            }
            "tokens" => {
                for token in self.state.tokens(&line.principal()?) {
                    let expires = token
                        .expires_ms
                        .map_or(String::new(), |ms| format!(", until {ms}"));
                    let _ = writeln!(out, "  {} since {}{expires}", token.label, token.created_ms);
                }
            }
            "whose" => {
                let now_ms = number(line.optional("at").ok_or("at what time?")?)?;
                let whose = self.state.principal_of_token(&line.token()?, now_ms);
                let _ = whose.map(|principal| writeln!(out, "  {principal}"));
            }
            "limits" => {
                let principal = line.principal()?;
                let (limits, usage) = (self.state.limits(&principal), self.state.usage(&principal));
                let _ = writeln!(out, "  {limits:?}\n  {usage:?}");
            }
            "audit" => {
                for record in self.state.audit(None, 1_000).records.into_iter().rev() {
                    let by = record.principal.as_ref().map_or("nobody", |by| by.as_str());
                    let refused = record
                        .refused
                        .map_or(String::new(), |why| format!(": {why}"));
                    let _ = writeln!(
                        out,
                        "  {} at {}, index {}: {by} {} {}{refused}",
                        record.number,
                        record.time_ms,
                        record.index,
                        record.action.as_str(),
                        record.target.as_str(),
                    );
                }
            }
            _ => {
                let who = line.principal()?;
                let verb = verb(line.word("a verb")?)?;
                let may = self
                    .state
                    .allows(Some(&who), verb, &scope(line.word("a scope")?)?);
                out += if may { "  yes\n" } else { "  no\n" };
            }
        }
        Ok(if out.is_empty() { none() } else { out })
    }

    fn record(&self, name: &str) -> Result<String> {
        let Some(record) = self.state.record(&scope(name)?) else {
            return Ok("  none\n".to_owned());
        };
        let value = record.value.as_ref();
        let value = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let shown = match value {
            Some(long) if long.len() > 40 => format!("{} bytes", long.len()),
            Some(short) => format!("{short:?}"),
            None => "removed".to_owned(),
        };
        let (revision, epoch) = (
            self.text.stamp(record.revision),
            self.text.epoch(record.epoch),
        );
        let intents = record.intents.len();
        Ok(format!(
            "  {shown} revision {revision} by {epoch}, intents {intents}\n"
        ))
    }

    fn session(&self, name: &str) -> Result<String> {
        let id = self.names.session(name)?;
        let (Some(session), Some(page)) = (
            self.state.session(&id),
            self.state.session_page(&id, None, 100),
        ) else {
            return Ok("  gone\n".to_owned());
        };
        let stall = session.stall_limit;
        let stall = stall.map_or(String::new(), |ms| {
            format!(", may stall {}", seconds(ms.ms()))
        });
        let mut out = format!(
            "  {}, ttl {}{stall}\n",
            session.holder,
            seconds(session.ttl.ms())
        );
        for item in &page.items {
            let _ = match item {
                SessionItem::Grant(grant) => writeln!(out, "  grant {}", self.text.grant(grant)),
                SessionItem::Wait {
                    scope,
                    request_id,
                    ahead,
                } => writeln!(out, "  waits for {scope} id={request_id}, {ahead} ahead"),
            };
        }
        Ok(out)
    }
}
