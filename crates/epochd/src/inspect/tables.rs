//! What was found in a data folder, as tables.

use comfy_table::{Table, presets};

use super::{Log, Report, Summary};

impl Report {
    /// As tables.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut parts = vec![self.node_table().to_string()];
        if let Some(log) = &self.log {
            parts.push(log.table().to_string());
            parts.push(log.segments_table().to_string());
        }
        parts.push(self.states_table().to_string());
        parts.extend(self.notes.iter().map(|note| format!("note: {note}")));
        if self.is_sound() {
            parts.push("no damage".to_owned());
        } else {
            let lines = self.damage.iter().map(|what| format!("damage: {what}"));
            parts.extend(lines);
        }
        parts.join("\n")
    }

    fn node_table(&self) -> Table {
        let mut table = table(&["NODE", "CLUSTER", "INCARNATION"]);
        table.add_row([
            or_none(self.node.as_ref()),
            or_none(self.cluster_id.as_ref()),
            or_none(self.incarnation.as_ref()),
        ]);
        table
    }

    fn states_table(&self) -> Table {
        let mut table = table(&[
            "STATE", "INDEX", "HASH", "SESSIONS", "GRANTS", "ROWS", "BYTES",
        ]);
        let mut add = |name: &str, summary: &Summary, bytes: String| {
            table.add_row([
                name.to_owned(),
                summary.index.to_string(),
                summary.hash.clone(),
                summary.sessions.to_string(),
                summary.grants.to_string(),
                summary.scope_rows.to_string(),
                bytes,
            ]);
        };
        for stored in self.snapshots.iter().chain(&self.checkpoint) {
            add(&stored.file, &stored.summary, stored.bytes.to_string());
        }
        if let Some(summary) = &self.state {
            add("with the log", summary, String::new());
        }
        table
    }
}

impl Log {
    fn table(&self) -> Table {
        let mut table = table(&[
            "FIRST",
            "LAST",
            "PURGED",
            "COMMITTED",
            "VOTE",
            "SYNCED",
            "TORN",
        ]);
        table.add_row([
            or_none(self.first_index.as_ref()),
            or_none(self.last_index.as_ref()),
            or_none(self.purged.as_ref()),
            or_none(self.committed.as_ref()),
            or_none(self.vote.as_ref()),
            or_none(self.synced_frame.as_ref()),
            self.torn_bytes.to_string(),
        ]);
        table
    }

    fn segments_table(&self) -> Table {
        let mut table = table(&["SEGMENT", "BYTES", "FRAMES", "ENTRIES"]);
        for segment in &self.segments {
            let entries = match (segment.first_index, segment.last_index) {
                (Some(first), Some(last)) => format!("{first} to {last}"),
                _ => "-".to_owned(),
            };
            let frames = format!("{} to {}", segment.first_frame, segment.last_frame);
            let bytes = segment.bytes.to_string();
            table.add_row([segment.file.clone(), bytes, frames, entries]);
        }
        table
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    table
}

fn or_none(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}
