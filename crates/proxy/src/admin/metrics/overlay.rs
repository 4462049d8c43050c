//! Metrics of the overlay: its other nodes as this one sees them, and the routes of sessions.

use std::fmt;

use midspan_policy::overlay::Health;

use super::{Kind, Metric, Snapshot, Value};
use crate::overlay::NodeRow;

metrics! {
    OF_OVERLAY "midspan_overlay_"
    /// The state of another node of the overlay, 1 for one of these: up, probation, unknown (it has
    /// never answered), suspect, down.
    Gauge "node_state" ("node", "state") = |now, sink| {
        each(now, |node| {
            Health::ALL.into_iter().try_for_each(|health| {
                let is_it = health.name() == node.health;
                sink.put(&[node.name.as_str(), health.name()], Value::Number(u64::from(is_it)))
            })
        })
    };
    /// Whether a node gets no new sessions because it has reported, or shown, that it has no room: 1
    /// or 0.
    Gauge "node_busy" ("node") = |now, sink| {
        each(now, |node| {
            let is_busy = u64::from(node.overload.is_some());
            sink.put(&[node.name.as_str()], Value::Number(is_busy))
        })
    };
    /// The present round trip to a node, the smallest of the last seconds; missing if it is not
    /// measured.
    Gauge "node_round_trip" ["seconds"] ("node") = |now, sink| {
        each(now, |node| {
            let round_trip = node.leg.rtt_seconds;
            round_trip.map_or(Ok(()), |time| sink.put(&[node.name.as_str()], Value::Seconds(time)))
        })
    };
    /// Sessions over hops between this node and another one, by direction: to (the other node is the
    /// next one of the session), or from.
    Counter "node_sessions" ("node", "direction") = |now, sink| {
        each(now, |node| {
            sink.put(&[node.name.as_str(), "to"], Value::Number(node.sessions_to))?;
            sink.put(&[node.name.as_str(), "from"], Value::Number(node.sessions_from))
        })
    };
    /// Calls that have failed at a node, or at the leg to it. Where there is another route, the
    /// session has taken it.
    Counter "calls_failed" ("node") = |now, sink| {
        each(now, |node| sink.put(&[node.name.as_str()], Value::Number(node.calls_failed)))
    };
    /// Hops of a node that this node has refused, by reason: looping, forged, unroutable, access
    /// (this node does not connect to the server, or not for this client), malformed.
    Counter "hops_refused" ("node", "reason") = |now, sink| {
        each(now, |node| {
            node.hops_refused.iter().try_for_each(|(reason, count)| {
                sink.put(&[node.name.as_str(), reason.as_str()], Value::Number(*count))
            })
        })
    };
    /// Warm connections to a node that sessions can use now.
    Gauge "warm_connections" ("node") =
        |now, sink| each(now, |node| sink.put(&[node.name.as_str()], Value::Number(node.warm.ready)));
    /// Warm connections to a node, by result: used (by a session), missed (a session found none), ended
    /// (by the other end, or dead).
    Counter "warm_connections_taken" ("node", "result") = |now, sink| {
        each(now, |node| {
            sink.put(&[node.name.as_str(), "used"], Value::Number(node.warm.used))?;
            sink.put(&[node.name.as_str(), "missed"], Value::Number(node.warm.missed))?;
            sink.put(&[node.name.as_str(), "ended"], Value::Number(node.warm.ended))
        })
    };
    /// Sessions of a listener by the nodes after this one; the route is empty for sessions that leave
    /// the overlay here.
    Counter "sessions" ("listener", "route") = |now, sink| {
        now.overlay.routes.iter().try_for_each(|row| {
            let route = row.route.join(" ");
            sink.put(&[row.listener.as_str(), route.as_str()], Value::Number(row.sessions))
        })
    };
}

fn each(now: &Snapshot, put: impl FnMut(&NodeRow) -> fmt::Result) -> fmt::Result {
    now.overlay.nodes.iter().try_for_each(put)
}
