//! The exchange of rows: what a node reports of its legs and its load.
//!
//! ```text
//! GET /midspan/row HTTP/1.1
//! Host: fra
//!
//! HTTP/1.1 200 OK
//! Content-Length: 69
//! ETag: "5d1a7be2"
//!
//! load 120 busy
//! leg sin 70125 1000 20000 cubic
//! leg ams 60033 100 - bbr
//!
//! GET /midspan/row HTTP/1.1
//! Host: fra
//! If-None-Match: "5d1a7be2"
//!
//! HTTP/1.1 304 Not Modified
//! ETag: "5d1a7be2"
//! ```
//!
//! The second request names the row that its sender has (RFC 9110 §13.1.2): the answer has no row if it is still the
//! same.
//!
//! A leg has the node at its other end, the round trip in microseconds, the loss in millionths, the rate in
//! kbit/s (`-` if it is unknown), and the congestion control of its sender. A reader leaves out lines that
//! begin with another word, so that later versions can add some.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig};
use midspan_policy::overlay::{Congestion, MOST_ROW_LEGS, NodeName, Row, RowLeg};
use midspan_units::{BitRate, Probability, TimeSpan};
use thiserror::Error;

use crate::exchange::fields;
use crate::exchange::head::{Found, HeadEnd};
use crate::exchange::is_whole;
use crate::row_tag::RowTag;

/// The path of the request.
pub(super) const PATH: &str = "/midspan/row";

/// Most bytes of an answer's head, and of the row behind it. A leg has at most 90 bytes.
const LONGEST_HEAD: usize = 2048;
const LONGEST_ROW: usize = 8192;
const MOST_FIELDS: usize = 32;
/// Longest round trip that is read, and highest rate: an hour, and 1 Tbit/s.
const LONGEST_ROUND_TRIP: u64 = 3_600_000_000;
const HIGHEST_RATE: u64 = 1_000_000_000;
const MILLION: f64 = 1e6;

/// Why bytes are not the answer to the request for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidRow {
    /// Its head or its row is too large.
    #[error("the answer is larger than {} bytes", LONGEST_HEAD + LONGEST_ROW)]
    TooLarge,
    /// It is not an HTTP answer with status 200 and a length, nor one with status 304 to a request that named a row.
    #[error("this is no answer with a row")]
    NoAnswer,
    /// A line of the row is malformed, or there are too many legs.
    #[error("the row is malformed")]
    Malformed,
}

/// Reads the answers to requests for rows, one after the other.
#[derive(Debug, Clone, Default)]
pub struct RowReader {
    bytes: Vec<u8>,
    end: HeadEnd,
    /// The head of the answer, once it is complete.
    head: Option<Head>,
    /// The last row that had a tag.
    last: Option<(RowTag, Row)>,
}

/// The head of an answer.
#[derive(Debug, Clone, Copy)]
struct Head {
    length: usize,
    /// The length of the row behind it, and the row's tag; `None` if the row is that of the answer before.
    row: Option<(usize, Option<RowTag>)>,
}

/// The request for the row of this node, by a sender that may have it already.
#[must_use]
pub fn row_request(node: &NodeName, tag: Option<RowTag>) -> Vec<u8> {
    let tag = tag.map_or_else(String::new, |tag| format!("If-None-Match: {tag}\r\n"));
    format!("GET {PATH} HTTP/1.1\r\nHost: {node}\r\n{tag}\r\n").into_bytes()
}

/// The answer with this row, or without it if it is the one that the sender of the request has.
#[must_use]
pub fn row_answer(row: &Row, tag: Option<RowTag>) -> Vec<u8> {
    let body = write(row);
    let new = RowTag::of(&body);
    if tag == Some(new) {
        return format!("HTTP/1.1 304 Not Modified\r\nETag: {new}\r\n\r\n").into_bytes();
    }
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: {new}\r\n\r\n{body}").into_bytes()
}

impl RowReader {
    /// The tag of the last row, for the next request over the same connection.
    #[must_use]
    pub fn tag(&self) -> Option<RowTag> {
        self.last.as_ref().map(|(tag, _)| *tag)
    }

    /// Reads the next bytes; the row, once it is complete: the last one again if it is still the same. Bytes behind it
    /// belong to no answer.
    ///
    /// # Errors
    /// The bytes are no answer with a row, or too many.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Row>, InvalidRow> {
        let room = LONGEST_HEAD + LONGEST_ROW - self.bytes.len().min(LONGEST_HEAD + LONGEST_ROW);
        if bytes.len() > room {
            return Err(InvalidRow::TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        let head = match self.head {
            Some(head) => head,
            None => match self.end.search(&self.bytes) {
                Found::Nothing if self.bytes.len() < LONGEST_HEAD => return Ok(None),
                Found::Nothing => return Err(InvalidRow::TooLarge),
                Found::Wrong => return Err(InvalidRow::NoAnswer),
                Found::End(length) => Head {
                    length,
                    row: read_head(self.bytes.get(..length).unwrap_or(&[]))?,
                },
            },
        };
        self.head = Some(head);
        let last = match head.row {
            None => self.last.take(),
            Some((length, tag)) => {
                let Some(text) = self.bytes.get(head.length..head.length + length) else {
                    return Ok(None);
                };
                let text = std::str::from_utf8(text).map_err(|_| InvalidRow::Malformed)?;
                let row = read(text).ok_or(InvalidRow::Malformed)?;
                let Some(tag) = tag else {
                    *self = Self::default();
                    return Ok(Some(row));
                };
                Some((tag, row))
            }
        };
        let row = last.as_ref().map(|(_, row)| row.clone());
        *self = Self {
            last,
            ..Self::default()
        };
        row.map(Some).ok_or(InvalidRow::NoAnswer)
    }
}

/// The length of the row behind this head, and its tag; `None` if no row follows.
fn read_head(head: &[u8]) -> Result<Option<(usize, Option<RowTag>)>, InvalidRow> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut fields,
    );
    match response.code {
        _ if !is_whole(parsed, head.len()) => return Err(InvalidRow::NoAnswer),
        Some(200) => {}
        Some(304) => return Ok(None),
        _ => return Err(InvalidRow::NoAnswer),
    }
    let tag = RowTag::of_field(response.headers, "etag");
    let mut lengths = fields::values(response.headers, "content-length");
    let length = lengths
        .next()
        .and_then(|value| std::str::from_utf8(value).ok());
    let length = length.and_then(|text| text.trim().parse::<usize>().ok());
    match (length, lengths.next()) {
        (Some(length), None) if length <= LONGEST_ROW => Ok(Some((length, tag))),
        (Some(_), None) => Err(InvalidRow::TooLarge),
        _ => Err(InvalidRow::NoAnswer),
    }
}

fn write(row: &Row) -> String {
    let word = |is: bool, word: &'static str| if is { word } else { "" };
    let mut text = format!(
        "load {}{}{}\n",
        row.load,
        word(row.is_busy, " busy"),
        word(row.is_draining, " draining")
    );
    for leg in row.legs.iter().take(MOST_ROW_LEGS) {
        let rate = leg.rate.map(|rate| (rate.bits_per_second() / 1000).max(1));
        text.push_str(&format!(
            "leg {} {} {:.0} {} {}\n",
            leg.to,
            leg.round_trip.nanoseconds() / 1000,
            leg.loss.as_f64() * MILLION,
            rate.map_or_else(|| "-".to_owned(), |rate| rate.min(HIGHEST_RATE).to_string()),
            leg.congestion.name(),
        ));
    }
    text
}

fn read(text: &str) -> Option<Row> {
    let mut row = Row::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("load") => {
                row.load = words.next()?.parse().ok().filter(|load| *load <= 1000)?;
                for word in words {
                    row.is_busy |= word == "busy";
                    row.is_draining |= word == "draining";
                }
            }
            Some("leg") if row.legs.len() < MOST_ROW_LEGS => row.legs.push(read_leg(words)?),
            Some("leg") => return None,
            _ => {}
        }
    }
    Some(row)
}

fn read_leg<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<RowLeg> {
    let to = words.next()?.parse().ok()?;
    let microseconds: u64 = words.next()?.parse().ok()?;
    let loss: u32 = words.next()?.parse().ok()?;
    let rate = match words.next()? {
        "-" => None,
        kilobits => {
            let kilobits: u64 = kilobits.parse().ok()?;
            let kilobits = Some(kilobits).filter(|rate| *rate <= HIGHEST_RATE)?;
            Some(BitRate::from_bits_per_second(kilobits * 1000)?)
        }
    };
    let congestion = Congestion::of_name(words.next()?);
    let is_possible = (1..=LONGEST_ROUND_TRIP).contains(&microseconds);
    is_possible.then_some(())?;
    Some(RowLeg {
        to,
        round_trip: TimeSpan::from_nanoseconds(microseconds * 1000),
        loss: Probability::from_f64(f64::from(loss) / MILLION)?,
        rate,
        congestion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::overlay::{IDLE_INTERVAL, USED_INTERVAL};
    use proptest::prelude::*;

    fn leg(to: &str, microseconds: u64, loss: u32, rate: Option<u64>) -> RowLeg {
        RowLeg {
            to: to.parse().unwrap(),
            round_trip: TimeSpan::from_nanoseconds(microseconds * 1000),
            loss: Probability::from_f64(f64::from(loss) / MILLION).unwrap(),
            rate: rate.and_then(|rate| BitRate::from_bits_per_second(rate * 1000)),
            congestion: Congestion::Cubic,
        }
    }

    #[test]
    fn the_example_is_written_and_read() {
        let mut row = Row {
            legs: vec![
                leg("sin", 70_125, 1_000, Some(20_000)),
                leg("ams", 60_033, 100, None),
            ],
            load: 120,
            is_busy: true,
            is_draining: false,
        };
        row.legs[1].congestion = Congestion::Bbr;
        let text = "load 120 busy\nleg sin 70125 1000 20000 cubic\nleg ams 60033 100 - bbr\n";
        assert_eq!(write(&row), text);
        assert_eq!(read(text), Some(row));
        // Words and lines of a later version.
        let later = read("load 0 sleepy\nuplink x\n\nleg sin 1 0 - bbr3 7\n").unwrap();
        assert_eq!(later.legs[0].congestion, Congestion::Reno);
    }

    #[test]
    fn malformed_rows_and_answers_are_refused() {
        for text in [
            "load",
            "load 1001",
            "leg",
            "leg SIN 1 0 - cubic",
            "leg sin 0 0 - cubic",
            "leg sin -1 0 - cubic",
            "leg sin 1 1000001 - cubic",
            "leg sin 1 0 0 cubic",
            "leg sin 1 0 1000000001 cubic",
            "leg sin 1 0 18446744073709551615 cubic",
            "leg sin 1 0 -",
            "leg sin 99999999999 0 - cubic",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let many = "leg sin 1 0 - cubic\n".repeat(MOST_ROW_LEGS + 1);
        assert_eq!(read(&many), None);
        let take = |head: &str| RowReader::default().take(head.as_bytes());
        assert_eq!(
            take("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
            Err(InvalidRow::NoAnswer)
        );
        assert_eq!(take("HTTP/1.1 200 OK\r\n\r\n"), Err(InvalidRow::NoAnswer));
        assert_eq!(
            take("HTTP/1.1 200 OK\r\nContent-Length: 8193\r\n\r\n"),
            Err(InvalidRow::TooLarge)
        );
        assert_eq!(take(&"x".repeat(20_000)), Err(InvalidRow::TooLarge));
        assert_eq!(
            take("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nload"),
            Err(InvalidRow::Malformed)
        );
    }

    /// Ten nodes, five of them used: on the wire at most 16 kbit/s in each direction, and half of it while rows are equal.
    #[test]
    fn exchanges_of_ten_nodes_are_small() {
        let legs =
            (0..9).map(|number| leg(&format!("node-{number}"), 170_125, 10_000, Some(20_000)));
        let row = Row {
            legs: legs.collect(),
            load: 120,
            ..Row::default()
        };
        // Ethernet, IPv4, TCP with timestamps.
        let headers = 14 + 20 + 32;
        let tag = RowTag::of(&write(&row));
        let request = row_request(&"node-9".parse().unwrap(), Some(tag)).len() + headers;
        let answer = |tag| row_answer(&row, tag).len() + headers;
        // A node sends requests, the ACKs of answers, and answers to as many requests.
        let each_second = 5.0 / USED_INTERVAL.as_seconds() + 4.0 / IDLE_INTERVAL.as_seconds();
        let rate = |answer| each_second * (request + headers + answer) as f64 * 8.0;
        let (steady, changing) = (rate(answer(Some(tag))), rate(answer(None)));
        assert!(steady <= 8_000.0, "{steady}");
        assert!(changing <= 16_000.0, "{changing}");
    }

    proptest! {
        #[test]
        fn rows_come_back_in_any_pieces(
            legs in proptest::collection::vec(
                (1_u64..LONGEST_ROUND_TRIP, 0_u32..=1_000_000, 0_u64..=HIGHEST_RATE), 0..MOST_ROW_LEGS,
            ),
            load in 0_u16..=1000,
            (is_busy, is_draining) in any::<(bool, bool)>(),
            piece in 1_usize..400,
        ) {
            let legs = legs.into_iter().enumerate().map(|(number, (time, loss, rate))| {
                leg(&format!("n{number}"), time, loss, (rate > 0).then_some(rate))
            });
            let row = Row { legs: legs.collect(), load, is_busy, is_draining };
            let mut reader = RowReader::default();
            let answer = row_answer(&row, None);
            // Two answers, one after the other.
            for _ in 0..2 {
                let mut found = None;
                for bytes in answer.chunks(piece) {
                    prop_assert_eq!(&found, &None);
                    found = reader.take(bytes).unwrap();
                }
                prop_assert_eq!(found, Some(row.clone()));
            }
        }

        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = RowReader::default().take(&bytes);
            let _ = read(&String::from_utf8_lossy(&bytes));
        }
    }
}
