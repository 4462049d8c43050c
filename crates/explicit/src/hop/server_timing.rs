//! The field `Server-Timing` (W3C): how long each node took to connect to the next one, and the exit
//! to the server.

use httparse::Header;
use midspan_policy::overlay::NodeName;
use midspan_units::TimeSpan;

use crate::exchange::fields;

/// Most times of one answer.
pub const MOST_CONNECT_TIMES: usize = 8;

/// The longest time that is read, in milliseconds: a day.
const LONGEST: f64 = 86_400_000.0;

/// How long a node took to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTime {
    /// The node.
    pub node: NodeName,
    /// From the first SYN until the connection was established, in steps of a microsecond.
    pub time: TimeSpan,
}

/// The times of an answer. Other elements of the field, and elements beyond the limit, are left out:
/// the session does not depend on them.
pub(super) fn read(fields: &[Header<'_>]) -> Vec<ConnectTime> {
    let values = fields::values(fields, "server-timing");
    let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
    let elements = texts.flat_map(|text| text.split(','));
    let times = elements.filter_map(|element| {
        let (node, duration) = element.trim().split_once(';')?;
        let milliseconds: f64 = duration.trim().strip_prefix("dur=")?.parse().ok()?;
        let is_time = (0.0..=LONGEST).contains(&milliseconds);
        let microseconds = is_time.then(|| (milliseconds * 1000.0).round() as u64)?;
        Some(ConnectTime {
            node: node.trim().parse().ok()?,
            time: TimeSpan::from_nanoseconds(microseconds * 1000),
        })
    });
    times.take(MOST_CONNECT_TIMES).collect()
}

/// Writes the field; nothing if there are no times.
pub(super) fn write(head: &mut String, times: &[ConnectTime]) {
    if times.is_empty() {
        return;
    }
    let elements: Vec<String> = (times.iter())
        .map(|ConnectTime { node, time }| {
            let microseconds = time.nanoseconds() / 1000;
            format!(
                "{node};dur={}.{:03}",
                microseconds / 1000,
                microseconds % 1000
            )
        })
        .collect();
    head.push_str("Server-Timing: ");
    head.push_str(&elements.join(", "));
    head.push_str("\r\n");
}
