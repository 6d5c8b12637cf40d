//! The cluster under test, and how a refusal is judged.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use epoch_core::Reason;
use epoch_proto::{grpc_code, http_status, reason_of};
use epoch_tests::caller::channel;
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::json_client::{Answer, JsonClient};
use tonic::Status;
use tonic::transport::Channel;

/// A node under test, and a session and a grant on it.
pub(crate) struct Setting {
    cluster: Cluster,
    pub(crate) client: JsonClient,
    pub(crate) session: String,
    pub(crate) epoch: u64,
    /// Everything that was not refused as it should be, so that one run shows all of it.
    wrong: Mutex<Vec<String>>,
}

impl Setting {
    pub(crate) async fn new() -> Result<Self> {
        let cluster = Cluster::start().await?;
        let client = cluster.client(cluster.leader().await?)?.clone();
        let session = client.open("tester", "1h").await?;
        let grant = client.acquire("held", &session, 1).await?.ok()?;
        let (epoch, wrong) = (number(&grant, "epoch")?, Mutex::default());
        Ok(Self {
            client,
            session,
            epoch,
            wrong,
            cluster,
        })
    }

    pub(crate) fn channel(&self) -> Result<Channel> {
        channel(self.client.url())
    }

    /// POSTs a body as it is, and checks the refusal.
    pub(crate) async fn refuses(&self, path: &str, body: &[u8], reason: Reason) -> Result<()> {
        let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
        let answer = self
            .client
            .raw("POST", path, Some("application/json"), body.to_vec())
            .await?;
        self.expect(
            &format!("{path} {shown}"),
            &answer,
            http_status(reason),
            Some(reason),
        );
        Ok(())
    }

    pub(crate) fn expect(&self, what: &str, answer: &Answer, status: u16, reason: Option<Reason>) {
        let right = answer.status == status
            && reason.is_none_or(|reason| answer.reason() == Some(reason.as_str()))
            && answer.content_type == "application/problem+json"
            && answer.body["detail"].is_string();
        if !right {
            self.note(format!(
                "{what}: expected {status} {reason:?}, got {answer:?}"
            ));
        }
    }

    /// What a gRPC call was refused with.
    pub(crate) fn check(&self, what: &str, answer: Result<(), Status>, reason: Reason) {
        match answer {
            Err(status)
                if status.code() == grpc_code(reason) && reason_of(&status) == Some(reason) => {}
            other => self.note(format!("{what}: expected {reason}, got {other:?}")),
        }
    }

    pub(crate) fn note(&self, what: String) {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    /// The node that was asked still serves, nobody panicked, and the grant is untouched.
    pub(crate) async fn goes_on(mut self) -> Result<()> {
        self.cluster.unharmed()?;
        let wrong = self
            .wrong
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        let state = self.client.scope("held").await?;
        ensure!(
            state["epoch"] == self.epoch,
            "the grant was touched: {state}"
        );
        let grant = self
            .client
            .acquire("after", &self.session, 1_000_000)
            .await?
            .ok()?;
        ensure!(number(&grant, "epoch")? > 0, "no epoch");
        Ok(())
    }
}
