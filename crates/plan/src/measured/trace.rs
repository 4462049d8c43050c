//! TCP connections, reconstructed from the packets at a capture point.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use midspan_wire::{TcpPacket, options};

use super::{Measured, Stretch, share};

/// Largest number of connections that are followed; further ones are left out.
const MOST_CONNECTIONS: usize = 4096;
/// Largest number of pieces of data after holes, and of segments that wait for their ACK, in each
/// direction.
const MOST_PIECES: usize = 1024;
const MOST_WAITING: usize = 4096;
/// Length of the spans for which the peak rate is computed, in seconds.
const PEAK: f64 = 0.1;
/// Fewer samples than this give no loss rate.
const ENOUGH: u64 = 100;
/// Kinds of TCP options (RFC 9293, RFC 7323).
const SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;

/// A TCP packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    time: f64,
    source: SocketAddr,
    destination: SocketAddr,
    sequence: u32,
    acknowledgement: Option<u32>,
    syn: bool,
    /// FIN or RST.
    ending: bool,
    payload: u32,
    window: u16,
    segment_option: Option<u16>,
    scale_option: Option<u8>,
}

impl Seen {
    /// The TCP segment in `packet`, captured at `time`; `length` is that of the IP packet on the
    /// wire.
    pub(super) fn from_packet(time: f64, packet: &TcpPacket<'_>, length: usize) -> Option<Self> {
        let tcp = &packet.tcp;
        // Zero if the packet comes from segmentation offload and is too large for the field.
        let length = match packet.stated_length {
            stated if stated > packet.ip_header => stated,
            _ => length,
        };
        let payload = length.checked_sub(packet.headers())?;
        let (mut segment_option, mut scale_option) = (None, None);
        for option in options(tcp.options()).flatten() {
            match (option.kind, option.content) {
                (SEGMENT_SIZE, &[high, low]) => {
                    segment_option = Some(u16::from_be_bytes([high, low]));
                }
                (WINDOW_SCALE, &[scale]) => scale_option = Some(scale.min(14)),
                _ => {}
            }
        }
        Some(Self {
            time,
            source: packet.source,
            destination: packet.destination,
            sequence: tcp.sequence_number(),
            acknowledgement: tcp.ack().then(|| tcp.acknowledgment_number()),
            syn: tcp.syn(),
            ending: tcp.fin() || tcp.rst(),
            payload: u32::try_from(payload).ok()?,
            window: tcp.window_size(),
            segment_option,
            scale_option,
        })
    }
}

/// All connections of a capture.
#[derive(Debug, Default)]
pub(super) struct Connections {
    known: BTreeMap<(SocketAddr, SocketAddr), Connection>,
    left_out: bool,
}

impl Connections {
    pub(super) fn add(&mut self, seen: &Seen) {
        let forward = seen.source <= seen.destination;
        let key = if forward {
            (seen.source, seen.destination)
        } else {
            (seen.destination, seen.source)
        };
        if !self.known.contains_key(&key) && self.known.len() >= MOST_CONNECTIONS {
            self.left_out = true;
            return;
        }
        let connection = self.known.entry(key).or_default();
        connection.add(seen, usize::from(!forward));
    }

    /// The direction with more data of each connection, the one with the most data first.
    pub(super) fn measured(&self) -> Vec<Measured> {
        let mut found: Vec<(u64, Measured)> = self
            .known
            .iter()
            .filter_map(|(ends, connection)| {
                let busier =
                    usize::from(connection.data_paths[1].bytes > connection.data_paths[0].bytes);
                let mut measured = connection.measured(*ends, busier)?;
                if self.left_out {
                    measured.untold.push(format!(
                        "connections beyond the first {MOST_CONNECTIONS} of the capture"
                    ));
                }
                Some((connection.data_paths[busier].bytes, measured))
            })
            .collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        found.into_iter().map(|(_, measured)| measured).collect()
    }
}

/// A connection: the data from its lower address to its higher one, and the data back.
#[derive(Debug, Default)]
struct Connection {
    data_paths: [DataWay; 2],
    handshake: Handshake,
}

/// When the packets of the handshake passed.
#[derive(Debug, Default)]
struct Handshake {
    /// The SYN's direction and time; `None` if it was sent twice.
    syn: Option<(usize, f64)>,
    answer: Option<f64>,
    /// From the SYN to its answer: the round trip on the side of the server.
    beyond: Option<f64>,
    /// From the answer to the ACK: the round trip on the side of the client.
    before: Option<f64>,
    again: bool,
}

/// Data in one direction, and the ACKs in the other direction.
#[derive(Debug, Default)]
struct DataWay {
    /// Sequence number and position of the last packet: numbers wrap around, positions do not.
    last: Option<(u32, i64)>,
    /// The end of the data that was seen.
    highest: i64,
    /// The pieces that were seen, separated by holes, in order.
    pieces: Vec<(i64, i64)>,
    segments: u64,
    bytes: u64,
    largest: u32,
    /// Segments seen before (lost after this point), and segments that fill a hole (lost before
    /// this point).
    repeated: u64,
    filled: u64,
    first_time: Option<f64>,
    last_time: f64,
    /// New segments that wait for their ACK: end and time.
    waiting: VecDeque<(i64, f64)>,
    least_behind: Option<f64>,
    sum_behind: f64,
    samples: u64,
    /// ACKs without data that the receiver of this data sent.
    acks: u64,
    /// The options that the receiver of this data announced.
    segment_option: Option<u16>,
    scale: Option<u8>,
    largest_window: u64,
    /// The number of the present span of [`PEAK`] seconds, and the bytes in it.
    span: (i64, u64),
    /// The most bytes of any earlier span.
    peak: u64,
}

impl Connection {
    fn add(&mut self, seen: &Seen, data_path: usize) {
        let back = 1 - data_path;
        if seen.syn {
            self.handshake.syn(seen, data_path);
            // The options of this host apply to data towards it.
            self.data_paths[back].segment_option = seen.segment_option;
            self.data_paths[back].scale = Some(seen.scale_option.unwrap_or(0));
        } else {
            self.handshake.acknowledged(seen, data_path);
        }
        if seen.payload > 0 && !seen.syn {
            self.data_paths[data_path].data(seen);
        }
        if let Some(number) = seen.acknowledgement.filter(|_| !seen.syn) {
            let pure = seen.payload == 0 && !seen.ending;
            self.data_paths[back].acknowledge(seen, number, pure);
        }
    }

    fn measured(&self, ends: (SocketAddr, SocketAddr), data_path: usize) -> Option<Measured> {
        let data = &self.data_paths[data_path];
        if data.bytes == 0 {
            return None;
        }
        let (from, to) = if data_path == 0 {
            ends
        } else {
            (ends.1, ends.0)
        };
        let opener_sends = self
            .handshake
            .syn
            .is_some_and(|(opener, _)| opener == data_path);
        let (sender_side, receiver_side) = if opener_sends {
            (self.handshake.before, self.handshake.beyond)
        } else {
            (self.handshake.beyond, self.handshake.before)
        };
        let behind = match (data.least_behind, receiver_side) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        };
        let mut untold =
            vec!["the rate of the slowest link: a capture does not show it".to_owned()];
        let mut assumed = vec![
            "data that passed twice was lost after the capture point, and data that came late was \
             lost before it; packets that overtook others count as lost"
                .to_owned(),
        ];
        if data.segments < ENOUGH {
            untold.push(format!(
                "a small loss: {} segments are too few to show it",
                data.segments
            ));
        }
        if data.largest > 1460 * 2 {
            assumed.push(
                "segments were captured before they were cut (offload): counts are too low"
                    .to_owned(),
            );
        }
        let lost_behind = share(data.repeated, data.segments);
        let lost_before = share(data.filled, data.segments + data.filled);
        let stretch = |end: &str, round_trip, loss| Stretch {
            end: end.to_owned(),
            round_trip,
            loss,
        };
        let stretches = if let Some(before) = sender_side {
            vec![
                stretch("capture", Some(before), lost_before),
                stretch("receiver", behind, lost_behind),
            ]
        } else {
            untold.push(
                "the round trip between the sender and the capture point: the capture does not \
                 contain the handshake"
                    .to_owned(),
            );
            assumed.push("that round trip is zero: capture at the sender".to_owned());
            vec![stretch(
                "receiver",
                behind,
                share(data.repeated + data.filled, data.segments),
            )]
        };
        if data.scale.is_none() {
            untold.push("the receiver's window: only the handshake contains its scale".to_owned());
        }
        let duration = data.last_time - data.first_time.unwrap_or(data.last_time);
        let number = |count: u64| count as f64;
        let throughput = (duration > 0.0).then(|| number(data.bytes) * 8.0 / duration);
        let peak = number(data.peak.max(data.span.1)) * 8.0 / PEAK;
        let full = data
            .segment_option
            .map_or(data.largest, |size| data.largest.min(size.into()));
        Some(Measured {
            name: format!("{from} to {to}"),
            stretches,
            throughput,
            peak: (duration > PEAK).then_some(peak).or(throughput),
            mean_round_trip: (data.samples > 0).then(|| data.sum_behind / number(data.samples)),
            segment: Some(full),
            packets_per_ack: (data.acks > 0)
                .then(|| number(data.bytes) / f64::from(full.max(1)) / number(data.acks)),
            congestion_control: None,
            receive_window: data
                .scale
                .map(|scale| data.largest_window << scale)
                .filter(|window| *window > 0),
            limited: None,
            untold,
            assumed,
        })
    }
}

impl Handshake {
    fn syn(&mut self, seen: &Seen, data_path: usize) {
        if seen.acknowledgement.is_none() {
            self.again |= self.syn.is_some();
            self.syn = Some((data_path, seen.time));
        } else {
            self.again |= self.answer.is_some();
            self.answer = Some(seen.time);
            if let (Some((_, syn)), false) = (self.syn, self.again) {
                self.beyond = positive(seen.time - syn);
            }
        }
    }

    fn acknowledged(&mut self, seen: &Seen, data_path: usize) {
        let by_opener = self.syn.is_some_and(|(opener, _)| opener == data_path);
        if self.before.is_none()
            && by_opener
            && !self.again
            && seen.acknowledgement.is_some()
            && let Some(answer) = self.answer
        {
            self.before = positive(seen.time - answer);
        }
    }
}

/// A span of time, if it is not negative: a clock may have been corrected backwards.
fn positive(span: f64) -> Option<f64> {
    (span.is_finite() && span >= 0.0).then_some(span)
}

impl DataWay {
    /// The position of a sequence number, near the last one.
    fn place(&self, number: u32) -> i64 {
        let (last, place) = self.last.unwrap_or((number, 0));
        // Two's complement: numbers up to 2³¹ before or after.
        let step = number.wrapping_sub(last).cast_signed();
        place.saturating_add(i64::from(step))
    }

    fn data(&mut self, seen: &Seen) {
        let start = self.place(seen.sequence);
        let end = start.saturating_add(i64::from(seen.payload));
        if self.last.is_none() {
            self.highest = start;
            self.pieces.push((start, start));
        }
        self.last = Some((seen.sequence, start));
        self.segments += 1;
        self.largest = self.largest.max(seen.payload);
        self.first_time.get_or_insert(seen.time);
        self.last_time = self.last_time.max(seen.time);
        let news = self.learn(start, end);
        if news == 0 {
            self.repeated += 1;
            // Its ACK may be for either copy.
            self.waiting
                .retain(|(waits, _)| *waits < start || *waits > end);
        } else if start < self.highest {
            self.filled += 1;
            self.waiting.clear();
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((end, seen.time));
        }
        self.highest = self.highest.max(end);
        self.bytes += news;
        self.count_peak(seen.time, news);
    }

    /// Adds a piece; returns how many of its bytes are new.
    fn learn(&mut self, start: i64, end: i64) -> u64 {
        let first = self.pieces.partition_point(|piece| piece.1 < start);
        let mut last = first;
        let (mut low, mut high, mut known) = (start, end, 0);
        while let Some(piece) = self.pieces.get(last).filter(|piece| piece.0 <= end) {
            known += (piece.1.min(end) - piece.0.max(start)).max(0);
            low = low.min(piece.0);
            high = high.max(piece.1);
            last += 1;
        }
        self.pieces.splice(first..last, [(low, high)]);
        if self.pieces.len() > MOST_PIECES {
            // The oldest hole is no longer tracked.
            let end = self.pieces[1].1;
            self.pieces[0].1 = end;
            self.pieces.remove(1);
        }
        u64::try_from(end - start - known).unwrap_or(0)
    }

    fn acknowledge(&mut self, seen: &Seen, number: u32, pure: bool) {
        if self.last.is_none() {
            return;
        }
        self.largest_window = self.largest_window.max(u64::from(seen.window));
        if pure {
            self.acks += 1;
        }
        let place = self.place(number);
        let mut newest = None;
        while let Some((end, sent)) = self.waiting.front().copied() {
            if end > place {
                break;
            }
            newest = Some(sent);
            self.waiting.pop_front();
        }
        if let Some(sample) = newest.and_then(|sent| positive(seen.time - sent)) {
            self.least_behind = Some(self.least_behind.map_or(sample, |least| least.min(sample)));
            self.sum_behind += sample;
            self.samples += 1;
        }
    }

    fn count_peak(&mut self, time: f64, bytes: u64) {
        #[allow(clippy::cast_possible_truncation)] // Saturates.
        let span = (time / PEAK) as i64;
        if span != self.span.0 {
            self.peak = self.peak.max(self.span.1);
            self.span = (span, 0);
        }
        self.span.1 += bytes;
    }
}
