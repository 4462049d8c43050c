//! Tests of a relay thread whose system calls are answered by a script: they use no socket, no
//! epoll instance and no clock of Linux.

mod bench;
mod many;
mod model;

use std::os::fd::RawFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::*;
use crate::listener::Language;
use crate::opening::ListenerId;
use crate::passing::{PATIENCE, PassedOn};
use crate::pipes::BUFFER_SIZE;
use bench::{Bench, CLIENT, MOMENT, NEGOTIATION_TIMEOUT};

#[test]
fn a_session_lives_and_ends_over_a_kernel_that_a_test_plays() {
    let mut bench = Bench::new();
    let (client, server) = bench.call();
    let counters = bench.thread.counters();
    assert_eq!(counters.sessions_active.get(), 1);
    bench.turn(MOMENT, &[(server, EventFlags::OUT)]);
    bench.sends(client, b"hello");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(bench.world.borrow().legs[&server].got, b"hello");
    bench.sends(server, b"good day");
    bench.turn(MOMENT, &[(server, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(bench.world.borrow().legs[&client].got, b"good day");
    // The client ends its data, and then the server.
    bench.sends(client, b"");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::RDHUP)]);
    assert!(bench.world.borrow().legs[&server].is_ended);
    assert_eq!(counters.sessions_active.get(), 1);
    bench.sends(server, b"");
    bench.turn(MOMENT, &[(server, EventFlags::IN | EventFlags::RDHUP)]);
    assert_eq!(counters.sessions_closed.get(), 1);
    let world = bench.world.borrow();
    // One FIN in each direction: the last FIN is sent by the close.
    assert!(
        [client, server]
            .iter()
            .all(|leg| world.legs[leg].is_reset_on_close == Some(false))
    );
}

#[test]
fn a_server_that_never_answers_is_given_up_by_the_clock_of_the_test() {
    let mut bench = Bench::new();
    bench.call();
    let counters = bench.thread.counters();
    let deadline = bench.thread.deadline().unwrap();
    assert_eq!(deadline.reason, Reason::Session);
    bench.turn(Duration::from_millis(999), &[]);
    assert_eq!(bench.last_wait(), Some(Duration::from_secs(1)));
    assert_eq!(counters.sessions_active.get(), 1);
    bench.turn(MOMENT, &[]);
    assert_eq!(bench.last_wait(), Some(MOMENT));
    assert_eq!(counters.sessions_active.get(), 0);
    assert_eq!(counters.sessions_unconnected.get(), 1);
    assert_eq!(bench.thread.deadline(), None);
}

/// Readable and writable, as an edge-triggered epoll reports it at new data.
const DATA: EventFlags = EventFlags::IN.union(EventFlags::OUT);

#[test]
fn a_socks5_negotiation_becomes_a_session_over_a_kernel_that_a_test_plays() {
    let mut bench = Bench::negotiating(Language::Socks5);
    let (client, _) = bench.call();
    let counters = bench.thread.counters();
    assert_eq!(counters.negotiations_active.get(), 1);
    bench.sends(client, b"\x05\x01\x00");
    bench.turn(MOMENT, &[(client, DATA)]);
    assert_eq!(bench.got(client), b"\x05\x00");
    // The request for 198.51.100.1:80, and the first bytes for the server.
    bench.sends(client, b"\x05\x01\x00\x01\xc6\x33\x64\x01\x00\x50early");
    bench.turn(MOMENT, &[(client, DATA)]);
    assert!(bench.got(client).is_empty());
    let server = bench.server_answers();
    // The success has the address of the server leg: 203.0.113.7:40000.
    assert_eq!(
        bench.got(client),
        b"\x05\x00\x00\x01\xcb\x00\x71\x07\x9c\x40"
    );
    assert_eq!(bench.got(server), b"early");
    assert_eq!(counters.negotiations_active.get(), 0);
    assert_eq!(counters.sessions_active.get(), 1);
    // Both sockets are watched again, so epoll reports their present state.
    bench.sends(server, b"good day");
    bench.turn(MOMENT, &[(client, EventFlags::OUT), (server, DATA)]);
    assert_eq!(bench.got(client), b"good day");
}

#[test]
fn a_client_is_told_that_its_server_refuses_even_if_it_reads_slowly() {
    let mut bench = Bench::negotiating(Language::Http);
    let (client, _) = bench.call();
    let counters = bench.thread.counters();
    bench.sends(client, b"CONNECT 198.51.100.1:80 HTTP/1.1\r\n\r\n");
    bench.turn(MOMENT, &[(client, DATA)]);
    let server = bench.world.borrow().server;
    bench.far(server, |far| far.error = Some(Errno::CONNREFUSED));
    bench.far(client, |far| far.room = Some(10));
    bench.turn(MOMENT, &[(server, EventFlags::ERR | EventFlags::HUP)]);
    assert_eq!(counters.sessions_unconnected.get(), 1);
    assert_eq!(bench.got(client), b"HTTP/1.1 5");
    assert!(!bench.far(client, |far| far.is_ended));
    bench.far(client, |far| far.room = None);
    bench.turn(MOMENT, &[(client, EventFlags::OUT)]);
    let rest = bench.got(client);
    assert!(rest.starts_with(b"02 ") && rest.ends_with(b"\n"));
    assert!(bench.far(client, |far| far.is_ended));
    assert_eq!(counters.negotiations_active.get(), 1);
    // The client has read the answer, and ends.
    bench.sends(client, b"");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::RDHUP)]);
    assert_eq!(counters.negotiations_active.get(), 0);
    assert_eq!(bench.far(client, |far| far.is_reset_on_close), Some(false));
}

#[test]
fn a_client_that_sends_no_request_is_given_up_by_the_clock_of_the_test() {
    let mut bench = Bench::negotiating(Language::Http);
    bench.call();
    let counters = bench.thread.counters();
    let deadline = bench.thread.deadline().unwrap();
    assert_eq!(deadline.reason, Reason::Negotiation);
    bench.turn(NEGOTIATION_TIMEOUT - MOMENT, &[]);
    assert_eq!(bench.last_wait(), Some(NEGOTIATION_TIMEOUT));
    assert_eq!(counters.negotiations_active.get(), 1);
    bench.turn(MOMENT, &[]);
    assert_eq!(counters.negotiations_active.get(), 0);
    assert_eq!(counters.refused_silent.get(), 1);
    assert_eq!(bench.thread.deadline(), None);
}

#[test]
fn connections_of_a_shared_socket_are_passed_on_to_threads_with_fewer_sessions() {
    let mut bench = Bench::sharing(0..2);
    let active = bench.thread.counters();
    // With five sessions, the thread is more than two above the mean, as the second thread has none. With six, it is
    // again: one was passed on.
    (0..8).for_each(|_| {
        bench.call();
    });
    assert_eq!(active.sessions_active.get(), 6);
    let passed = bench.passed_to(1);
    assert_eq!(passed.len(), 2);
    assert!(passed.iter().all(|it| it.listener == ListenerId(0)));
    assert!(
        passed
            .iter()
            .all(|it| it.accepted.address == CLIENT.parse().unwrap())
    );
    // Now the second thread has them.
    bench.loads.set(1, 2);
    drop(passed);
    bench.call();
    assert_eq!(active.sessions_active.get(), 7);
    assert!(bench.passed_to(1).is_empty());
    // The other thread accepts nothing more.
    bench.passing.close(1);
    bench.loads.set(1, 0);
    bench.call();
    assert_eq!(active.sessions_active.get(), 8);
}

#[test]
fn a_burst_of_connections_is_shared() {
    // Connections wait in turn after turn, so the thread accepts several for each event.
    let mut bench = Bench::sharing(0..2);
    let listener = bench.world.borrow().listener;
    bench.world.borrow_mut().waiting = 16;
    for _ in 0..5 {
        bench.turn(MOMENT, &[(listener, EventFlags::IN)]);
    }
    assert_eq!(bench.thread.counters().sessions_active.get(), 10);
    assert_eq!(bench.passed_to(1).len(), 6);
}

#[test]
fn a_connection_that_is_passed_on_comes_back_if_the_other_thread_does_not_look() {
    let mut bench = Bench::sharing(0..2);
    (0..8).for_each(|_| {
        bench.call();
    });
    let counters = bench.thread.counters();
    assert_eq!(counters.sessions_active.get(), 6);
    assert!(bench.passing.next_return(0).is_some());
    bench.turn(PATIENCE.into(), &[]);
    assert_eq!(counters.sessions_active.get(), 8);
    assert_eq!(bench.passing.next_return(0), None);
    assert!(bench.passed_to(1).is_empty());
}

#[test]
fn a_connection_that_another_thread_has_accepted_becomes_a_session() {
    let mut bench = Bench::sharing(0..2);
    let connection = |bench: &Bench| {
        bench.loads.set(1, 9);
        let taker = bench
            .loads
            .taker((1, Churn::default()), &(0..2), Time::ZERO);
        let accepted = bench.thread.acceptors.get(0).unwrap().accept().unwrap();
        let listener = ListenerId(0);
        let expected = taker.unwrap();
        assert_eq!(expected.thread(), 0);
        PassedOn {
            listener,
            accepted,
            expected,
            from: 1,
            at: Time::ZERO,
        }
    };
    let counters = bench.thread.counters();
    bench.world.borrow_mut().waiting = 1;
    bench.passing.pass_on(connection(&bench)).unwrap();
    bench.turn(MOMENT, &[]);
    assert_eq!(counters.sessions_active.get(), 1);
    let server = bench.server_answers();
    let client = bench.world.borrow().client;
    bench.sends(client, b"hello");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(bench.got(server), b"hello");
    // A thread that stops accepting serves those that it has, and gets no more.
    bench.world.borrow_mut().waiting = 2;
    bench.passing.pass_on(connection(&bench)).unwrap();
    let late = connection(&bench);
    bench.thread.stop_accepting();
    assert_eq!(counters.sessions_active.get(), 2);
    assert!(bench.passing.pass_on(late).is_err());
}

/// A piece of bulk data, which fills the buffer of a read.
static PIECE: [u8; BUFFER_SIZE] = [0x5a; BUFFER_SIZE];

#[test]
fn sessions_with_much_data_take_turns() {
    let mut bench = Bench::new();
    let flows = [(); 2].map(|()| {
        let (client, server) = bench.call();
        bench.server_answers();
        (client, server)
    });
    for (client, _) in flows {
        (0..20).for_each(|_| bench.sends(client, &PIECE));
    }
    bench.world.borrow_mut().sends.clear();
    bench.turn(MOMENT, &flows.map(|(client, _)| (client, DATA)));
    let sends = std::mem::take(&mut bench.world.borrow_mut().sends);
    assert_eq!(sends.len(), 40);
    let turns = sends.chunk_by(|before, after| before == after);
    let longest = turns.map(<[RawFd]>::len).max();
    assert_eq!(longest, Some(2), "{sends:?}");
    assert_eq!(bench.thread.sessions.unfinished(), 0);
}

#[test]
fn a_session_without_end_does_not_keep_the_thread_from_its_events() {
    let mut bench = Bench::new();
    let (client, server) = bench.call();
    bench.server_answers();
    (0..1000).for_each(|_| bench.sends(client, &PIECE));
    let pieces = |bench: &Bench| bench.got(server).len() / PIECE.len();
    bench.turn(MOMENT, &[(client, DATA)]);
    // A read that is not followed by a separate write is one action, and a turn has two of them.
    assert_eq!(pieces(&bench), 2 + 2 * UNFINISHED_AT_ONCE);
    assert_eq!(bench.thread.deadline().unwrap().reason, Reason::Unfinished);
    // It waits for its turn, so an event does not give it another one.
    bench.turn(Duration::ZERO, &[(client, DATA)]);
    assert_eq!(bench.last_wait(), Some(Duration::ZERO));
    assert_eq!(pieces(&bench), 2 * UNFINISHED_AT_ONCE);
    // A turn that has lasted long ends with one of them.
    bench.world.borrow_mut().time_of_send = UNFINISHED_SPAN.into();
    bench.turn(Duration::ZERO, &[]);
    assert_eq!(pieces(&bench), 2);
}

/// A client sends a megabyte in each of 50 milliseconds: 8 Gbit/s.
fn send_fast(bench: &mut Bench, client: RawFd) {
    for _ in 0..50 {
        (0..32).for_each(|_| bench.sends(client, &PIECE));
        bench.turn(MOMENT, &[(client, DATA)]);
    }
}

/// The low-water marks that were set since the last call.
fn marks(bench: &Bench) -> Vec<(RawFd, u64)> {
    std::mem::take(&mut bench.world.borrow_mut().marks)
}

/// A session whose client sends fast, with the mark that this has caused.
fn fast_transfer() -> (Bench, RawFd) {
    let mut bench = Bench::new();
    let (client, _) = bench.call();
    bench.server_answers();
    send_fast(&mut bench, client);
    assert_eq!(marks(&bench), [(client, 512 << 10)]);
    (bench, client)
}

#[test]
fn the_kernel_reports_a_fast_transfer_in_large_pieces_and_its_rest_soon() {
    let (mut bench, client) = fast_transfer();
    assert_eq!(bench.thread.deadline().unwrap().reason, Reason::LowWater);
    bench.turn(Duration::from_micros(100), &[]);
    assert_eq!(bench.last_wait().map(|wait| wait < MOMENT), Some(true));
    assert_eq!(marks(&bench), []);
    // The rest does not reach the mark.
    bench.turn(MOMENT, &[]);
    assert_eq!(marks(&bench), [(client, 1)]);
    assert_ne!(
        bench.thread.deadline().map(|it| it.reason),
        Some(Reason::LowWater)
    );
}

#[test]
fn a_session_that_moves_to_another_relay_has_no_low_water_mark() {
    let (mut bench, client) = fast_transfer();
    bench.thread.sessions.end_low_water();
    assert_eq!(marks(&bench), [(client, 1)]);
    send_fast(&mut bench, client);
    assert_eq!(marks(&bench), []);
}

#[test]
fn a_listener_of_its_own_keeps_its_connections() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.call();
    }
    assert_eq!(bench.thread.counters().sessions_active.get(), 20);
}
