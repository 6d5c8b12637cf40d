//! Nodes reached in memory, and a lease clock that a test moves: under paused time nothing waits
//! for real, and nothing depends on how fast the machine is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::time::Instant;
use tonic::codegen::http::Uri;

use super::Fake;
use crate::boottime::Clock;
use crate::connector::Connector;
use crate::{Client, Options};

/// What fits in a connection in one direction.
const BUFFER_BYTES: usize = 64 * 1024;

/// A lease clock that goes on with the runtime's, and further when told to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspend(Arc<AtomicU64>);

impl Suspend {
    /// The machine is suspended for so long: timers stand still, and the lease clock does not.
    pub(crate) fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap();
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let began = Instant::now();
        let suspended = Arc::clone(&self.0);
        Clock::given(move || {
            let awake = u64::try_from(began.elapsed().as_millis()).unwrap();
            // Not from zero: a machine has been up for a while.
            1_000_000 + awake + suspended.load(Ordering::Relaxed)
        })
    }
}

/// A client of these nodes for paused time.
pub(crate) fn paused_client(nodes: &[&Fake]) -> Client {
    suspendable_client(nodes, &Suspend::default())
}

/// A client of these nodes on a machine that `suspend` suspends.
pub(crate) fn suspendable_client(nodes: &[&Fake], suspend: &Suspend) -> Client {
    let fakes: Vec<Fake> = nodes.iter().copied().cloned().collect();
    let connector = Connector::new(move |uri: Uri| {
        let mut fakes = fakes.iter();
        let at = uri.authority().map(ToString::to_string);
        let connected = connect(fakes.find(|fake| Some(fake.address.to_string()) == at));
        async move { connected }
    });
    let options = Options {
        clock: suspend.clock(),
        connector: Some(connector),
        ..Options::default()
    };
    let endpoints = nodes
        .iter()
        .map(|node| node.address.to_string().parse().unwrap());
    Client::connect(endpoints, options).unwrap()
}

fn connect(node: Option<&Fake>) -> io::Result<DuplexStream> {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let node = node.ok_or_else(refused)?;
    node.script(|script| script.seen_connects += 1);
    if node.seen(|script| script.down) {
        return Err(refused());
    }
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    node.door.send(Ok(theirs)).map_err(|_closed| refused())?;
    Ok(ours)
}

/// Waits until `holds`, for at most an hour of paused time.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let ends = Instant::now() + Duration::from_secs(3_600);
    while !holds() {
        assert!(Instant::now() < ends, "it never came to that");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
