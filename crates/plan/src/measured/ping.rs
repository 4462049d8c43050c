//! `ping`, of iputils, inetutils or BusyBox.

use super::{Measured, MeasuredError, Stretch, check_size, number, shown};

/// Reads the output of `ping`.
///
/// # Errors
/// The summary is missing, or there was no reply.
pub fn read(text: &str) -> Result<Measured, MeasuredError> {
    check_size(text)?;
    let wrong = |what: &str| MeasuredError::Format {
        program: "ping",
        what: what.to_owned(),
    };
    let counts = text
        .lines()
        .find(|line| line.contains("packets transmitted"))
        .ok_or_else(|| wrong("there is no line with \"packets transmitted\""))?;
    let count = |after: &str| {
        counts
            .split(',')
            .find(|part| part.contains(after))
            .and_then(|part| number(part.split_whitespace().next()?))
    };
    let sent = count("transmitted").ok_or_else(|| wrong("no packets were counted"))?;
    let received = count("received").unwrap_or(0.0).min(sent);
    if sent < 1.0 || received < 1.0 {
        return Err(wrong("there was no reply: the host may not answer pings"));
    }
    let times = text
        .lines()
        .find(|line| line.contains("min/avg/max") && line.contains('='))
        .and_then(|line| line.split('=').nth(1))
        .ok_or_else(|| wrong("there is no line with \"min/avg/max\""))?;
    let mut times = times
        .split(['/', ' '])
        .filter(|part| !part.is_empty())
        .map_while(number);
    let least = times
        .next()
        .ok_or_else(|| wrong("there is no round-trip time"))?;
    let mean = times.next();
    // Losses in both directions count: each direction loses 1 − √(1 − p).
    let one_way = 1.0 - (received / sent).sqrt();
    let host = text
        .lines()
        .find_map(|line| line.strip_prefix("PING "))
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or("the host");
    let mut untold: Vec<String> = [
        "rates and queues",
        "the TCP at either end, its segments and its windows",
    ]
    .map(|what| format!("{what}: ping does not report them"))
    .into();
    let mut assumed = vec![
        "loss is the same in both directions, and for large packets as for small ones".to_owned(),
        "the path treats ICMP like TCP".to_owned(),
    ];
    if received >= sent {
        // The rule of three: 95 % confidence.
        let bound = (3.0 / sent).min(1.0) * 100.0;
        untold.push(format!(
            "a loss below {bound:.2} %: {sent:.0} pings without loss do not show it"
        ));
        assumed.push("there is no loss".to_owned());
    }
    Ok(Measured {
        name: shown(host),
        stretches: vec![Stretch {
            end: "receiver".to_owned(),
            round_trip: Some(least / 1e3),
            loss: Some(one_way),
        }],
        mean_round_trip: mean.map(|mean| mean / 1e3),
        untold,
        assumed,
        ..Measured::default()
    })
}
