//! Functions for fuzz targets: they pass packets to the parsers.
//!
//! No release contains them: the feature `fuzzing` is for the crate of fuzz targets alone. Each
//! function takes any bytes, and panics if the result of the parser is wrong.

use std::collections::BTreeSet;

use midspan_units::{Time, TimeSpan};

use crate::worker::FromWorker;
use crate::{Agent, Segment, Settings, Status};

/// Most ACKs in one run.
const MOST: u32 = 64;

/// A packet, from its IP header on, by itself.
pub fn segment(packet: &[u8]) {
    let whole = Segment::parse(packet);
    if let Some(segment) = whole {
        assert_eq!(Segment::parse_first(packet), whole);
        assert!(segment.data <= segment.size);
        assert!(usize::from(segment.options.sack.count) <= segment.options.sack.edges.len());
        let _ = segment.ack_header();
    }
}

/// A series of packets that leave and arrive; each packet that leaves gets one verdict. A packet
/// begins with a byte for its direction and the time since the last one, and a byte for its length.
pub fn packets(mut input: &[u8]) {
    let mut settings = Settings::new("eth0");
    (settings.flows, settings.queue_length) = (4, 8);
    let mut agent = Agent::new(settings);
    let mut now = Time::ZERO;
    let mut given = Vec::new();
    let mut taken = 0;
    while let [how, length, rest @ ..] = input
        && taken < MOST
    {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        input = rest;
        now += TimeSpan::from_milliseconds(u64::from(how >> 1));
        agent.handle_timeout(now);
        segment(packet);
        match how & 1 {
            0 => {
                agent.handle_packet(now, taken, packet);
                taken += 1;
            }
            _ => agent.handle_incoming(now, packet),
        }
        agent.take_verdicts(&mut given);
    }
    // Nothing is held for longer than the limit.
    agent.handle_timeout(now + TimeSpan::from_seconds(1));
    agent.take_verdicts(&mut given);
    let numbers: BTreeSet<u32> = given.iter().map(|(number, _)| *number).collect();
    assert_eq!(given.len(), numbers.len(), "two verdicts for a packet");
    assert_eq!(numbers, (0..taken).collect());
}

/// Messages between the processes.
pub fn process_messages(message: &[u8]) {
    let again = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(FromWorker::Ready(queue)) => serde_json::to_vec(&FromWorker::Ready(queue)).ok(),
        Ok(FromWorker::Alive(status)) => serde_json::to_vec(&FromWorker::Alive(status)).ok(),
        Err(_) => None,
    };
    if let Some(written) = again(message) {
        assert_eq!(again(&written).as_deref(), Some(&written[..]));
    }
    if let Ok(status) = serde_json::from_slice::<Status>(message) {
        let _ = status.saved_share();
    }
    let _ = serde_json::from_slice::<Settings>(message);
}
