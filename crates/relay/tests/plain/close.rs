//! FIN, RST and failures are passed on; no data is lost, and no failure looks like a clean end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::{Buffer, LegSettings, SessionSettings};
use midspan_relay::{Relay, Settings};
use midspan_units::{ByteSize, TimeSpan};
use socket2::{Domain, Socket, Type};

use crate::support::*;

/// Both ends of a session, the one under test first.
fn ends(bench: &Bench, client_first: bool) -> (TcpStream, TcpStream) {
    let (client, server) = bench.pair();
    match client_first {
        true => (client, server),
        false => (server, client),
    }
}

const BOTH: [bool; 2] = [true, false];

#[test]
fn a_half_close_leaves_the_other_direction_open() {
    for client_first in BOTH {
        let bench = bench();
        let (mut first, mut second) = ends(&bench, client_first);
        let question = Pattern::new(1).bytes(100_000);
        let answer = Pattern::new(2).bytes(9_000_000);
        first.write_all(&question).unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let (received, ending) = read_all(&mut second);
        assert_same(&received, &question);
        assert_eq!(ending, Ending::Clean);
        // Long after the FIN, the other direction still works.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(bench.statistics().sessions_active, 1);
        thread::scope(|scope| {
            let writer = second.try_clone().unwrap();
            scope.spawn(|| send_and_finish(writer, &answer, 4));
            let (received, ending) = read_all(&mut first);
            assert_same(&received, &answer);
            assert_eq!(ending, Ending::Clean);
        });
        bench.wait_for("closed in good order", |now| now.sessions_closed == 1);
    }
}

#[test]
fn a_half_close_does_not_disturb_data_under_way_the_other_way() {
    for client_first in BOTH {
        let bench = bench();
        let (first, mut second) = ends(&bench, client_first);
        let data = Pattern::new(3).bytes(20_000_000);
        thread::scope(|scope| {
            let writer = second.try_clone().unwrap();
            scope.spawn(|| send_and_finish(writer, &data, 5));
            let mut reader = first.try_clone().unwrap();
            let reader = scope.spawn(move || read_all(&mut reader));
            thread::sleep(Duration::from_millis(5));
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut second), (Vec::new(), Ending::Clean));
            let (received, ending) = reader.join().unwrap();
            assert_same(&received, &data);
            assert_eq!(ending, Ending::Clean);
        });
    }
}

#[test]
fn data_written_just_before_a_close_arrives() {
    let bench = bench();
    for client_first in BOTH {
        for size in [1, 1000, 32_768, 100_000, 2_000_000] {
            let (mut first, mut second) = ends(&bench, client_first);
            let data = Pattern::new(size as u64).bytes(size);
            thread::scope(|scope| {
                scope.spawn(|| {
                    first.write_all(&data).unwrap();
                    drop(first);
                });
                let (received, ending) = read_all(&mut second);
                assert_same(&received, &data);
                assert_eq!(ending, Ending::Clean);
            });
        }
    }
}

#[test]
fn a_reset_of_an_idle_session_resets_the_other_leg() {
    for client_first in BOTH {
        for exchanged in BOTH {
            let bench = bench();
            let (mut first, mut second) = ends(&bench, client_first);
            if exchanged {
                first.write_all(b"data").unwrap();
                second.read_exact(&mut [0; 4]).unwrap();
                second.write_all(b"data").unwrap();
                first.read_exact(&mut [0; 4]).unwrap();
            }
            reset(first);
            assert_eq!(read_all(&mut second), (Vec::new(), Ending::Reset));
            bench.wait_for("ended by reset", |now| now.sessions_reset == 1);
        }
    }
}

#[test]
fn what_was_delivered_before_a_reset_is_forwarded() {
    for client_first in BOTH {
        let bench = bench();
        let (mut first, mut second) = ends(&bench, client_first);
        // The data fits into the kernel's buffers, so all of it arrives before the reset.
        let data = Pattern::new(6).bytes(50_000);
        first.write_all(&data).unwrap();
        let forwarded = move |now: &midspan_relay::Statistics| {
            now.bytes_to_server + now.bytes_to_client == 50_000
        };
        bench.wait_for("the relay has it", forwarded);
        reset(first);
        assert!(wait_for_reset(&second));
        let mut received = vec![0; data.len()];
        // The error was read above; the data is still there.
        second.read_exact(&mut received).unwrap();
        assert_same(&received, &data);
    }
}

/// The receiver reads nothing until the sender has reset the connection: data in the relay and in
/// the kernel must remain readable after the reset.
#[test]
fn what_waits_behind_a_slow_reader_outlives_the_reset_of_its_sender() {
    for client_first in BOTH {
        let bench = bench();
        let (first, mut second) = ends(&bench, client_first);
        let data = Pattern::new(8).bytes(60_000_000);
        first.set_nonblocking(true).unwrap();
        let sent = write_until_full(&first, &data);
        println!("{sent} bytes sent before the reset");
        assert!(sent < data.len());
        // Waits until the relay's receive buffer is full.
        thread::sleep(Duration::from_millis(100));
        let unsent = unsent_bytes(&first);
        reset(first);
        thread::sleep(Duration::from_millis(50));
        let (received, ending) = read_all(&mut second);
        assert_same(&received, &data[..received.len()]);
        assert_eq!(ending, Ending::Reset);
        assert!(
            received.len() >= sent - unsent,
            "{} received, {sent} sent, {unsent} of these not acknowledged",
            received.len()
        );
        bench.wait_for("ended by reset", |now| now.sessions_reset == 1);
    }
}

/// Writes until the kernel has accepted nothing for a while; returns the number of bytes.
fn write_until_full(mut stream: &TcpStream, data: &[u8]) -> usize {
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(300) && sent < data.len() {
        match stream.write(&data[sent..]) {
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

fn unsent_bytes(stream: &TcpStream) -> usize {
    let bytes = midspan_linux::tcp::unacknowledged_bytes(stream).unwrap();
    usize::try_from(bytes.bytes()).unwrap()
}

#[test]
fn a_reset_in_the_middle_of_a_transfer_never_looks_like_an_end() {
    for client_first in BOTH {
        let bench = bench();
        for round in 0..20 {
            let (mut first, mut second) = ends(&bench, client_first);
            let data = Pattern::new(100 + round).bytes(3_000_000);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let cut = 1_000 + 140_000 * usize::try_from(round).unwrap();
                    first.write_all(&data[..cut]).unwrap();
                    reset(first);
                });
                let (received, ending) = read_all(&mut second);
                assert_same(&received, &data[..received.len()]);
                assert_eq!(ending, Ending::Reset);
            });
        }
        bench.wait_for("ended by reset", |now| {
            now.sessions_reset == 20 && now.pipes_in_use == 0
        });
    }
}

/// The receiver of a transfer resets: the sender must get a reset too.
#[test]
fn a_reset_by_the_receiver_stops_the_sender() {
    for client_first in BOTH {
        let bench = bench();
        let (mut first, mut second) = ends(&bench, client_first);
        let writer = thread::spawn(move || {
            let data = vec![0; 1 << 20];
            loop {
                if let Err(error) = second.write_all(&data) {
                    return error.kind();
                }
            }
        });
        first.read_exact(&mut vec![0; 3_000_000]).unwrap();
        reset(first);
        assert_eq!(writer.join().unwrap(), ErrorKind::ConnectionReset);
        bench.wait_for("ended by reset", |now| {
            now.sessions_reset == 1 && now.pipes_in_use == 0
        });
    }
}

#[test]
fn a_reset_after_the_end_passes_both_on() {
    for client_first in BOTH {
        let bench = bench();
        let (mut first, mut second) = ends(&bench, client_first);
        first.write_all(b"last words").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut words = [0; 10];
        second.read_exact(&mut words).unwrap();
        assert_eq!(second.read(&mut words).unwrap(), 0, "the end");
        reset(first);
        // A reset after a FIN is EPIPE for the receiver, as without a proxy.
        let broken = eventually(|| match second.write(b"x") {
            Err(error) => error.kind() == ErrorKind::BrokenPipe,
            Ok(_) => false,
        });
        assert!(broken);
        bench.wait_for("ended by reset", |now| now.sessions_reset == 1);
    }
}

#[test]
fn a_close_with_unread_data_is_a_reset_for_the_sender() {
    let bench = bench();
    let (mut client, server) = bench.pair();
    client.write_all(&[1; 1000]).unwrap();
    bench.wait_for("forwarded", |now| now.bytes_to_server == 1000);
    // The kernel sends a reset when data is left unread.
    drop(server);
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset));
}

fn relay_to(to: SocketAddr, sessions: SessionSettings) -> (Relay, SocketAddr) {
    let settings = settings();
    let listener = listener(&settings, to, sessions);
    let address = local_address(&listener);
    (Relay::start(&settings, vec![listener]).unwrap(), address)
}

#[test]
fn a_refused_server_is_a_reset_for_the_client() {
    let (relay, address) = relay_to(any_loopback_port(), SessionSettings::default());
    for data in [&b""[..], b"hello"] {
        let mut client = bounded(TcpStream::connect(address).unwrap());
        // The reset may arrive first; the first call reports it, and only this call.
        match client.write_all(data) {
            Ok(()) => assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert!(eventually(|| relay.statistics().sessions_unconnected == 2));
    assert_eq!(relay.statistics().sessions_active, 0);
}

/// A server whose accept queue is full, so that connection attempts are not answered.
fn deaf_server() -> (Socket, SocketAddr, Vec<Socket>) {
    let server = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    server.bind(&any.into()).unwrap();
    server.listen(0).unwrap();
    let address = server.local_addr().unwrap().as_socket().unwrap();
    let queued = (0..4)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
            let _ = socket.connect(&address.into());
            socket
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    (server, address, queued)
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let (_server, to, _queued) = deaf_server();
    let sessions = SessionSettings {
        connect_timeout: Some(TimeSpan::from_milliseconds(300)),
        ..SessionSettings::default()
    };
    let (relay, address) = relay_to(to, sessions);
    let start = Instant::now();
    let mut client = bounded(TcpStream::connect(address).unwrap());
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(eventually(|| relay.statistics().sessions_unconnected == 1));
}

#[test]
fn a_client_that_resets_while_the_server_is_called_ends_the_call() {
    let (_server, to, _queued) = deaf_server();
    // Centuries: longer than any time-out of the kernel.
    let sessions = SessionSettings {
        connect_timeout: Some(TimeSpan::from_nanoseconds(u64::MAX)),
        ..SessionSettings::default()
    };
    let (relay, address) = relay_to(to, sessions);
    let client = TcpStream::connect(address).unwrap();
    assert!(eventually(|| relay.statistics().sessions_active == 1));
    reset(client);
    assert!(eventually(|| relay.statistics().sessions_reset == 1));
    assert_eq!(relay.statistics().sessions_active, 0);
}

#[test]
fn data_and_end_before_the_server_has_answered_are_kept() {
    let (server, to, queued) = deaf_server();
    let (relay, address) = relay_to(to, SessionSettings::default());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    client.write_all(b"early").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(eventually(|| relay.statistics().sessions_active == 1));
    thread::sleep(Duration::from_millis(50));
    // Now there is room in the accept queue, and the kernel's next SYN is answered.
    drop(queued);
    let server = TcpListener::from(server);
    let found = eventually(|| {
        let mut accepted = accept_from(&server);
        let mut data = Vec::new();
        accepted.read_to_end(&mut data).is_ok() && data == b"early"
    });
    assert!(found);
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Clean));
}

/// A peer that accepts no data for `user_timeout` is a failed leg; the other leg is reset.
#[test]
fn a_timed_out_leg_resets_the_other() {
    let fixed = Buffer::Fixed(ByteSize::from_bytes(64 << 10));
    let sessions = SessionSettings {
        server: LegSettings {
            user_timeout: Some(TimeSpan::from_milliseconds(500)),
            send_buffer: fixed,
            ..LegSettings::default()
        },
        ..SessionSettings::default()
    };
    let bench = bench_with(settings(), sessions);
    let (mut client, _server) = bench.pair();
    let mut error = None;
    let data = vec![0; 1 << 20];
    let start = Instant::now();
    while error.is_none() && start.elapsed() < DEADLINE {
        error = client.write_all(&data).err().map(|error| error.kind());
    }
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
    bench.wait_for("ended by reset", |now| now.sessions_reset == 1);
}

#[test]
fn settling_is_bounded() {
    let settings = Settings {
        reset_timeout: TimeSpan::from_milliseconds(400),
        ..settings()
    };
    let bench = bench_with(settings, SessionSettings::default());
    let (client, server) = bench.pair();
    client.set_nonblocking(true).unwrap();
    write_until_full(&client, &vec![0; 60_000_000]);
    reset(client);
    // The server never reads, so the client's data is never acknowledged.
    bench.wait_for("given up", |now| {
        now.sessions_reset == 1 && now.pipes_in_use == 0
    });
    assert!(wait_for_reset(&server));
}
