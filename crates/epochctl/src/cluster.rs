//! `status`.

use epoch_client::Client;

use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs, rows};

pub(crate) async fn status(client: &Client, output: Output) -> Result<(), Failure> {
    let status = client.status().await?;
    output.result(&status, || {
        let head = pairs([
            ("cluster", status.cluster_id.clone()),
            ("incarnation", status.incarnation.clone()),
            ("term", status.term.to_string()),
            ("leader", or_dash(status.leader.as_ref())),
            ("answered by", status.node.to_string()),
            ("applied", status.applied.to_string()),
        ]);
        let row = |node: &epoch_proto::v1::Node| {
            let [client, peer, admin] = [&node.client, &node.peer, &node.admin].map(Clone::clone);
            [node.id.to_string(), node.role.clone(), client, peer, admin]
        };
        let nodes = rows(
            ["NODE", "ROLE", "CLIENT", "PEER", "ADMIN"],
            status.nodes.iter().map(row),
        );
        format!("{head}\n\n{nodes}")
    })
}
