//! Threads that accept from one listening socket.

#![allow(clippy::unwrap_used)]

use std::net::TcpStream;

use crate::support::*;
use midspan_policy::SessionSettings;
use midspan_relay::{Relay, Settings};

/// A relay whose threads share one socket.
fn sharing(threads: usize) -> Bench {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = Settings {
        threads: 1,
        ..settings()
    };
    let to = server.local_addr().unwrap();
    let listener = listener(&one, to, SessionSettings::default());
    let address = local_address(&listener);
    let settings = Settings { threads, ..one };
    Bench {
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        address,
        server,
    }
}

/// Opens sessions one after the other; returns both ends of each.
fn open(bench: &Bench, count: usize) -> Vec<[TcpStream; 2]> {
    let one = || {
        let client = bounded(TcpStream::connect(bench.address).unwrap());
        [client, accept_from(&bench.server)]
    };
    std::iter::repeat_with(one).take(count).collect()
}

#[test]
fn sessions_that_last_are_spread_over_the_threads() {
    let bench = sharing(2);
    // Twice, because threads that have left the socket to others must come back.
    for _ in 0..2 {
        let sessions = open(&bench, 100);
        assert!(eventually(|| {
            bench.relay.sessions_of_threads().iter().sum::<u64>() == 100
        }));
        let each = bench.relay.sessions_of_threads();
        assert!(each.iter().all(|count| *count >= 20), "{each:?}");
        drop(sessions);
        assert!(eventually(|| {
            bench
                .relay
                .sessions_of_threads()
                .iter()
                .all(|count| *count == 0)
        }));
    }
}
