//! `iperf3 --json`, one TCP stream or several.

use serde_json::Value;

use super::{Measured, MeasuredError, Stretch, check_size, plausible, shown};

/// Reads the output of `iperf3 --json`, from client or server.
///
/// # Errors
/// The text is no such JSON, reports an error, or is no TCP test.
pub fn read(text: &str) -> Result<Measured, MeasuredError> {
    check_size(text)?;
    let wrong = |what: String| MeasuredError::Format {
        program: "iperf3 --json",
        what,
    };
    let json: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if let Some(error) = json.get("error").and_then(Value::as_str) {
        return Err(wrong(format!("the test failed: {}", shown(error))));
    }
    let start = json.get("start").unwrap_or(&Value::Null);
    let test = start.get("test_start").unwrap_or(&Value::Null);
    if test
        .get("protocol")
        .and_then(Value::as_str)
        .is_some_and(|name| name != "TCP")
    {
        return Err(wrong(
            "only a TCP test measures TCP: leave out --udp".to_owned(),
        ));
    }
    let end = json
        .get("end")
        .ok_or_else(|| wrong("there is no `end`: was the test complete?".to_owned()))?;
    let sum =
        |name: &str, key: &str| -> Option<f64> { plausible(end.get(name)?.get(key)?.as_f64()?) };
    let throughput = sum("sum_received", "bits_per_second")
        .or_else(|| sum("sum_sent", "bits_per_second"))
        .ok_or_else(|| wrong("it contains no throughput".to_owned()))?;
    let segment = start
        .get("tcp_mss_default")
        .or_else(|| start.get("tcp_mss"))
        .and_then(Value::as_u64)
        .and_then(|size| u32::try_from(size).ok())
        .filter(|size| (88..=65_495).contains(size));
    let streams = end.get("streams").and_then(Value::as_array);
    let senders: Vec<&Value> = streams
        .into_iter()
        .flatten()
        .filter_map(|stream| stream.get("sender"))
        .take(MOST_STREAMS)
        .collect();
    let micros = |key: &str| -> Option<f64> {
        senders
            .iter()
            .filter_map(|sender| plausible(sender.get(key)?.as_f64()?))
            .filter(|value| *value > 0.0)
            .reduce(f64::min)
            .map(|micros| micros / 1e6)
    };
    let mut untold = vec![
        "the rate of the slowest link and the windows: iperf3 does not report them".to_owned(),
    ];
    let mut assumed = Vec::new();
    let loss = match (
        sum("sum_sent", "retransmits"),
        sum("sum_sent", "bytes"),
        segment,
    ) {
        (Some(again), Some(bytes), Some(segment)) if bytes > 0.0 => {
            assumed.push("every retransmission means one lost packet".to_owned());
            Some((again * f64::from(segment) / bytes).clamp(0.0, 1.0))
        }
        _ => {
            untold.push(
                "loss: only the sender counts retransmissions (without --reverse, on the client)"
                    .to_owned(),
            );
            None
        }
    };
    if senders.len() > 1 {
        assumed.push(format!(
            "one connection has the same loss rate as {} together",
            senders.len()
        ));
    }
    let round_trip = micros("min_rtt");
    if round_trip.is_none() {
        untold.push("the round trip: only a sender on Linux reports it".to_owned());
    }
    let place = start
        .get("connecting_to")
        .and_then(|place| place.get("host"))
        .and_then(Value::as_str)
        .unwrap_or("iperf3");
    Ok(Measured {
        name: shown(place),
        stretches: vec![Stretch {
            end: "receiver".to_owned(),
            round_trip,
            loss,
        }],
        throughput: Some(throughput),
        peak: peak(&json).or(Some(throughput)),
        mean_round_trip: micros("mean_rtt"),
        segment,
        congestion_control: end
            .get("sender_tcp_congestion")
            .and_then(Value::as_str)
            .map(shown),
        untold,
        assumed,
        ..Measured::default()
    })
}

/// Largest number of streams and intervals that are read.
const MOST_STREAMS: usize = 1024;
const MOST_INTERVALS: usize = 100_000;

/// The fastest interval.
fn peak(json: &Value) -> Option<f64> {
    json.get("intervals")?
        .as_array()?
        .iter()
        .take(MOST_INTERVALS)
        .filter_map(|interval| plausible(interval.get("sum")?.get("bits_per_second")?.as_f64()?))
        .reduce(f64::max)
}
