//! `ss -tin`: the kernel's information on its connections.

use super::{Measured, MeasuredError, Stretch, check_size, number, share, shown};

/// Largest number of connections that are read.
const MOST_CONNECTIONS: usize = 100_000;

/// Reads the output of `ss -tin` (or `ss -tino`, `ss -ti`): the connections that have sent data,
/// those that sent the most first.
///
/// # Errors
/// No connection has sent data.
pub fn read(text: &str) -> Result<Vec<Measured>, MeasuredError> {
    check_size(text)?;
    let mut found: Vec<(u64, Measured)> = Vec::new();
    let mut ends: Option<&str> = None;
    let mut any = false;
    for line in text.lines() {
        let indented = line.starts_with([' ', '\t']);
        if !indented {
            ends = line.starts_with("ESTAB").then_some(line).or_else(|| {
                (line.contains("-WAIT") || line.starts_with("CLOSING")).then_some(line)
            });
            any |= ends.is_some() || line.starts_with("State");
            continue;
        }
        let Some(heading) = ends.take() else { continue };
        if found.len() < MOST_CONNECTIONS {
            found.extend(connection(heading, line));
        }
    }
    if !any {
        return Err(MeasuredError::Format {
            program: "ss -tin",
            what: "there is no line that begins with State or ESTAB".to_owned(),
        });
    }
    found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    if found.is_empty() {
        return Err(MeasuredError::Empty {
            hint: "run `ss -tin` on the host that sends, while it sends",
        });
    }
    Ok(found.into_iter().map(|(_, measured)| measured).collect())
}

/// One connection, with the number of bytes that it sent; `None` if it sent nothing.
fn connection(heading: &str, line: &str) -> Option<(u64, Measured)> {
    let words: Vec<&str> = line.split_whitespace().take(256).collect();
    let value = |key: &str| {
        words
            .iter()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))
    };
    let count = |key: &str| value(key).and_then(|text| text.parse::<u64>().ok());
    let rate = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        bit_rate(words.get(at + 1)?)
    };
    let sent = count("bytes_sent").or_else(|| count("bytes_acked"))?;
    let segments = count("data_segs_out")?;
    if segments == 0 {
        return None;
    }
    let round_trip = value("minrtt").and_then(number).filter(|time| *time > 0.0);
    let mean = value("rtt").and_then(|times| number(times.split('/').next()?));
    let again = value("retrans").and_then(|text| text.rsplit('/').next()?.parse::<u64>().ok());
    let mut untold = vec![
        "the rate of the slowest link and the packets per ACK: ss does not report them".to_owned(),
    ];
    let mut assumed = vec!["every retransmission means one lost packet".to_owned()];
    if again.is_none() {
        assumed.push("there were no retransmissions, because ss reports none".to_owned());
    }
    if words.contains(&"app_limited") {
        untold.push(
            "the rate of the path: the application did not always have data to send".to_owned(),
        );
    }
    let milliseconds = |key: &str| {
        let text = value(key)?;
        number(text.split("ms").next()?)
    };
    let limited = milliseconds("busy").filter(|busy| *busy > 0.0).map(|busy| {
        ["rwnd_limited", "sndbuf_limited"]
            .map(|key| (milliseconds(key).unwrap_or(0.0) / busy).clamp(0.0, 1.0))
    });
    let mut columns = heading.split_whitespace().skip(3);
    let (local, peer) = (columns.next()?, columns.next()?);
    let delivery = rate("delivery_rate");
    Some((
        sent,
        Measured {
            name: shown(&format!("{local} to {peer}")),
            stretches: vec![Stretch {
                end: "receiver".to_owned(),
                round_trip: round_trip.or(mean).map(|time| time / 1e3),
                loss: share(again.unwrap_or(0), segments),
            }],
            throughput: delivery,
            peak: delivery,
            mean_round_trip: mean.map(|time| time / 1e3),
            segment: count("mss").and_then(|size| u32::try_from(size).ok()),
            packets_per_ack: None,
            congestion_control: control(&words).map(str::to_owned),
            receive_window: count("snd_wnd").filter(|window| *window > 0),
            limited,
            untold,
            assumed,
        },
    ))
}

/// The congestion control is the first word without a colon, after the flags.
fn control<'a>(words: &[&'a str]) -> Option<&'a str> {
    const KNOWN: [&str; 14] = [
        "bbr",
        "bic",
        "cdg",
        "cubic",
        "dctcp",
        "highspeed",
        "htcp",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "reno",
        "vegas",
        "westwood",
    ];
    words
        .iter()
        .take(6)
        .copied()
        .find(|word| KNOWN.contains(word))
}

/// "19139656bps", or older "19.1Mbps".
fn bit_rate(text: &str) -> Option<f64> {
    let text = text.strip_suffix("bps")?;
    let (digits, scale) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        b'T' => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    number(digits).map(|value| value * scale)
}
