//! The layout is the architecture: which crate may know which.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate's level: it may depend on lower ones only.
const LEVELS: &[(&str, u32)] = &[
    ("epoch-core", 0),
    ("epoch-machine", 1),
    ("epoch-proto", 1),
    ("epoch-store", 2),
    ("epoch-guard", 2),
    ("epoch-client", 2),
    ("epochd", 3),
    ("epoch-gateway", 3),
    ("epoch-python", 3),
    ("epoch-lab", 4),
    ("epochctl", 5),
    ("epoch-tests", 6),
    ("epoch-fuzz", 6),
];

/// Who may depend on a crate directly: everyone else goes through those.
const WALLS: &[(&str, &[&str])] = &[
    ("openraft", &["epochd"]),
    ("sled", &["epoch-store"]),
    ("raft-engine", &[]),
    // The log's owner: nobody else opens a log.
    (
        "epoch-store",
        &["epochd", "epoch-lab", "epoch-tests", "epoch-fuzz"],
    ),
];

/// Crates that are a function of their arguments.
const PURE: &[&str] = &["epoch-core", "epoch-machine"];

/// What a pure crate may not reach, not even through others.
const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "hyper",
    "mio",
    "openraft",
    "reqwest",
    "rusqlite",
    "rustix",
    "sled",
    "socket2",
    "tempfile",
    "tokio",
    "tonic",
];

/// What a pure crate may not name itself: a library below it may use them for its own ends.
const IMPURE_DIRECTLY: &[&str] = &["fastrand", "getrandom", "libc", "rand", "time", "chrono"];

/// The dependencies between packages by name; those of the workspace, and all others.
#[derive(Debug, Clone, Default)]
struct Graph {
    members: BTreeSet<String>,
    /// With tests and build scripts.
    all: BTreeMap<String, BTreeSet<String>>,
    /// What the library itself links.
    linked: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of_workspace() -> Result<Self> {
        // For this platform only: the others' packages need not have been downloaded.
        let options = ["--locked", "--offline", "--filter-platform", "host-tuple"];
        let metadata = MetadataCommand::new()
            .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
            .other_options(options.map(str::to_owned))
            .exec()?;
        let mut graph = Self::default();
        for package in metadata.workspace_packages() {
            graph.members.insert(package.name.to_string());
        }
        for node in &metadata
            .resolve
            .as_ref()
            .context("no resolved graph")?
            .nodes
        {
            let from = metadata[&node.id].name.to_string();
            for dependency in &node.deps {
                let to = metadata[&dependency.pkg].name.to_string();
                graph
                    .all
                    .entry(from.clone())
                    .or_default()
                    .insert(to.clone());
                if dependency
                    .dep_kinds
                    .iter()
                    .any(|kind| kind.kind == DependencyKind::Normal)
                {
                    graph.linked.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        Ok(graph)
    }

    fn direct(&self, from: &str) -> impl Iterator<Item = &String> {
        self.all.get(from).into_iter().flatten()
    }

    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(package) = open.pop() {
            for next in self.linked.get(package).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

fn level(name: &str) -> Option<u32> {
    LEVELS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, level)| *level)
}

/// Every place where the graph is not as it should be.
fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for member in &graph.members {
        let Some(own) = level(member) else {
            found.push(format!("{member} has no level: give it one"));
            continue;
        };
        for dependency in graph
            .direct(member)
            .filter(|name| graph.members.contains(*name))
        {
            if level(dependency).is_some_and(|level| level >= own) {
                found.push(format!(
                    "{member} depends on {dependency}, which is not below it"
                ));
            }
        }
        for (behind, allowed) in WALLS {
            let breaks = graph.direct(member).any(|name| name == behind);
            if breaks && !allowed.contains(&member.as_str()) {
                found.push(format!(
                    "{member} depends on {behind}, which is behind a wall"
                ));
            }
        }
        if PURE.contains(&member.as_str()) {
            let reached = graph.reached(member);
            for name in IMPURE.iter().filter(|name| reached.contains(*name)) {
                found.push(format!("{member} is pure, and reaches {name}"));
            }
            let linked = graph.linked.get(member);
            for name in IMPURE_DIRECTLY {
                if linked.is_some_and(|linked| linked.contains(*name)) {
                    found.push(format!("{member} is pure, and names {name}"));
                }
            }
        }
    }
    found
}

#[test]
fn crates_depend_downward_only() -> Result<()> {
    let graph = Graph::of_workspace()?;
    assert!(graph.members.contains("epochd") && graph.members.contains("epoch-tests"));
    assert_eq!(violations(&graph), Vec::<String>::new());
    Ok(())
}

#[test]
fn openraft_and_the_state_machine_are_where_they_belong() -> Result<()> {
    // Were a name above misspelt, its wall would hold nothing back.
    let graph = Graph::of_workspace()?;
    assert!(graph.direct("epochd").any(|name| name == "openraft"));
    assert!(graph.direct("epochd").any(|name| name == "epoch-store"));
    assert!(graph.direct("epochd").any(|name| name == "epoch-machine"));
    Ok(())
}

#[test]
fn each_kind_of_violation_is_found() -> Result<()> {
    let sound = Graph::of_workspace()?;
    let found_with = |from: &str, to: &str| {
        let mut graph = sound.clone();
        graph
            .all
            .entry(from.to_owned())
            .or_default()
            .insert(to.to_owned());
        graph
            .linked
            .entry(from.to_owned())
            .or_default()
            .insert(to.to_owned());
        violations(&graph)
    };
    for (from, to, expected) in [
        ("epoch-core", "epoch-machine", "not below it"),
        ("epoch-machine", "epoch-proto", "not below it"),
        ("epoch-store", "openraft", "behind a wall"),
        ("epochd", "sled", "behind a wall"),
        ("epochctl", "epoch-store", "behind a wall"),
        ("epoch-machine", "tokio", "reaches tokio"),
        ("imbl", "mio", "reaches mio"),
        ("epoch-core", "rand", "names rand"),
    ] {
        let found = found_with(from, to);
        assert!(
            found.iter().any(|text| text.contains(expected)),
            "{from} -> {to}: {found:?}"
        );
    }
    let mut graph = sound.clone();
    graph.members.insert("epoch-extra".to_owned());
    assert_eq!(
        violations(&graph),
        ["epoch-extra has no level: give it one"]
    );
    Ok(())
}
