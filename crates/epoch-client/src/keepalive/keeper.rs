//! The way to the background task, and its start.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use epoch_core::SessionId;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;

use super::Hub;
use crate::client::Client;
use crate::session::{Loss, Shared};

/// The thread's name, of 15 bytes at most.
const THREAD_NAME: &str = "epoch-keepalive";

/// The way to the background task of a client.
#[derive(Debug, Clone)]
pub(crate) struct Keeper(mpsc::UnboundedSender<Command>);

#[derive(Debug)]
pub(super) enum Command {
    Keep(Arc<Shared>),
    Forget(SessionId),
    Wake(SessionId),
}

impl Keeper {
    pub(crate) fn keep(&self, shared: &Arc<Shared>) {
        self.send(Command::Keep(Arc::clone(shared)));
    }

    pub(crate) fn forget(&self, id: SessionId) {
        self.send(Command::Forget(id));
    }

    /// Something of a session may be due earlier than before.
    pub(crate) fn wake(&self, id: SessionId) {
        self.send(Command::Wake(id));
    }

    fn send(&self, command: Command) {
        // The task is gone with its runtime.
        if let Err(SendError(Command::Keep(shared))) = self.0.send(command) {
            shared.lose(Loss::Lapsed);
        }
    }
}

/// Starts the background task when the first session is opened, and again when it has ended.
#[derive(Debug, Default)]
pub(crate) struct KeeperSlot(Mutex<Option<Keeper>>);

impl KeeperSlot {
    pub(crate) fn keeper(&self, client: &Client) -> Keeper {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(keeper) if !keeper.0.is_closed() => keeper.clone(),
            Some(_) | None => {
                // Bounded by the sessions: a few commands for each.
                let (sender, commands) = mpsc::unbounded_channel();
                start(client, commands);
                let keeper = Keeper(sender);
                *slot = Some(keeper.clone());
                keeper
            }
        }
    }
}

/// Starts the background task: on a thread with a runtime of its own. In the caller's runtime it
/// would stand still whenever the thread is blocked that waits for the connections and timers of
/// all others. Connections of a test's own making stay in the runtime that made them.
fn start(client: &Client, commands: mpsc::UnboundedReceiver<Command>) {
    let (pool, options) = (client.pool(), client.options().clone());
    if options.connector.is_some() {
        tokio::spawn(Hub::new(options, pool, commands).run());
        return;
    }
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                // With connections of its own, and what has been learnt about the leader.
                Hub::new(options, pool.anew(), commands).run().await;
            }),
            Err(error) => {
                tracing::error!(%error, "no runtime for keepalives: sessions are lost");
                drop(Hub::new(options, pool, commands));
            }
        }
    };
    if let Err(error) = thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(run)
    {
        tracing::error!(%error, "no thread for keepalives: sessions are lost");
    }
}
