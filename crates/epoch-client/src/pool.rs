//! The nodes a client knows, and which one it asks next.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::transport;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::options::Options;
use crate::retry::{Verdict, verdict};
use crate::tls::Tls;
use crate::tls_connector::TlsConnector;
use crate::token::Bearer;

/// The metadata in which every answer names the leader.
pub(crate) const LEADER_KEY: &str = "epochd-leader";
/// For how long hints to a node that did not answer are passed over: a dead leader is still named
/// by the others until they have elected the next one, about a second later.
const SHUN: Duration = Duration::from_secs(1);

/// The way to a node; every call on it says who the client is.
pub(crate) type Channel = InterceptedService<transport::Channel, Bearer>;

/// One node, with its connection (made when first needed, and again when broken).
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
}

/// The configured nodes, and the leader that the last answer named.
#[derive(Debug)]
pub(crate) struct Pool {
    configured: Vec<Arc<Node>>,
    options: Options,
    route: Mutex<Route>,
    /// Closed when the runtime has ended that drives the connections.
    runtime: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Route {
    next: usize,
    /// At most one node is remembered beside the configured ones.
    leader: Option<Arc<Node>>,
    shunned: Option<(Endpoint, Instant)>,
}

impl Pool {
    pub(crate) fn new(endpoints: Vec<Endpoint>, options: Options) -> Result<Self, Error> {
        if endpoints.is_empty() {
            return Err(Error::usage(
                "no endpoints were given; name at least one node",
            ));
        }
        let has_tls = options.tls.is_some();
        let endpoints: Vec<_> = endpoints
            .into_iter()
            .map(|endpoint| endpoint.said(has_tls))
            .collect();
        let options = with_tls(&endpoints, options)?;
        let configured = endpoints
            .into_iter()
            .map(|endpoint| node(endpoint, &options).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let route = Mutex::new(Route {
            next: 0,
            leader: None,
            shunned: None,
        });
        Ok(Self {
            configured,
            options,
            route,
            runtime: present(),
        })
    }

    /// The same nodes, reached from the present runtime: connections live in the one that they were
    /// made in.
    pub(crate) fn anew(&self) -> Arc<Self> {
        let again = |node: &Arc<Node>| {
            let channel = channel(&node.endpoint, &self.options).ok()?;
            let endpoint = node.endpoint.clone();
            Some(Arc::new(Node { endpoint, channel }))
        };
        let route = self.route();
        Arc::new(Self {
            configured: self.configured.iter().filter_map(again).collect(),
            options: self.options.clone(),
            route: Mutex::new(Route {
                next: route.next,
                leader: route.leader.as_ref().and_then(again),
                shunned: None,
            }),
            runtime: present(),
        })
    }

    /// Whether the runtime has ended in which the connections were made.
    pub(crate) fn has_ended(&self) -> bool {
        self.runtime.is_closed()
    }

    /// The node to ask next: the leader if known.
    pub(crate) fn pick(&self) -> Arc<Node> {
        let route = self.route();
        match &route.leader {
            Some(leader) => Arc::clone(leader),
            None => Arc::clone(&self.configured[route.next]),
        }
    }

    /// All nodes: those configured, and the leader.
    pub(crate) fn known(&self) -> Vec<Arc<Node>> {
        let mut known = self.configured.clone();
        if let Some(leader) = &self.route().leader
            && known.iter().all(|node| node.endpoint != leader.endpoint)
        {
            known.push(Arc::clone(leader));
        }
        known
    }

    /// `node` did not answer: the next one is asked.
    pub(crate) fn unanswered(&self, node: &Node) {
        let mut route = self.route();
        route.shunned = Some((node.endpoint.clone(), Instant::now()));
        self.pass_on(&mut route, node);
    }

    /// `node` answered that it cannot serve, with `metadata`: the leader it names is asked, or the
    /// next node.
    pub(crate) fn unserved(&self, node: &Node, metadata: &MetadataMap) {
        self.answered(node, metadata);
        // Last: a leader that has fallen silent names itself.
        self.pass_on(&mut self.route(), node);
    }

    /// `node` answered with `metadata`: the leader it names is asked from now on.
    pub(crate) fn answered(&self, node: &Node, metadata: &MetadataMap) {
        let hint = metadata
            .get(LEADER_KEY)
            .and_then(|value| value.to_str().ok());
        let Some(leader) = hint.and_then(|hint| node.endpoint.leader(hint)) else {
            return;
        };
        let mut route = self.route();
        if route
            .leader
            .as_ref()
            .is_some_and(|known| known.endpoint == leader)
        {
            return;
        }
        if let Some((shunned, since)) = &route.shunned
            && *shunned == leader
            && since.elapsed() < SHUN
        {
            return;
        }
        let known = self
            .configured
            .iter()
            .find(|node| node.endpoint == leader)
            .map(Arc::clone);
        match known.map_or_else(|| self::node(leader, &self.options).map(Arc::new), Ok) {
            Ok(leader) => route.leader = Some(leader),
            Err(error) => tracing::debug!(%error, "the leader's address cannot be used"),
        }
    }

    /// What a failed answer of `node` means, with the route set for the next attempt.
    pub(crate) fn judge(&self, node: &Node, status: &Status) -> Verdict {
        let verdict = verdict(status);
        match (epoch_proto::reason_of(status), verdict) {
            (_, Verdict::Refused | Verdict::Failed) => self.answered(node, status.metadata()),
            (Some(_), Verdict::NotDone | Verdict::Unknown) => {
                self.unserved(node, status.metadata());
            }
            (None, Verdict::NotDone | Verdict::Unknown) => self.unanswered(node),
        }
        verdict
    }

    /// The configured endpoints, for messages.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<_> = self
            .configured
            .iter()
            .map(|node| node.endpoint.authority())
            .collect();
        shown.join(", ")
    }

    /// Calls under way may fail after the route was changed by others: only the current choice is
    /// passed over.
    fn pass_on(&self, route: &mut Route, node: &Node) {
        if route
            .leader
            .as_ref()
            .is_some_and(|leader| leader.endpoint == node.endpoint)
        {
            route.leader = None;
        }
        if self.configured[route.next].endpoint == node.endpoint {
            route.next = (route.next + 1) % self.configured.len();
        }
    }

    fn route(&self) -> MutexGuard<'_, Route> {
        // Nothing panics while the lock is held, and every state of the route is usable.
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closed when the present runtime ends.
fn present() -> oneshot::Sender<()> {
    let (sender, receiver) = oneshot::channel();
    // Until the pool is dropped.
    tokio::spawn(receiver);
    sender
}

/// The options, with what they lack for endpoints under TLS.
fn with_tls(endpoints: &[Endpoint], mut options: Options) -> Result<Options, Error> {
    let plain = endpoints.iter().find(|endpoint| !endpoint.is_tls());
    match (&options.tls, plain) {
        (Some(_), Some(plain)) => {
            return Err(Error::usage(format!(
                "{plain} is plaintext, and a CA or a certificate is given: write https://, or \
                 leave these away"
            )));
        }
        (None, _) if endpoints.iter().any(Endpoint::is_tls) => {
            options.tls = Some(Tls::new(None, None)?);
        }
        (Some(_), None) | (None, _) => {}
    }
    Ok(options)
}

fn node(endpoint: Endpoint, options: &Options) -> Result<Node, Error> {
    let channel = channel(&endpoint, options)?;
    Ok(Node { endpoint, channel })
}

fn channel(endpoint: &Endpoint, options: &Options) -> Result<Channel, Error> {
    if options.token.is_some() && !endpoint.is_tls() && !endpoint.is_loopback() {
        return Err(Error::usage(format!(
            "a token is not sent in plaintext to another host: call {} over TLS (https://)",
            endpoint.authority()
        )));
    }
    let unusable =
        |error: &dyn fmt::Display| Error::usage(format!("{endpoint} cannot be used: {error}"));
    // The connector is what makes it TLS, and not the transport's own, which needs features of it.
    let channel = transport::Endpoint::from_shared(format!("http://{}", endpoint.authority()))
        .map_err(|error| unusable(&error))?
        .origin(
            endpoint
                .to_string()
                .parse()
                .map_err(|error| unusable(&error))?,
        )
        .connect_timeout(options.attempt_timeout)
        .http2_keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout);
    let channel = match (&options.connector, &options.tls) {
        (Some(connector), _) => channel.connect_with_connector_lazy(connector.clone()),
        (None, Some(tls)) if endpoint.is_tls() => {
            channel.connect_with_connector_lazy(TlsConnector::new(tls))
        }
        (None, _) => channel.connect_lazy(),
    };
    Ok(InterceptedService::new(
        channel,
        Bearer(options.token.clone()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let endpoints = ["a:1", "b:1", "c:1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        Pool::new(endpoints, Options::default()).unwrap()
    }

    fn hint(text: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(LEADER_KEY, text.parse().unwrap());
        metadata
    }

    fn picked(pool: &Pool) -> String {
        pool.pick().endpoint.authority().to_owned()
    }

    #[tokio::test]
    async fn the_named_leader_is_asked_also_when_it_was_not_configured() {
        let pool = pool();
        pool.answered(&pool.pick(), &hint("c:1"));
        assert_eq!(picked(&pool), "c:1");
        pool.answered(&pool.pick(), &hint("d:1"));
        assert_eq!(picked(&pool), "d:1");
    }

    #[tokio::test]
    async fn a_dead_leader_is_passed_over_until_others_had_time_to_elect() {
        let pool = pool();
        let a = pool.pick();
        pool.answered(&a, &hint("b:1"));
        pool.unanswered(&pool.pick());
        assert_eq!(picked(&pool), "a:1");
        pool.answered(&a, &hint("b:1"));
        assert_eq!(picked(&pool), "a:1");
        // As if that time had passed.
        pool.route().shunned.as_mut().unwrap().1 -= SHUN;
        pool.answered(&a, &hint("b:1"));
        assert_eq!(picked(&pool), "b:1");
    }

    #[tokio::test]
    async fn each_failure_asks_the_next_node_in_turn() {
        let pool = pool();
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(picked(&pool));
            pool.unserved(&pool.pick(), &MetadataMap::new());
        }
        assert_eq!(asked, ["a:1", "b:1", "c:1", "a:1"]);
    }

    #[tokio::test]
    async fn a_node_that_cannot_serve_is_not_asked_again_because_it_names_itself() {
        let pool = pool();
        pool.unserved(&pool.pick(), &hint("a:1"));
        assert_eq!(picked(&pool), "b:1");
    }

    #[tokio::test]
    async fn no_endpoint_is_refused() {
        assert!(Pool::new(Vec::new(), Options::default()).is_err());
    }

    #[tokio::test]
    async fn with_certificates_nothing_goes_out_in_plaintext() {
        let with_tls = |text: &str| {
            let options = Options {
                tls: Some(Tls::new(None, None).unwrap()),
                ..Options::default()
            };
            Pool::new(vec![text.parse().unwrap()], options)
        };
        let pool = with_tls("a:1").unwrap();
        assert!(pool.pick().endpoint.is_tls());
        pool.answered(&pool.pick(), &hint("b:1"));
        assert!(pool.pick().endpoint.is_tls());
        let refused = with_tls("http://a:1").unwrap_err();
        assert!(refused.to_string().contains("https://"), "{refused}");
    }

    #[tokio::test]
    async fn a_token_is_not_sent_in_plaintext_to_another_host() {
        let with_token = |text: &str| {
            let options = Options {
                token: Some("token".parse().unwrap()),
                ..Options::default()
            };
            Pool::new(vec![text.parse().unwrap()], options)
        };
        assert!(with_token("a:1").is_err());
        assert!(with_token("https://a:1").is_ok());
        let pool = with_token("127.0.0.1:1").unwrap();
        pool.answered(&pool.pick(), &hint("a:1"));
        assert_eq!(picked(&pool), "127.0.0.1:1", "a hint does not lead there");
    }
}
