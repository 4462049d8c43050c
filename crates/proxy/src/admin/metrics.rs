//! The metrics: each is defined once, here, with its text and where its values come from.
//!
//! `docs/observability.md` has them as a table, which a test holds equal to the metrics of this module.

mod encoding;

use std::collections::BTreeMap;
use std::fmt;

use midspan_policy::servers::ServerReading;
use midspan_relay::Statistics;
use midspan_relay::observation::{
    Ending, GainTotals, HistogramTotals, LegTotals, ListenerTotals, MemoryUse, PIECE_BOUNDS,
    RATE_BOUNDS, ROUND_TRIP_TIME_BOUNDS, SEGMENT_BOUNDS, TIME_BOUNDS,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::registry::Registry;

use crate::fragmenting::Fragments;

use crate::gate::GateStatistics;
use crate::health::{Condition, Known, OwnUse};
use crate::overlay::OverlayReport;

/// All numbers at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// Of the relay.
    pub statistics: Statistics,
    /// What sessions take of the memory.
    pub memory: MemoryUse,
    /// Of each listener, by its name.
    pub listeners: BTreeMap<String, ListenerTotals>,
    /// The servers of each listener that has several, by its name.
    pub servers: BTreeMap<String, Vec<ServerReading>>,
    /// Of the gate, where there are transparent listeners.
    pub gate: Option<GateStatistics>,
    /// Clients known to take oversized segments, and known not to.
    pub verdicts: (u64, u64),
    /// What the fragmenter has done.
    pub fragments: Fragments,
    /// Tail loss probes of the network namespace, where they can be read.
    pub tail_loss_probes: Option<u64>,
    /// System calls that the relay's sandbox has refused.
    pub refused_system_calls: u64,
    /// What splitting gains.
    pub gains: GainTotals,
    /// The other nodes of the overlay, and the sessions by route.
    pub overlay: OverlayReport,
    /// Late threads, and the state that the helper has sent.
    pub(crate) known: Known,
    /// Lines that the relay could not log.
    pub log_lines_lost: u64,
    /// What the relay's process uses, where it can be read.
    pub(crate) process: Option<OwnUse>,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name without the unit at its end. It begins with `midspan_`, or with `process_` if
    /// programs of all kinds have this metric.
    name: &'static str,
    unit: Option<&'static str>,
    kind: Kind,
    labels: &'static [&'static str],
    /// What it is.
    help: &'static str,
    read: fn(&Snapshot, &mut Sink<'_>) -> fmt::Result,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One value of a metric.
enum Value<'a> {
    Number(u64),
    Seconds(f64),
    /// With its bounds, and how many of these make one of the metric's unit.
    Distribution(&'a HistogramTotals, &'static [u64], f64),
}

/// Takes the values of one metric.
struct Sink<'a> {
    kind: Kind,
    labels: &'static [&'static str],
    encoder: MetricEncoder<'a>,
}

const MICROSECONDS: f64 = 1e6;

macro_rules! metrics {
    ($list:ident $prefix:literal $($(#[doc = $doc:literal])+ $kind:ident $name:literal
        $([$unit:literal])? ($($label:literal),*) = $read:expr;)+) => {
        pub(super) const $list: &[Metric] = &[$(Metric {
            name: concat!($prefix, $name),
            unit: unit!($($unit)?),
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: concat!($($doc),+),
            read: $read,
        }),+];
    };
}

macro_rules! unit {
    () => {
        None
    };
    ($unit:literal) => {
        Some($unit)
    };
}

mod interception;
mod overlay;
mod process;
mod servers;

/// All metrics.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    let lists = [
        OF_MIDSPAN,
        servers::OF_SERVERS,
        interception::OF_INTERCEPTION,
        overlay::OF_OVERLAY,
        process::OF_PROCESSES,
    ];
    lists.into_iter().flatten()
}

metrics! {
    OF_MIDSPAN "midspan_"
    /// Always 1; the label is the version of Midspan.
    Gauge "build_info" ("version") =
        |_, sink| sink.put(&[env!("CARGO_PKG_VERSION")], Value::Number(1));
    /// Threads of the relay that are running.
    Gauge "threads" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.threads_running));
    /// How often a thread of the relay reset its sessions after a fault of Midspan (a panic), and continued.
    Counter "thread_panics" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.panics));
    /// Threads of the relay that were stuck, and were replaced: their sessions were reset.
    Counter "threads_replaced" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.threads_replaced));
    /// Sessions that are relayed without any mechanism, because such a connection may have caused a panic,
    /// or a stuck thread.
    Counter "plain_sessions" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.sessions_plain));
    /// Threads of the relay without a loop iteration for a second although they were woken, by
    /// state: late, or stuck (for interception.watchdog_timeout; then the thread is replaced).
    Gauge "threads_late" ("state") = |now, sink| {
        let count = |is_stuck| {
            let late = now.known.late.iter();
            late.filter(|late| late.is_stuck == is_stuck).count() as u64
        };
        sink.put(&["late"], Value::Number(count(false)))?;
        sink.put(&["stuck"], Value::Number(count(true)))
    };
    /// The state of the proxy, 1 for one of these: running; passing (all new connections of
    /// transparent listeners pass untouched: see midspan_passing); draining (about to end).
    Gauge "state" ("state") = |now, sink| {
        let condition = now.known.condition();
        Condition::ALL.into_iter().try_for_each(|(other, name)| {
            sink.put(&[name], Value::Number(u64::from(other == condition)))
        })
    };
    /// Whether the proxy is about to end and accepts no more connections: 1 or 0.
    Gauge "draining" () =
        |now, sink| sink.put(&[], Value::Number(u64::from(now.known.is_draining)));
    /// Whether all new connections of transparent listeners pass untouched for this reason, 1 or 0:
    /// firewall (the host's firewall would stop intercepted connections), relay (the relay does not
    /// respond), bypass (the operator has set a bypass for all), draining, rules (Midspan cannot
    /// change them).
    Gauge "passing" ("reason") = |now, sink| {
        let passing = now.known.helper.passing;
        passing.map_or(Ok(()), |passing| {
            passing.reasons().into_iter().try_for_each(|(reason, holds)| {
                sink.put(&[reason], Value::Number(u64::from(holds)))
            })
        })
    };
    /// Obstacles for intercepted connections in the host's firewall; the log names them.
    Gauge "firewall_obstacles" () =
        |now, sink| sink.put(&[], Value::Number(now.known.helper.firewall_obstacles));
    /// Prefixes that the operator bypasses (midspan bypass).
    Gauge "bypassed_prefixes" () =
        |now, sink| sink.put(&[], Value::Number(now.known.helper.bypasses));
    /// Prefixes of clients that the operator drains at a listener (midspan drain).
    Gauge "drained_prefixes" () =
        |now, sink| sink.put(&[], Value::Number(now.known.drained_clients.len() as u64));
    /// Reloads of the configuration, by result: ok, failed.
    Counter "reloads" ("result") = |now, sink| {
        sink.put(&["ok"], Value::Number(now.known.helper.reloads))?;
        sink.put(&["failed"], Value::Number(now.known.helper.reloads_failed))
    };
    /// Whether the last reload succeeded, or there was none: 1 or 0. After a failed reload, the
    /// older configuration is in force.
    Gauge "config_last_reload_successful" () = |now, sink| {
        sink.put(&[], Value::Number(u64::from(!now.known.helper.is_reload_failed)))
    };
    /// When the configuration in force was read, in seconds since 1970.
    Gauge "config_last_reload_success_timestamp" ["seconds"] () =
        |now, sink| sink.put(&[], Value::Number(now.known.helper.configured_at));
    /// Lines missing in the log because the log was not read, or could not be written, by process.
    Counter "log_lines_lost" ("process") = |now, sink| {
        sink.put(&["relay"], Value::Number(now.log_lines_lost))?;
        sink.put(&["helper"], Value::Number(now.known.helper.log_lines_lost))
    };
    /// Sessions that have begun: connections that were accepted and not refused, and plain HTTP
    /// requests.
    Counter "sessions_opened" ("listener") =
        |now, sink| each(now, |name, all| sink.put(&[name], Value::Number(all.opened)));
    /// Sessions that exist now.
    Gauge "sessions_active" ("listener") =
        |now, sink| each(now, |name, all| sink.put(&[name], Value::Number(all.active)));
    /// Sessions that have ended, by the event that ended them first.
    Counter "sessions_ended" ("listener", "how") = |now, sink| {
        each(now, |name, all| {
            Ending::ALL.iter().zip(all.ended).try_for_each(|(ending, count)| {
                sink.put(&[name, ending.name()], Value::Number(count))
            })
        })
    };
    /// Time until both legs of a session were connected, from the client's first segment on
    /// (forward listeners: from the accepted connection on).
    Histogram "session_setup" ["seconds"] ("listener", "handshake") = |now, sink| {
        each(now, |name, all| {
            let names = ["end-to-end", "early"];
            names.iter().zip(&all.setup).try_for_each(|(handshake, times)| {
                let value = Value::Distribution(times, TIME_BOUNDS, MICROSECONDS);
                sink.put(&[name, handshake], value)
            })
        })
    };
    /// Initial windows chosen for client legs, by whether the path was known (start): learned, or
    /// cold. Only of transparent listeners that choose windows.
    Histogram "client_initial_window" ["segments"] ("listener", "start") = |now, sink| {
        each(now, |name, all| {
            let starts = ["cold", "learned"];
            starts.iter().zip(&all.initial_window).try_for_each(|(start, windows)| {
                let value = Value::Distribution(windows, SEGMENT_BOUNDS, 1.0);
                sink.put(&[name, start], value)
            })
        })
    };
    /// Bytes of sessions that were passed on, by direction.
    Counter "forwarded" ["bytes"] ("listener", "direction") = |now, sink| {
        each(now, |name, all| {
            sink.put(&[name, "to_client"], Value::Number(all.bytes_to_client))?;
            sink.put(&[name, "to_server"], Value::Number(all.bytes_to_server))
        })
    };
    /// Smoothed round-trip times of legs. As all metrics of legs, they are read when a session
    /// ends, and while data moves for up to 64 sessions a second and thread.
    Histogram "leg_round_trip_time" ["seconds"] ("listener", "leg") =
        |now, sink| distribution(now, sink, |leg| &leg.round_trip_time, ROUND_TRIP_TIME_BOUNDS, MICROSECONDS);
    /// Smallest round-trip times of legs.
    Histogram "leg_minimum_round_trip_time" ["seconds"] ("listener", "leg") = |now, sink| {
        distribution(now, sink, |leg| &leg.minimum_round_trip_time, ROUND_TRIP_TIME_BOUNDS, MICROSECONDS)
    };
    /// Delivery rates of legs, each of the newest window.
    Histogram "leg_delivery_rate" ["bits_per_second"] ("listener", "leg") =
        |now, sink| distribution(now, sink, |leg| &leg.delivery_rate, RATE_BOUNDS, 1.0);
    /// Congestion windows of legs.
    Histogram "leg_congestion_window" ["segments"] ("listener", "leg") =
        |now, sink| distribution(now, sink, |leg| &leg.congestion_window, SEGMENT_BOUNDS, 1.0);
    /// Retransmitted segments.
    Counter "leg_retransmitted" ["segments"] ("listener", "leg") = |now, sink| {
        each_leg(now, |labels, leg| sink.put(labels, Value::Number(leg.retransmitted_segments)))
    };
    /// Retransmitted bytes.
    Counter "leg_retransmitted" ["bytes"] ("listener", "leg") = |now, sink| {
        each_leg(now, |labels, leg| sink.put(labels, Value::Number(leg.retransmitted_bytes)))
    };
    /// Retransmission time-outs of legs; the kernel counts them from Linux 6.7 on.
    Counter "leg_timeouts" ("listener", "leg") =
        |now, sink| each_leg(now, |labels, leg| sink.put(labels, Value::Number(leg.timeouts)));
    /// Tail loss probes (RFC 8985) of all TCP connections of the host, or of its network namespace:
    /// the kernel does not count them per connection.
    Counter "host_tail_loss_probes" () = |now, sink| {
        let count = now.tail_loss_probes;
        count.map_or(Ok(()), |count| sink.put(&[], Value::Number(count)))
    };
    /// System calls of the relay that its sandbox has refused. A value other than 0 is a fault of
    /// Midspan; the log names the calls.
    Counter "relay_refused_system_calls" () =
        |now, sink| sink.put(&[], Value::Number(now.refused_system_calls));
    /// Sum of the times in which legs had data to send or waited for its acknowledgement.
    Counter "leg_busy" ["seconds"] ("listener", "leg") =
        |now, sink| each_leg(now, |labels, leg| sink.put(labels, seconds(leg.busy)));
    /// Part of the busy time in which the peer's window limited sending.
    Counter "leg_receive_window_limited" ["seconds"] ("listener", "leg") = |now, sink| {
        each_leg(now, |labels, leg| sink.put(labels, seconds(leg.receive_window_limited)))
    };
    /// Part of the busy time in which the send buffer limited sending.
    Counter "leg_send_buffer_limited" ["seconds"] ("listener", "leg") = |now, sink| {
        each_leg(now, |labels, leg| sink.put(labels, seconds(leg.send_buffer_limited)))
    };
    /// Forward data: bytes read for a leg in one loop iteration of its session.
    Histogram "leg_forward_data" ["bytes"] ("listener", "leg") =
        |now, sink| distribution(now, sink, |leg| &leg.forward_data, PIECE_BOUNDS, 1.0);
    /// Bursts: bytes written to a leg's socket in one loop iteration of its session. If the kernel
    /// paces the leg, they leave more slowly.
    Histogram "leg_burst" ["bytes"] ("listener", "leg") =
        |now, sink| distribution(now, sink, |leg| &leg.burst, PIECE_BOUNDS, 1.0);
    /// Clients that negotiate before their session begins, as with SOCKS5. Each counts as an active
    /// session of the process, but not yet of its listener.
    Gauge "negotiations" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.negotiations_active));
    /// Connections that ended before a session began, by reason: policy; access (rules); drained (the
    /// client); panic (such a connection may have caused one, or a stuck thread, also without any mechanism);
    /// overload; of listeners that negotiate malformed, unsupported, unauthenticated, silent, gone (the client
    /// closed without a request), name (has no address); of overlay hops looping, forged, unroutable (of
    /// transparent listeners, too: no route leads to the server); of transparent listeners server_refused,
    /// server_unanswered.
    Counter "refusals" ("reason") = |now, sink| {
        let at_syn = now.gate.as_ref();
        let at_syn = at_syn.map_or((0, 0), |gate| {
            (gate.refused_by_policy, gate.refused_unroutable)
        });
        let by_policy = now.statistics.refused_by_policy + at_syn.0;
        let Statistics {
            negotiations_abandoned: gone,
            refused_by_access: access,
            refused_drained: drained,
            refused_suspects: panic,
            refused_malformed: malformed,
            refused_unsupported: unsupported,
            refused_unauthenticated: unauthenticated,
            refused_silent: silent,
            refused_overloaded: overload,
            names_not_found: name,
            refused_looping: looping,
            refused_forged: forged,
            refused_unroutable: unroutable,
            ..
        } = now.statistics;
        for (reason, count) in [
            ("policy", by_policy),
            ("access", access),
            ("drained", drained),
            ("panic", panic),
            ("overload", overload),
            ("malformed", malformed),
            ("unsupported", unsupported),
            ("unauthenticated", unauthenticated),
            ("silent", silent),
            ("gone", gone),
            ("name", name),
            ("looping", looping),
            ("forged", forged),
            ("unroutable", unroutable + at_syn.1),
        ] {
            sink.put(&[reason], Value::Number(count))?;
        }
        gate(now, |gate| {
            sink.put(&["server_refused"], Value::Number(gate.refused))?;
            sink.put(&["server_unanswered"], Value::Number(gate.unanswered))
        })
    };
    /// Connections that were reset after they were accepted, because there was no room for one more
    /// session, by reason: sessions, sessions_per_client, connection_rate_per_client (SOCKS5 and HTTP
    /// clients get an answer), memory (the budget is used up), descriptors (or memory of the kernel).
    Counter "sessions_shed" ("reason") = |now, sink| {
        let all = &now.statistics;
        sink.put(&["sessions"], Value::Number(all.shed_sessions))?;
        sink.put(&["sessions_per_client"], Value::Number(all.shed_client))?;
        sink.put(&["connection_rate_per_client"], Value::Number(all.shed_client_rate))?;
        sink.put(&["memory"], Value::Number(all.shed_memory))?;
        sink.put(&["descriptors"], Value::Number(all.shed_descriptors))
    };
    /// Memory of sessions that counts towards the budget: the queues of both sockets, pipes, 9 KiB
    /// for each session, negotiations and held SYNs.
    Gauge "memory_used" ["bytes"] () = |now, sink| sink.put(&[], Value::Number(now.memory.used));
    /// Memory that sessions may come to use without a further decision, if there is a budget.
    Gauge "memory_reserved" ["bytes"] () = |now, sink| {
        let budget = now.memory.budget;
        budget.map_or(Ok(()), |_| sink.put(&[], Value::Number(now.memory.reserved)))
    };
    /// The memory budget, if there is one.
    Gauge "memory_budget" ["bytes"] () = |now, sink| {
        now.memory.budget.map_or(Ok(()), |budget| sink.put(&[], Value::Number(budget)))
    };
    /// Bytes that queues may come to hold beyond the minimum of each session, if there is a budget.
    Gauge "queues_reserved" ["bytes"] () = |now, sink| {
        now.memory.queues.map_or(Ok(()), |(queues, _)| sink.put(&[], Value::Number(queues)))
    };
    /// Half of TCP's memory pressure (net.ipv4.tcp_mem), the limit for these bytes.
    Gauge "queues_budget" ["bytes"] () = |now, sink| {
        now.memory.queues.map_or(Ok(()), |(_, budget)| sink.put(&[], Value::Number(budget)))
    };
    /// Number of times that the buffers of a direction were bounded because the budget was short.
    Counter "directions_bounded" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.directions_bounded));
    /// Bytes of sessions that were passed on, by method: copied, or spliced (through a pipe, with
    /// half the CPU time).
    Counter "moved" ["bytes"] ("method") = |now, sink| {
        sink.put(&["copied"], Value::Number(now.statistics.bytes_copied))?;
        sink.put(&["spliced"], Value::Number(now.statistics.bytes_spliced))
    };
    /// Pipes that exist.
    Gauge "pipes" () = |now, sink| sink.put(&[], Value::Number(now.statistics.pipes));
    /// Pipes that hold bytes of a session.
    Gauge "pipes_in_use" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.pipes_in_use));
    /// Splices that became copies because no pipe was available: raise pipe_memory.
    Counter "pipe_shortages" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.pipe_shortages));
    /// Connections that were not accepted, or not opened towards the server, because descriptors or
    /// memory were missing.
    Counter "accept_errors" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.accept_errors));
    /// Socket options of the configuration that the kernel refused.
    Counter "option_errors" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.option_errors));
    /// Oversized segments sent to clients with an access profile, including retransmissions.
    Counter "oversized" ["segments"] () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.oversized_segments));
    /// Oversized segments sent to test whether they reach a client.
    Counter "oversized_probes" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.oversized_probes));
    /// Number of times that an oversized segment was lost and the session returned to segments of
    /// the client's own size.
    Counter "oversized_fallbacks" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.oversized_fallbacks));
    /// Clients with a stored verdict: they accept oversized segments (kept for 24 h), or do not (6
    /// h).
    Gauge "oversized_verdicts" ("verdict") = |now, sink| {
        sink.put(&["takes"], Value::Number(now.verdicts.0))?;
        sink.put(&["refuses"], Value::Number(now.verdicts.1))
    };
    /// Packets towards clients that reached the fragmenter, by outcome: cut, whole (no need to
    /// cut), malformed, uncuttable, exhausted (no identification was free), foreign (not TCP to one
    /// host), unsent (the kernel refused a fragment).
    Counter "fragmenter_packets" ("outcome") = |now, sink| {
        let all = &now.fragments;
        for (outcome, count) in [
            ("cut", all.cut.cut),
            ("whole", all.cut.whole),
            ("malformed", all.cut.malformed),
            ("uncuttable", all.cut.uncuttable),
            ("exhausted", all.cut.exhausted),
            ("foreign", all.foreign),
            ("unsent", all.unsent),
        ] {
            sink.put(&[outcome], Value::Number(count))?;
        }
        Ok(())
    };
    /// Fragments of these packets.
    Counter "fragmenter_fragments" () =
        |now, sink| sink.put(&[], Value::Number(now.fragments.cut.fragments));
    /// Number of times that a loss took a leg that sends ahead back to the window that its client
    /// advertises.
    Counter "sending_ahead_losses" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.sending_ahead_losses));
    /// Sessions that sent data ahead of the window of a client without an access profile.
    Counter "sending_ahead_sessions" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.sessions_ahead));
    /// ACKs without data from clients with an access profile, in sessions that have ended.
    Counter "client_acknowledgements" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.narrow_acknowledgements));
    /// Bytes of ACKs without data from clients with an access profile, including their headers, in
    /// sessions that have ended.
    Counter "client_acknowledgements" ["bytes"] () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.narrow_acknowledgement_bytes));
    /// Sessions whose line is missing in the log because the log could not keep up.
    Counter "session_lines_lost" () =
        |now, sink| sink.put(&[], Value::Number(now.statistics.lines_lost));
}

fn each(now: &Snapshot, mut put: impl FnMut(&str, &ListenerTotals) -> fmt::Result) -> fmt::Result {
    now.listeners
        .iter()
        .try_for_each(|(name, totals)| put(name, totals))
}

fn each_leg(
    now: &Snapshot,
    mut put: impl FnMut(&[&str], &LegTotals) -> fmt::Result,
) -> fmt::Result {
    each(now, |name, totals| {
        let [client, server] = &totals.legs;
        put(&[name, "client"], client)?;
        put(&[name, "server"], server)
    })
}

fn distribution(
    now: &Snapshot,
    sink: &mut Sink<'_>,
    of: impl Fn(&LegTotals) -> &HistogramTotals,
    bounds: &'static [u64],
    divisor: f64,
) -> fmt::Result {
    each_leg(now, |labels, leg| {
        sink.put(labels, Value::Distribution(of(leg), bounds, divisor))
    })
}

fn gate(now: &Snapshot, put: impl FnOnce(&GateStatistics) -> fmt::Result) -> fmt::Result {
    now.gate.as_ref().map_or(Ok(()), put)
}

#[allow(clippy::cast_precision_loss)]
fn seconds(milliseconds: u64) -> Value<'static> {
    Value::Seconds(milliseconds as f64 / 1e3)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        metrics().try_for_each(|metric| metric.encode(self, &mut encoder))
    }
}

/// The numbers in the OpenMetrics text format.
///
/// # Errors
/// None that is known.
pub fn encode(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
