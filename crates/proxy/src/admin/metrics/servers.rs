//! Metrics of the servers of listeners that have several.

use std::fmt;

use midspan_policy::servers::{Health, ServerReading};

use super::{Kind, Metric, Sink, Snapshot, Value};

metrics! {
    OF_SERVERS "midspan_"
    /// The state of a server of a listener with several, 1 for one of these: up (it gets new
    /// sessions), suspect (a session could not connect a short time ago), down (checks have failed),
    /// no_address (its name has no address).
    Gauge "server_state" ("listener", "server", "state") = |now, sink| {
        each(now, |listener, server, reading| {
            let states = Health::ALL.map(Some).into_iter().chain([None]);
            let mut states = states.map(|state| (state.map_or("no_address", Health::name), state));
            states.try_for_each(|(name, state)| {
                let value = Value::Number(u64::from(state == reading.health));
                sink.put(&[listener, server, name], value)
            })
        })
    };
    /// Sessions with a server of a listener with several, those included that are being connected
    /// to it.
    Gauge "server_sessions" ("listener", "server") =
        |now, sink| number(now, sink, |reading| reading.sessions);
    /// Checks of a server of a listener with several that have failed.
    Counter "server_failed_checks" ("listener", "server") =
        |now, sink| number(now, sink, |reading| reading.failed_checks);
}

fn each(
    now: &Snapshot,
    mut put: impl FnMut(&str, &str, &ServerReading) -> fmt::Result,
) -> fmt::Result {
    now.servers.iter().try_for_each(|(listener, servers)| {
        let mut servers = servers.iter();
        servers.try_for_each(|reading| put(listener, &reading.server.to_string(), reading))
    })
}

fn number(now: &Snapshot, sink: &mut Sink<'_>, of: fn(&ServerReading) -> u64) -> fmt::Result {
    each(now, |listener, server, reading| {
        sink.put(&[listener, server], Value::Number(of(reading)))
    })
}
