//! What a node counts. One registry a node, so that three nodes in one process stay apart.

use epoch_core::{NodeId, Reason};
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Flush times from 50 µs to 3 s, in seconds.
const FLUSH_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 0.6, 3.0,
];
/// Batch sizes, in commands.
const BATCH_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_024.0];

const METADATA: Metadata<'static> = Metadata::new("epochd", Level::INFO, None);

/// The node's metrics, as handles that cost an atomic operation each.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    /// 1 while this node leads and serves.
    pub(crate) is_leader: Gauge,
    /// The Raft term.
    pub(crate) term: Gauge,
    /// The log index applied.
    pub(crate) applied_index: Gauge,
    /// Current grants.
    pub(crate) grants_held: Gauge,
    /// Live sessions.
    pub(crate) sessions: Gauge,
    /// Rows of scopes.
    pub(crate) scope_rows: Gauge,
    /// New grants applied.
    pub(crate) grants: Counter,
    /// Sessions that ran out.
    pub(crate) sessions_expired: Counter,
    /// Commands in a proposed batch.
    pub(crate) batch_commands: Histogram,
    /// Time of one log flush, in seconds.
    pub(crate) flush_seconds: Histogram,
    /// Certificates signed.
    pub(crate) certificates: Counter,
    /// The index of the newest snapshot.
    pub(crate) snapshot_index: Gauge,
    /// The index of the last checkpoint.
    pub(crate) checkpoint_index: Gauge,
    /// The index up to which the log is purged.
    pub(crate) purged_index: Gauge,
    /// 1 when this node's disk was wiped or rolled back.
    pub(crate) disk_lost: Gauge,
    /// Connections that were refused in the TLS handshake, or did not finish it.
    pub(crate) handshakes_failed: Counter,
    /// Connections of clients.
    pub(crate) client_connections: ConnectionMetrics,
    /// Of peers.
    pub(crate) peer_connections: ConnectionMetrics,
    /// Of those who ask for metrics.
    pub(crate) admin_connections: ConnectionMetrics,
    refusals: Vec<(Reason, Counter)>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The registry of `node`.
    #[must_use]
    pub(crate) fn new(node: NodeId) -> Self {
        let builder = PrometheusBuilder::new().add_global_label("node", node.to_string());
        let builder = with_buckets(builder, "epochd_log_flush_seconds", FLUSH_BUCKETS);
        let builder = with_buckets(builder, "epochd_batch_commands", BATCH_BUCKETS);
        let recorder = builder.build_recorder();
        let gauge = |name, help| gauge(&recorder, name, help, Vec::new());
        let counter = |name, help| counter(&recorder, name, help, Vec::new());
        let refusals = Reason::ALL
            .iter()
            .map(|reason| {
                let label = Label::new("reason", reason.as_str());
                let help = "Requests refused, by reason";
                (
                    *reason,
                    self::counter(&recorder, "epochd_refusals_total", help, vec![label]),
                )
            })
            .collect();
        Self {
            handle: recorder.handle(),
            is_leader: gauge("epochd_is_leader", "1 while this node leads and serves"),
            term: gauge("epochd_term", "The Raft term this node is in"),
            applied_index: gauge(
                "epochd_applied_index",
                "The log index this node has applied",
            ),
            grants_held: gauge("epochd_grants_held", "Current grants"),
            sessions: gauge("epochd_sessions", "Live sessions"),
            scope_rows: gauge(
                "epochd_scope_rows",
                "Rows of scopes, held or not yet forgotten",
            ),
            grants: counter("epochd_grants_total", "New grants applied"),
            sessions_expired: counter("epochd_sessions_expired_total", "Sessions that ran out"),
            certificates: counter("epochd_certificates_total", "Certificates signed"),
            handshakes_failed: counter(
                "epochd_tls_handshakes_failed_total",
                "Connections refused in the TLS handshake, or that did not finish it",
            ),
            client_connections: ConnectionMetrics::new(&recorder, "client"),
            peer_connections: ConnectionMetrics::new(&recorder, "peer"),
            admin_connections: ConnectionMetrics::new(&recorder, "admin"),
            snapshot_index: gauge(
                "epochd_snapshot_index",
                "The log index of the newest snapshot",
            ),
            checkpoint_index: gauge(
                "epochd_checkpoint_index",
                "The log index of the last checkpoint, or of the state this process started with",
            ),
            purged_index: gauge("epochd_purged_index", "The log index purged up to"),
            disk_lost: gauge(
                "epochd_disk_lost",
                "1 when this node's disk was wiped or rolled back: it has no say any more",
            ),
            batch_commands: histogram(
                &recorder,
                "epochd_batch_commands",
                "Commands in a proposed batch",
                Unit::Count,
            ),
            flush_seconds: histogram(
                &recorder,
                "epochd_log_flush_seconds",
                "Time of one log flush",
                Unit::Seconds,
            ),
            refusals,
        }
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, reason: Reason) {
        if let Some((_, counter)) = self.refusals.iter().find(|(known, _)| *known == reason) {
            counter.increment(1);
        }
    }

    /// All of it in Prometheus' text format.
    #[must_use]
    pub(crate) fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}

/// What is counted of one listener's connections.
#[derive(Clone)]
pub(crate) struct ConnectionMetrics {
    /// The listener's name.
    pub(crate) listener: &'static str,
    /// Those whose caller is not known yet.
    pub(crate) unproven: Gauge,
    /// Of those, the ones closed for their silence.
    pub(crate) silent: Counter,
    /// And the ones closed to make room.
    pub(crate) displaced: Counter,
    /// New ones that were closed at once, for want of room.
    pub(crate) turned_away: Counter,
}

impl std::fmt::Debug for ConnectionMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionMetrics")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl ConnectionMetrics {
    fn new(recorder: &PrometheusRecorder, listener: &'static str) -> Self {
        let label = || Label::new("listener", listener);
        let closed = |why| {
            let name = "epochd_connections_closed_total";
            let help = "Connections of unknown callers that were closed, by cause";
            counter(
                recorder,
                name,
                help,
                vec![label(), Label::new("cause", why)],
            )
        };
        let help = "Open connections on which no call has been admitted yet";
        Self {
            listener,
            unproven: gauge(recorder, "epochd_connections_unproven", help, vec![label()]),
            silent: closed("silent"),
            displaced: closed("displaced"),
            turned_away: closed("turned_away"),
        }
    }
}

fn with_buckets(builder: PrometheusBuilder, name: &str, buckets: &[f64]) -> PrometheusBuilder {
    use metrics_exporter_prometheus::Matcher;
    match builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets) {
        Ok(builder) => builder,
        // Only an empty list is refused, and ours are constants.
        Err(_empty) => PrometheusBuilder::new(),
    }
}

fn gauge(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Gauge {
    recorder.describe_gauge(name.into(), None, help.into());
    recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
}

fn counter(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
) -> Counter {
    recorder.describe_counter(name.into(), None, help.into());
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

fn histogram(
    recorder: &PrometheusRecorder,
    name: &'static str,
    help: &'static str,
    unit: Unit,
) -> Histogram {
    recorder.describe_histogram(name.into(), Some(unit), help.into());
    recorder.register_histogram(&Key::from_static_name(name), &METADATA)
}
