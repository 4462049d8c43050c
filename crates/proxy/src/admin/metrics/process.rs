//! Metrics that programs of all kinds have, with the names that dashboards and rules for them use.

use std::fmt;

use super::{Kind, Metric, OwnUse, Sink, Snapshot, Value, seconds};

metrics! {
    OF_PROCESSES "process_"
    /// CPU time of the process in user mode and in the kernel, by process: relay, or helper (the
    /// privileged parent; its values are up to 1 s old).
    Counter "cpu" ["seconds"] ("process") =
        |now, sink| each(now, sink, |used| Some(seconds(used.cpu_milliseconds)));
    /// Memory of the process that is present. The queues of sockets belong to the kernel:
    /// midspan_memory_used_bytes.
    Gauge "resident_memory" ["bytes"] ("process") =
        |now, sink| each(now, sink, |used| Some(Value::Number(used.resident_bytes)));
    /// Address space of the process.
    Gauge "virtual_memory" ["bytes"] ("process") =
        |now, sink| each(now, sink, |used| Some(Value::Number(used.virtual_bytes)));
    /// Open descriptors of the process. Each session needs two, and its pipes.
    Gauge "open_fds" ("process") =
        |now, sink| each(now, sink, |used| Some(Value::Number(used.descriptors)));
    /// The most descriptors that the process may open; missing if there is no limit.
    Gauge "max_fds" ("process") =
        |now, sink| each(now, sink, |used| used.descriptor_limit.map(Value::Number));
    /// When the process started, in seconds since 1970.
    Gauge "start_time" ["seconds"] ("process") =
        |now, sink| each(now, sink, |used| Some(seconds(used.started_milliseconds)));
}

fn each(
    now: &Snapshot,
    sink: &mut Sink<'_>,
    of: impl Fn(&OwnUse) -> Option<Value<'static>>,
) -> fmt::Result {
    let processes = [("relay", now.process), ("helper", now.known.helper.process)];
    processes.into_iter().try_for_each(|(process, used)| {
        let value = used.as_ref().and_then(&of);
        value.map_or(Ok(()), |value| sink.put(&[process], value))
    })
}
