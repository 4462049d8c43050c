//! The metrics of a running proxy, in the OpenMetrics text format (docs/observability.md).

use std::collections::BTreeMap;

use super::{Measured, MeasuredError, Stretch, check_size, number, shown};

/// Largest number of listeners that are read; further ones are left out.
const MOST_LISTENERS: usize = 256;
/// Bytes of data in an ordinary segment, to convert bytes to segments.
const SEGMENT: f64 = 1448.0;

/// Cumulative counts of a histogram by the upper bound of each bucket.
type Buckets = Vec<(f64, f64)>;

/// The values that were read for one listener.
#[derive(Debug, Default)]
struct Listener {
    least: [Buckets; 2],
    round_trips: [Buckets; 2],
    rates: [Buckets; 2],
    again: [f64; 2],
    busy: [f64; 2],
    window: [f64; 2],
    buffer: [f64; 2],
    /// Bytes passed on towards the client and towards the server.
    bytes: [f64; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Reads the response to `GET /metrics`: each listener that has passed on data, in the direction
/// with more data, the listeners with the most data first.
///
/// # Errors
/// The text has none of the metrics of legs, or no data was passed on.
pub fn read(text: &str) -> Result<Vec<Measured>, MeasuredError> {
    check_size(text)?;
    let mut listeners: BTreeMap<String, Listener> = BTreeMap::new();
    let mut any = false;
    for line in text.lines().filter(|line| line.starts_with("midspan_")) {
        let Some(sample) = Sample::parse(line) else {
            continue;
        };
        any = true;
        let Some(name) = sample.label("listener") else {
            continue;
        };
        if !listeners.contains_key(&name) && listeners.len() >= MOST_LISTENERS {
            continue;
        }
        listeners.entry(name).or_default().add(&sample);
    }
    if !any {
        return Err(MeasuredError::Format {
            program: "GET /metrics",
            what: "it contains no metric of Midspan".to_owned(),
        });
    }
    let mut found: Vec<(f64, Measured)> = listeners
        .into_iter()
        .filter_map(|(name, listener)| listener.measured(&name))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    if found.is_empty() {
        return Err(MeasuredError::Empty {
            hint: "read the metrics again after sessions have moved data",
        });
    }
    Ok(found.into_iter().map(|(_, measured)| measured).collect())
}

/// A line: the name, the labels as written, and the value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, labels, rest) = match line.split_once('{') {
            Some((name, rest)) => {
                let end = closing(rest)?;
                (name, &rest[..end], &rest[end + 1..])
            }
            None => {
                let (name, rest) = line.split_once(' ')?;
                (name, "", rest)
            }
        };
        Some(Self {
            name: head,
            labels,
            value: number(rest.split_whitespace().next()?)?,
        })
    }

    /// The value of a label, unescaped.
    fn label(&self, wanted: &str) -> Option<String> {
        let mut rest = self.labels;
        while let Some((key, after)) = rest.split_once("=\"") {
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next()?.1 {
                        'n' => value.push('\n'),
                        other => value.push(other),
                    },
                    (_, other) => value.push(other),
                }
            };
            if key.trim_start_matches([',', ' ']) == wanted {
                return Some(value);
            }
            rest = &after[end + 1..];
        }
        None
    }
}

/// The end of the labels: a quoted value may contain a brace.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

impl Listener {
    fn add(&mut self, sample: &Sample<'_>) {
        let towards = |label: &str| match sample.label(label)?.as_str() {
            side if side.ends_with("client") => Some(CLIENT),
            side if side.ends_with("server") => Some(SERVER),
            _ => None,
        };
        if sample.name == "midspan_forwarded_bytes_total" {
            if let Some(side) = towards("direction") {
                self.bytes[side] += sample.value;
            }
            return;
        }
        let Some(leg) = towards("leg") else { return };
        let counter = match sample.name {
            "midspan_leg_retransmitted_segments_total" => &mut self.again[leg],
            "midspan_leg_busy_seconds_total" => &mut self.busy[leg],
            "midspan_leg_receive_window_limited_seconds_total" => &mut self.window[leg],
            "midspan_leg_send_buffer_limited_seconds_total" => &mut self.buffer[leg],
            _ => return self.add_bucket(sample, leg),
        };
        *counter += sample.value;
    }

    fn add_bucket(&mut self, sample: &Sample<'_>, leg: usize) {
        let buckets = match sample.name {
            "midspan_leg_minimum_round_trip_time_seconds_bucket" => &mut self.least[leg],
            "midspan_leg_round_trip_time_seconds_bucket" => &mut self.round_trips[leg],
            "midspan_leg_delivery_rate_bits_per_second_bucket" => &mut self.rates[leg],
            _ => return,
        };
        let bound = sample.label("le").and_then(|bound| number(&bound));
        // The last bucket has no bound; its values count as the previous bound.
        buckets.push((bound.unwrap_or(f64::INFINITY), sample.value));
    }

    /// The direction with more data, and its amount in bytes.
    fn measured(self, name: &str) -> Option<(f64, Measured)> {
        let to = if self.bytes[SERVER] > self.bytes[CLIENT] {
            SERVER
        } else {
            CLIENT
        };
        let bytes = self.bytes[to];
        if bytes <= 0.0 {
            return None;
        }
        let from = 1 - to;
        let side = |leg: usize| if leg == CLIENT { "client" } else { "server" };
        let stretch = |leg: usize, end: &str, loss| Stretch {
            end: end.to_owned(),
            round_trip: quantile(&self.least[leg], 0.5),
            loss,
        };
        // Each segment arrived once, in addition to those that were sent again.
        let sent = bytes / SEGMENT + self.again[to];
        let loss = (self.again[to] / sent).clamp(0.0, 1.0);
        let busy = self.busy[to];
        let share = |part: f64| (part / busy).clamp(0.0, 1.0);
        let mean = quantile(&self.round_trips[to], 0.5).zip(quantile(&self.round_trips[from], 0.5));
        Some((
            bytes,
            Measured {
                name: format!("listener {} towards the {}", shown(name), side(to)),
                stretches: vec![
                    stretch(from, "proxy", None),
                    stretch(to, side(to), Some(loss)),
                ],
                throughput: quantile(&self.rates[to], 0.5),
                peak: quantile(&self.rates[to], 1.0),
                mean_round_trip: mean.map(|(one, other)| one + other),
                limited: (busy > 0.0).then(|| [share(self.window[to]), share(self.buffer[to])]),
                untold: vec![
                    format!(
                        "the loss on the leg of the {}, whose sender is not the proxy",
                        side(from)
                    ),
                    "segments, ACKs and the slowest link".to_owned(),
                ],
                assumed: vec![
                    "one session is like the median of all".to_owned(),
                    format!("there is no loss on the leg of the {}", side(from)),
                    "every retransmission means one lost packet, and segments are full".to_owned(),
                ],
                ..Measured::default()
            },
        ))
    }
}

/// The value below which `share` of a histogram lies, assuming even distribution within a bucket;
/// `None` for an empty histogram.
fn quantile(buckets: &Buckets, share: f64) -> Option<f64> {
    let mut buckets = buckets.clone();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets.last()?.1;
    let wanted = total * share;
    let (mut low, mut below) = (0.0, 0.0);
    if total <= 0.0 {
        return None;
    }
    for (bound, count) in buckets {
        if count >= wanted && count > below {
            if bound.is_infinite() {
                break;
            }
            return Some(
                low + (bound - low) * ((wanted - below) / (count - below)).clamp(0.0, 1.0),
            );
        }
        if bound.is_finite() {
            (low, below) = (bound, count);
        }
    }
    Some(low)
}
