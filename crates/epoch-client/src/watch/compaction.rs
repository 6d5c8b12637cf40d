//! Which nodes have said that the events after a cursor are gone.

use std::sync::Arc;

use tonic::Status;

use crate::endpoint::Endpoint;
use crate::pool::Node;

/// How often a node is asked that does not answer, before the others' word is enough. With the
/// pauses between them that is about half a second for a node that is down.
const TRIES_MAX: usize = 5;

/// A pass over the nodes, begun by one that said that the events are gone. One that has restarted
/// knows only of events since then, and others may still have them all: the cluster has forgotten
/// them once every node that can be reached says so.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    said: Option<Status>,
    /// Those that need not be asked again.
    settled: Vec<Endpoint>,
    /// An entry for each time that a node did not answer, or could not serve.
    unserved: Vec<Endpoint>,
}

impl Compaction {
    /// `node` said so.
    pub(super) fn said(&mut self, node: &Node, status: Status) {
        self.settled.push(node.endpoint.clone());
        self.said = Some(status);
    }

    /// `node` said nothing about it.
    pub(super) fn unserved(&mut self, node: &Node) {
        // Without a pass nobody counts them.
        if self.said.is_some() {
            self.unserved.push(node.endpoint.clone());
            if self.tries(node) >= TRIES_MAX {
                self.settled.push(node.endpoint.clone());
            }
        }
    }

    /// The node to ask next of those `known`, while a pass is under way: the one tried least.
    pub(super) fn next(&self, known: Vec<Arc<Node>>) -> Option<Arc<Node>> {
        self.said.as_ref()?;
        let left = known
            .into_iter()
            .filter(|node| !self.settled.contains(&node.endpoint));
        left.min_by_key(|node| self.tries(node))
    }

    /// What the nodes said, if it has been said.
    pub(super) fn last(&self) -> Option<&Status> {
        self.said.as_ref()
    }

    fn tries(&self, node: &Node) -> usize {
        let tries = self.unserved.iter();
        tries.filter(|tried| **tried == node.endpoint).count()
    }
}
