//! What a session holds, as the cluster sees it.

use epoch_core::{Epoch, Position, RequestId, Scope, SessionHash, SessionId};
use epoch_proto::v1;
use tonic::Code;

use crate::client::Client;
use crate::error::Error;
use crate::session::Session;

/// The most rows a node returns in one page.
const PAGE_ROWS_MAX: u32 = 1_000;

/// A grant of a session, as the cluster lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The scope.
    pub scope: Scope,
    /// The grant's epoch.
    pub epoch: Epoch,
    /// The request id of its acquire; none when it was transferred to the session.
    pub request_id: Option<RequestId>,
    /// Where the grant stands in the log.
    pub position: Position,
    /// The text that is shown with it.
    pub metadata: String,
}

/// A wait of a session in a scope's queue, as the cluster lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The scope.
    pub scope: Scope,
    /// The request id of its acquire.
    pub request_id: RequestId,
    /// Waits that come before it: with 0 it is the next.
    pub ahead: u32,
}

impl Session {
    /// What others are shown in place of the session's id, and name it by in a transfer.
    #[must_use]
    pub fn hash(&self) -> SessionHash {
        self.id().hash()
    }

    /// The grants of this session, as the cluster has them. Of a session that takes and gives
    /// back while they are read, each page is of its own moment.
    ///
    /// # Errors
    /// As for every call; [`crate::ErrorKind::SessionLost`] once the session is lost.
    pub async fn grants(&self) -> Result<Vec<Holding>, Error> {
        Ok(self.holdings().await?.1)
    }

    /// The waits of this session, by request id, and the place of each in its queue. The grants
    /// are read on the way, so that it costs a page for each 1,000 of them.
    ///
    /// # Errors
    /// As for every call; [`crate::ErrorKind::SessionLost`] once the session is lost.
    pub async fn waits(&self) -> Result<Vec<Waiting>, Error> {
        self.check()?;
        let mut waits = Vec::new();
        let reading = pages(self.client(), self.id(), |state| {
            for wait in state.waits {
                waits.push(waiting(&wait).map_err(|what| malformed(&what))?);
            }
            Ok(Next::Page)
        });
        self.until_lost(reading).await?;
        Ok(waits)
    }

    /// The session's holder, and its grants.
    pub(crate) async fn holdings(&self) -> Result<(String, Vec<Holding>), Error> {
        self.check()?;
        self.until_lost(list(self.client(), self.id())).await
    }
}

/// The holder of a session, and all its grants, page by page. A grant that stands all the while is
/// on one of them.
pub(crate) async fn list(
    client: &Client,
    session: SessionId,
) -> Result<(String, Vec<Holding>), Error> {
    let mut holdings = Vec::new();
    let mut holder = String::new();
    let reading = pages(client, session, |state| {
        // After the first wait there are no more grants.
        let next = match state.waits.is_empty() {
            true => Next::Page,
            false => Next::Nothing,
        };
        for granted in state.grants {
            holdings.push(holding(granted).map_err(|what| malformed(&what))?);
        }
        holder = state.holder;
        Ok(next)
    });
    reading.await?;
    Ok((holder, holdings))
}

/// What is wanted after a page.
enum Next {
    Page,
    Nothing,
}

/// Reads a session page by page, until `read` wants no more or there are no more.
async fn pages(
    client: &Client,
    session: SessionId,
    mut read: impl FnMut(v1::SessionState) -> Result<Next, Error>,
) -> Result<(), Error> {
    let mut page = None;
    loop {
        let request = v1::GetSessionRequest {
            session_id: session.to_string(),
            limit: PAGE_ROWS_MAX,
            page: page.clone(),
        };
        let mut state = client.get_session(request).await?;
        let next_page = state.next_page.take();
        // A page without rows has no next.
        let is_last = state.grants.is_empty() && state.waits.is_empty();
        if matches!(read(state)?, Next::Nothing) || is_last || next_page.is_none() {
            return Ok(());
        }
        if next_page == page {
            // It would be asked for for ever.
            return Err(malformed("its next page is the same one"));
        }
        page = next_page;
    }
}

fn waiting(wait: &v1::SessionWait) -> Result<Waiting, String> {
    Ok(Waiting {
        scope: wait.scope.parse().map_err(|error| format!("{error}"))?,
        request_id: RequestId::new(wait.request_id).map_err(|error| error.to_string())?,
        ahead: wait.ahead,
    })
}

fn holding(granted: v1::SessionGrant) -> Result<Holding, String> {
    let position = granted.position.ok_or("a grant has no position")?;
    let request_id = match granted.request_id {
        0 => None,
        id => Some(RequestId::new(id).map_err(|error| error.to_string())?),
    };
    Ok(Holding {
        scope: granted.scope.parse().map_err(|error| format!("{error}"))?,
        epoch: Epoch::new(granted.epoch).map_err(|error| error.to_string())?,
        request_id,
        position: Position {
            group: position.group,
            term: position.term,
            leader: position.leader,
            index: position.index,
            offset: position.offset,
        },
        metadata: granted.metadata,
    })
}

fn malformed(what: &str) -> Error {
    let message = format!("the node's answer about the session is malformed: {what}");
    Error::protocol(Code::Internal, message)
}
