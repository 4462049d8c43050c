//! Texts for people.

use std::fmt::Write;

use midspan_units::BitRate;

use crate::{Error, Settings, Status};

/// The rules that a run would set, as `nft` shows them.
///
/// # Errors
/// The text cannot be the name of an interface.
pub fn describe_rules(settings: &Settings) -> Result<String, Error> {
    Ok(settings.rules()?.to_string())
}

/// A picture of the savings; with the upstream's rate, also the share of it that becomes free.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn describe_status(status: &Status, upstream: Option<BitRate>) -> String {
    let mut text = format!(
        "ACKs {} seen, {} sent, {} saved ({:.0} %), {} waiting; {} flows\n",
        status.acks_seen,
        status.acks_sent,
        status.acks_saved,
        100.0 * status.saved_share(),
        status.held,
        status.flows,
    );
    let freed = 8.0 * status.bytes_saved as f64 / status.running.as_seconds().max(1.0);
    let _ = write!(
        text,
        "{} bytes saved, {:.1} kbit/s since the start",
        status.bytes_saved,
        freed / 1e3
    );
    if let Some(upstream) = upstream {
        let share = 100.0 * freed / upstream.bits_per_second() as f64;
        let _ = write!(text, ", {share:.0} % of the upstream");
    }
    text.push('\n');
    if !status.busiest.is_empty() {
        let _ = writeln!(
            text,
            "{:<24} {:<24} {:>9} {:>6} {:>8} {:>4} {:>8}",
            "here", "there", "ACKs", "saved", "est_cwnd", "ppa", "rcv_RTT"
        );
    }
    for flow in &status.busiest {
        let share = 100.0 * flow.acks_saved as f64 / flow.acks_seen.max(1) as f64;
        let round_trip = flow.rcv_rtt.map_or("-".to_owned(), |span| {
            format!("{:.0} ms", span.as_milliseconds())
        });
        let _ = writeln!(
            text,
            "{:<24} {:<24} {:>9} {:>4.0} % {:>8} {:>4} {:>8}",
            flow.local, flow.remote, flow.acks_seen, share, flow.est_cwnd, flow.ppa, round_trip
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowStatus;
    use midspan_units::TimeSpan;

    #[test]
    fn a_picture_has_a_line_for_each_flow() {
        let status = Status {
            acks_seen: 100,
            acks_sent: 25,
            acks_saved: 75,
            bytes_saved: 3900,
            flows: 1,
            running: TimeSpan::from_seconds(2),
            busiest: vec![FlowStatus {
                local: "192.0.2.1:5000".parse().unwrap(),
                remote: "[2001:db8::1]:443".parse().unwrap(),
                acks_seen: 100,
                acks_saved: 75,
                est_cwnd: 40,
                ppa: 5,
                rcv_rtt: Some(TimeSpan::from_milliseconds(321)),
            }],
            ..Status::default()
        };
        let text = describe_status(&status, "31.2 kbit/s".parse().ok());
        assert_eq!(
            text,
            "ACKs 100 seen, 25 sent, 75 saved (75 %), 0 waiting; 1 flows\n\
             3900 bytes saved, 15.6 kbit/s since the start, 50 % of the upstream\n\
             here                     there                         ACKs  saved est_cwnd  ppa  rcv_RTT\n\
             192.0.2.1:5000           [2001:db8::1]:443              100   75 %       40    5   321 ms\n"
        );
    }
}
