//! What sessions have learned about the paths to peers, as the text of a file: for the next start of Midspan, and for
//! another gateway that may take over.
//!
//! ```text
//! midspan-paths 1 1795300000
//! 198.51.100.7/32 1795299940 18500000 601000 random 0 0
//! ```
//!
//! The heading has the time at which the file was written, in seconds since 1970. After it, the file has one line for each
//! peer: its prefix, the time of its newest session, the rate (bit/s) at the time of writing, the smallest round trip
//! (µs), whether losses are `random` or come from a `queue`, how often the share of starts was halved, and the largest
//! flight that did not fill the path (bytes). A line that cannot be parsed is ignored, and so is a whole file that has
//! another heading, is older than an hour or is from the future.

use std::fmt::Write;
use std::time::SystemTime;

use ipnet::IpNet;
use midspan_policy::hosts::Hosts;
use midspan_policy::learned_start::KnownPath;
use midspan_policy::prefix::host_prefix;
use midspan_policy::{KnowledgeParts, PartKey};
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use super::knowledge::SharedKnowledge;
use super::remembered::{FILE_LIMIT, Recalled};

const HEADING: &str = "midspan-paths 1 ";

/// After this time, nothing is remembered of a path without a session.
const LIFETIME: u64 = 3600;
/// After each such time, a rate is halved ([`midspan_policy::learned_start`]).
const HALF_LIFE: u64 = 600;
/// Most peers of a file: as many as are remembered.
const MOST_PEERS: usize = 65_536;
/// Peers that are read at a time, while threads of the relay wait.
const AT_A_TIME: usize = 256;
/// Longest round trip that is believed.
const LONGEST_ROUND_TRIP: u64 = 60_000_000;
/// Largest flight that is believed, in bytes: the largest window of TCP (RFC 7323).
const LARGEST_FLIGHT: u64 = 1 << 30;

/// All known paths, as a file, and their number.
#[must_use]
pub fn text(knowledge: &SharedKnowledge, now: Time) -> (String, usize) {
    text_at(knowledge, now, real_seconds())
}

fn text_at(knowledge: &SharedKnowledge, now: Time, real: u64) -> (String, usize) {
    let mut text = format!("{HEADING}{real}\n");
    let mut count = 0;
    let mut after = None;
    loop {
        let (found, has_more) = knowledge.list(
            AT_A_TIME,
            |part, most| part.paths.known(now, &Hosts::ALL, after, most),
            |path| path.peer,
        );
        after = found.last().map(|path| path.peer).or(after);
        for path in &found {
            if let Some(rate) = path.rate {
                count += 1;
                let noted = real.saturating_sub(path.age.nanoseconds() / 1_000_000_000);
                let _ = writeln!(
                    text,
                    "{} {noted} {} {} {} {} {}",
                    path.peer,
                    rate.bits_per_second(),
                    path.round_trip.nanoseconds() / 1000,
                    if path.is_lossy { "random" } else { "queue" },
                    path.halvings,
                    path.flight.bytes()
                );
            }
        }
        if !has_more || found.is_empty() {
            break;
        }
    }
    (text, count)
}

/// Reads a file with any content. A path that was measured here later than in the file stays.
pub fn recall(knowledge: &SharedKnowledge, now: Time, file: &[u8]) -> Recalled {
    recall_at(knowledge, now, file, real_seconds())
}

fn recall_at(knowledge: &SharedKnowledge, now: Time, file: &[u8], real: u64) -> Recalled {
    let file = file.get(..FILE_LIMIT).unwrap_or(file);
    // The last line may be incomplete.
    let mut lines = file.split(|byte| *byte == b'\n');
    let is_cut = lines.next_back().is_some_and(|last| !last.is_empty());
    let written = lines.next().and_then(written);
    let written = written.filter(|written| *written <= real && real - *written < LIFETIME);
    let Some(written) = written else {
        return Recalled {
            ignored: lines.count() + usize::from(!file.is_empty()),
            ..Recalled::default()
        };
    };
    let mut recalled = Recalled {
        ignored: usize::from(is_cut),
        ..Recalled::default()
    };
    let mut shared = knowledge.clone();
    for line in lines {
        match read(line, written, real).filter(|_| recalled.clients < MOST_PEERS) {
            Some(path) => {
                let part = PartKey::paths(path.peer.addr());
                shared.part(part).paths.recall(now, &path);
                recalled.clients += 1;
            }
            None => recalled.ignored += 1,
        }
    }
    recalled
}

fn written(heading: &[u8]) -> Option<u64> {
    let heading = std::str::from_utf8(heading).ok()?;
    heading.strip_prefix(HEADING)?.parse().ok()
}

/// The path of a line, as it is now.
fn read(line: &[u8], written: u64, real: u64) -> Option<KnownPath> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let peer: IpNet = words.next()?.parse().ok()?;
    let noted: u64 = words.next()?.parse().ok()?;
    let rate: u64 = words.next()?.parse().ok()?;
    let round_trip: u64 = words.next()?.parse().ok()?;
    let is_lossy = match words.next()? {
        "random" => true,
        "queue" => false,
        _ => return None,
    };
    let halvings = words.next()?.parse().ok()?;
    let flight: u64 = words.next()?.parse().ok()?;
    let is_peer = host_prefix(peer.addr()) == peer;
    let is_plausible = noted <= written
        && (1..=LONGEST_ROUND_TRIP).contains(&round_trip)
        && flight <= LARGEST_FLIGHT;
    if !is_peer || !is_plausible || words.next().is_some() {
        return None;
    }
    let halved = (real - written) / HALF_LIFE;
    Some(KnownPath {
        peer,
        age: TimeSpan::from_seconds(real - noted),
        rate: Some(BitRate::from_bits_per_second(rate >> halved)?),
        round_trip: TimeSpan::from_nanoseconds(round_trip * 1000),
        is_lossy,
        flight: ByteSize::from_bytes(flight >> halved),
        window: 0,
        halvings,
    })
}

fn real_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::LegSample;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const REAL: u64 = 1_795_300_000;

    fn client(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    fn minutes(minutes: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(60 * minutes)
    }

    fn measured(knowledge: &SharedKnowledge, now: Time, host: IpAddr, rate: u64) {
        let leg = LegSample {
            segment_size: 1448,
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(600)),
            delivery_rate: BitRate::from_bits_per_second(rate),
            bytes_acknowledged: ByteSize::from_bytes(1_000_000),
            ..LegSample::default()
        };
        let mut knowledge = knowledge.clone();
        (knowledge.part(PartKey::paths(host)).paths).note(now, host, &leg, false);
    }

    fn known(knowledge: &SharedKnowledge, now: Time) -> Vec<KnownPath> {
        let (known, has_more) = knowledge.list(
            100_000,
            |part, most| part.paths.known(now, &Hosts::ALL, None, most),
            |path| path.peer,
        );
        assert!(!has_more);
        known
    }

    #[test]
    fn another_midspan_knows_the_same() {
        let first = SharedKnowledge::default();
        for number in 0..3000 {
            measured(
                &first,
                minutes(5),
                client(number),
                1_000_000 + u64::from(number),
            );
        }
        measured(
            &first,
            minutes(5),
            "2001:db8::1".parse().unwrap(),
            7_000_000,
        );
        let (text, count) = text_at(&first, minutes(6), REAL);
        assert_eq!(count, 3001);
        let second = SharedKnowledge::default();
        let recalled = recall_at(&second, minutes(0), text.as_bytes(), REAL);
        assert_eq!((recalled.clients, recalled.ignored), (3001, 0));
        let (before, after) = (known(&first, minutes(6)), known(&second, minutes(0)));
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            // The clock of the second one has just begun.
            assert_eq!(
                KnownPath {
                    age: after.age,
                    ..before.clone()
                },
                *after
            );
        }
    }

    #[test]
    fn a_file_becomes_older() {
        let first = SharedKnowledge::default();
        measured(&first, minutes(0), client(1), 8_000_000);
        let (text, _) = text_at(&first, minutes(0), REAL);
        for (minutes_later, rate) in [
            (0, 8_000_000),
            (9, 8_000_000),
            (10, 4_000_000),
            (59, 250_000),
        ] {
            let second = SharedKnowledge::default();
            recall_at(
                &second,
                minutes(0),
                text.as_bytes(),
                REAL + 60 * minutes_later,
            );
            let path = &known(&second, minutes(0))[0];
            assert_eq!(
                path.rate,
                BitRate::from_bits_per_second(rate),
                "{minutes_later}"
            );
        }
        for other_time in [REAL + 3600, REAL - 1] {
            let second = SharedKnowledge::default();
            let recalled = recall_at(&second, minutes(0), text.as_bytes(), other_time);
            assert_eq!((recalled.clients, recalled.ignored), (0, 2));
        }
    }

    #[test]
    fn the_newer_measurement_counts() {
        let first = SharedKnowledge::default();
        measured(&first, minutes(10), client(1), 8_000_000);
        let (text, _) = text_at(&first, minutes(15), REAL);
        let second = SharedKnowledge::default();
        measured(&second, minutes(100), client(1), 1_000_000);
        // Measured here two minutes ago, and there five minutes ago.
        recall_at(&second, minutes(102), text.as_bytes(), REAL);
        assert_eq!(
            known(&second, minutes(102))[0].rate,
            BitRate::from_bits_per_second(1_000_000)
        );
        recall_at(&second, minutes(106), text.as_bytes(), REAL);
        assert_eq!(
            known(&second, minutes(106))[0].rate,
            BitRate::from_bits_per_second(8_000_000)
        );
    }

    #[test]
    fn lines_that_cannot_be_are_ignored() {
        let good = format!("10.0.0.1/32 {REAL} 8000000 600000 queue 0 0");
        for line in [
            "",
            "10.0.0.1 1 1 1 queue 0 0",
            &good.replace("/32", "/24"),
            &good.replace(&REAL.to_string(), &(REAL + 1).to_string()),
            &good.replace("8000000", "0"),
            &good.replace("600000", "0"),
            &good.replace("600000", "60000001"),
            &good.replace("queue", "both"),
            &good.replace("queue 0", "queue 256"),
            &format!("{good} 1"),
            &good.replace("queue 0 0", "queue 0 1073741825"),
        ] {
            let knowledge = SharedKnowledge::default();
            let file = format!("{HEADING}{REAL}\n{line}\n{good}\n");
            let recalled = recall_at(&knowledge, minutes(0), file.as_bytes(), REAL);
            assert_eq!((recalled.clients, recalled.ignored), (1, 1), "{line}");
        }
    }

    #[test]
    fn a_file_of_all_peers_fits() {
        let longest = "2001:db8:1111:2222::/64 18446744073709551615 18446744073709551615 60000000 random 5 1073741824\n";
        assert!(HEADING.len() + 20 + MOST_PEERS * longest.len() <= FILE_LIMIT);
    }

    proptest! {
        #[test]
        fn no_content_is_too_much(
            lines in prop::collection::vec("[0-9a-f.:]{1,9}/[0-9]{1,3}( [0-9]{1,20}){3} (random|queue) [0-9]{1,3} [0-9]{1,20}", 0..20),
            rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut file = format!("{HEADING}{REAL}\n{}\n", lines.join("\n")).into_bytes();
            file.extend(rest);
            let knowledge = SharedKnowledge::default();
            let recalled = recall_at(&knowledge, minutes(3), &file, REAL + 700);
            prop_assert!(known(&knowledge, minutes(3)).len() <= recalled.clients);
        }
    }
}
