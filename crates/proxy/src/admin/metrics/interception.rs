//! Metrics of transparent listeners: what they intercept, what passes untouched, what splitting
//! gains.

use std::fmt;

use midspan_gateway::interception::Quic;
use midspan_policy::leave_alone::SizeGain;
use midspan_units::BitRate;

use super::{Kind, Metric, Snapshot, Value, gate};

metrics! {
    OF_INTERCEPTION "midspan_"
    /// Connections that transparent listeners let pass untouched, by reason: full (too many were
    /// being opened), sessions, sessions_per_client, memory, descriptors (no room for one more
    /// session), connection_rate_per_client, drained (the client), authenticated (TCP-MD5, TCP-AO),
    /// multipath (a further path of an MPTCP connection), connection_tracking (the table is nearly full), unreachable (the server, or
    /// from the client's address), policy, panic (such a connection may have caused one, or a
    /// stuck thread), control
    /// (the control group), unanswered (the client repeated its SYN), asymmetric (the server's
    /// answers do not come back through this machine), overdue (the client had not repeated its SYN
    /// in time when others needed room).
    Counter "bypasses" ("reason") = |now, sink| {
        gate(now, |gate| {
            gate.bypasses()
                .into_iter()
                .try_for_each(|(reason, count)| sink.put(&[reason], Value::Number(count)))
        })
    };
    /// Entries of connection tracking in the network namespace; a session of a transparent listener
    /// has two. From 7/8 of the limit on, new connections pass untouched.
    Gauge "connection_tracking_entries" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.tracked_entries)));
    /// The most entries that the table may have (net.netfilter.nf_conntrack_max); 0 without a
    /// limit.
    Gauge "connection_tracking_entries_limit" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.tracked_limit)));
    /// Packets of QUIC (UDP port 443) that passed untouched between clients and servers, by
    /// direction. Packets of flows that a flow table (nftables `flow add`) forwards are not
    /// counted, because they pass no rule.
    Counter "untouched_quic_packets" ("direction") = |now, sink| {
        quic(now, |quic| {
            sink.put(&["to_client"], Value::Number(quic.packets_to_clients))?;
            sink.put(&["to_server"], Value::Number(quic.packets_to_servers))
        })
    };
    /// Bytes of these packets, from the IP header on.
    Counter "untouched_quic" ["bytes"] ("direction") = |now, sink| {
        quic(now, |quic| {
            sink.put(&["to_client"], Value::Number(quic.bytes_to_clients))?;
            sink.put(&["to_server"], Value::Number(quic.bytes_to_servers))
        })
    };
    /// Packets with which clients tried to open a connection of QUIC (UDP port 443), and which were
    /// rejected (quic = "reject").
    Counter "quic_rejected_packets" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.quic_rejected)));
    /// Packets of connections that this gateway did not know, and that it answered by a reset after it had taken
    /// over from another gateway (interception.takeover_reset).
    Counter "takeover_resets" () =
        |now, sink| sink.put(&[], Value::Number(now.known.helper.takeover_resets));
    /// Flows of the control group that were not measured: too many at a time, reset, or not counted
    /// by the kernel (net.netfilter.nf_conntrack_acct).
    Counter "control_unmeasured" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.control_unmeasured)));
    /// Flows that ended with a FIN in each direction, by their bytes in the larger direction, split
    /// or direct (those of the control group). Only of listeners with policy = "auto", as the next
    /// two metrics.
    Counter "flows_compared" ("path", "size") = |now, sink| {
        each_size(now, |size, gain| {
            sink.put(&["split", size], Value::Number(gain.split_flows))?;
            sink.put(&["direct", size], Value::Number(gain.direct_flows))
        })
    };
    /// Median goodput of the last 101 such flows, from the client's first segment to both FINs.
    Gauge "flow_goodput_median" ["bits_per_second"] ("path", "size") = |now, sink| {
        each_size(now, |size, gain| {
            for (path, rate) in [("split", gain.split), ("direct", gain.direct)] {
                if let Some(rate) = rate {
                    sink.put(&[path, size], Value::Number(rate.bits_per_second()))?;
                }
            }
            Ok(())
        })
    };
    /// The gain of splitting: the median goodput of split flows, divided by that of direct flows.
    Gauge "split_gain" ["ratio"] ("size") = |now, sink| {
        each_size(now, |size, gain| match (gain.split, gain.direct) {
            (Some(split), Some(direct)) => {
                #[allow(clippy::cast_precision_loss)]
                let of = |rate: BitRate| rate.bits_per_second() as f64;
                sink.put(&[size], Value::Seconds(of(split) / of(direct)))
            }
            _ => Ok(()),
        })
    };
    /// Number of times that splitting was found not to help the connections of a client to a
    /// network; they pass untouched for interception.leave_alone_time.
    Counter "routes_left_alone" () =
        |now, sink| sink.put(&[], Value::Number(now.gains.routes_left_alone));
    /// Proofs that the answers of a server do not come back through this machine.
    Counter "asymmetric_routes_found" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.asymmetric_routes_found)));
    /// Connections that transparent listeners intercepted.
    Counter "intercepted" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.taken)));
    /// Intercepted connections whose client did not continue.
    Counter "intercepted_expired" () =
        |now, sink| gate(now, |gate| sink.put(&[], Value::Number(gate.expired)));
    /// SYNs dropped by transparent listeners, by reason: held (an earlier SYN of the connection
    /// waits for the server, or has just been released), stale (the relay had been stopped),
    /// port_in_use (the client's last connection from the same port has not ended on this machine).
    Counter "syns_dropped" ("reason") = |now, sink| {
        gate(now, |gate| {
            sink.put(&["held"], Value::Number(gate.retransmissions_held))?;
            sink.put(&["stale"], Value::Number(gate.dropped_stale))?;
            sink.put(&["port_in_use"], Value::Number(gate.dropped_port_in_use))
        })
    };
}

fn quic(now: &Snapshot, put: impl FnOnce(&Quic) -> fmt::Result) -> fmt::Result {
    now.known.helper.quic.as_ref().map_or(Ok(()), put)
}

fn each_size(now: &Snapshot, mut put: impl FnMut(&str, &SizeGain) -> fmt::Result) -> fmt::Result {
    let names = ["10KB", "100KB", "1MB", "10MB", "more"];
    let sizes = names.iter().zip(&now.gains.sizes);
    sizes
        .into_iter()
        .try_for_each(|(name, gain)| put(name, gain))
}
