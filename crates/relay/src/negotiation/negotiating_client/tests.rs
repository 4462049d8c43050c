//! However a negotiation ends, no read byte is lost: each end gets all its data, or the beginning
//! of its data and a reset.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use midspan_explicit::http::Side as Message;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use socket2::{Domain, SockRef, Socket, Type};

use midspan_linux::tcp;

use super::*;
use crate::access::AccessRules;
use crate::leg_socket::LegSocket;
use crate::limits::{Limits, RelayLimits, SessionLimits};
use crate::listener::HeaderVersion;
use crate::pipes::Pipes;
use crate::transfer::{Shared, Transfer};

/// A client's messages, and the expected result.
#[derive(Debug, Clone, Copy)]
enum Speech {
    Socks5,
    Connect,
    Plain,
    Header,
}

/// What happens in one step.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The client sends this many of its bytes.
    ClientSends(usize),
    ClientEnds,
    ClientResets,
    /// An end reads this many bytes.
    ServerReads(usize),
    ClientReads(usize),
    ServerResets,
    /// The server's answer to the connection attempt arrives.
    Connect,
    /// This many milliseconds pass; a negotiation may take 1000.
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_usize..20_000).prop_map(Event::ClientSends),
        2 => (1_usize..50_000).prop_map(Event::ServerReads),
        1 => (1_usize..500).prop_map(Event::ClientReads),
        3 => Just(Event::Connect),
        2 => (0_u64..1500).prop_map(Event::Wait),
        1 => Just(Event::ClientEnds),
        1 => Just(Event::ClientResets),
        1 => Just(Event::ServerResets),
    ]
}

fn speech() -> impl Strategy<Value = Speech> {
    prop_oneof![
        Just(Speech::Socks5),
        Just(Speech::Connect),
        Just(Speech::Plain),
        Just(Speech::Header)
    ]
}

/// Two ends of a connection with small buffers; the first does not block.
fn pair() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SockRef::from(&listener).set_recv_buffer_size(2048).unwrap();
    let near = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    near.set_send_buffer_size(2048).unwrap();
    near.connect(&listener.local_addr().unwrap().into())
        .unwrap();
    near.set_nonblocking(true).unwrap();
    tcp::set_reset_on_close(&near, true).unwrap();
    let far = listener.accept().unwrap().0;
    far.set_nonblocking(true).unwrap();
    (near.into(), far)
}

/// The data that an end has received, and how the data ended.
#[derive(Debug, Default)]
struct Got {
    bytes: Vec<u8>,
    end: Option<Ended>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Fin,
    Reset,
}

impl Got {
    fn read(&mut self, from: &TcpStream, most: usize) {
        // A socket reports its error once, and then an end.
        if self.end.is_some() {
            return;
        }
        let mut buffer = vec![0; most];
        match { from }.read(&mut buffer) {
            Ok(0) => self.end = Some(Ended::Fin),
            Ok(count) => self.bytes.extend(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.end = Some(Ended::Reset),
        }
    }
}

fn script(speech: Speech) -> (Language, Vec<u8>) {
    let fixed = Language::Fixed(SocketAddr::from(([127, 0, 0, 1], 9)));
    let fields = "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(100);
    match speech {
        Speech::Socks5 => (
            Language::Socks5,
            b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x09".to_vec(),
        ),
        Speech::Connect => (
            Language::Http,
            format!("CONNECT 127.0.0.1:9 HTTP/1.1\r\n{fields}\r\n").into_bytes(),
        ),
        Speech::Plain => (
            Language::Http,
            format!("POST http://127.0.0.1:9/ HTTP/1.1\r\nContent-Length: 40000\r\n{fields}\r\n")
                .into_bytes(),
        ),
        Speech::Header => (fixed, Vec::new()),
    }
}

fn run(speech: Speech, events: &[Event]) -> Result<(), TestCaseError> {
    let (language, head) = script(speech);
    let data: Vec<u8> = (0..40_000_u32).map(|number| (number % 251) as u8).collect();
    let said = [&head[..], &data].concat();
    let settings = Arc::new(Negotiation {
        language,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_milliseconds(1000),
        proxies: None,
        header: matches!(speech, Speech::Header).then_some(HeaderVersion::V1),
        overlay: None,
        as_clients: None,
    });
    let (client, client_far) = pair();
    let (server, server_far) = pair();
    let limits = Arc::new(Limits::new(&RelayLimits::default(), 0));
    let places = limits.set_listener("test", SessionLimits::default(), true);
    let seat = limits.take_of(&places, None).unwrap();
    let mut now = Time::from_nanoseconds(1_000_000_000);
    let address = SocketAddr::from(([127, 0, 0, 1], 5));
    let client = NewClient {
        socket: Arc::new(client.into()),
        address,
        seat,
        is_too_fast: false,
    };
    let memory = limits.set_aside(0);
    let mut negotiating = Some(NegotiatingClient::new(
        client, memory, 0, settings, None, now,
    ));
    let mut server = Some(Arc::new(server.into()));
    let mut session = None;
    let mut shared = Shared::new(Pipes::new(4, 64 << 10), Arc::clone(&limits));
    let (mut sent, mut client_over) = (0, false);
    let (mut at_server, mut at_client) = (Got::default(), Got::default());
    let mut server_far = Some(server_far);
    let mut client_far = Some(client_far);
    let last = [
        Event::Connect,
        Event::ServerReads(1 << 20),
        Event::ClientReads(1 << 20),
    ];
    let finish = std::iter::repeat_n(last, 400).flatten();
    for event in events.iter().copied().chain(finish) {
        match event {
            Event::ClientSends(most) => {
                let rest = said.get(sent..).unwrap_or_default();
                if let Some(mut far) = client_far.as_ref().filter(|_| !client_over) {
                    sent += far.write(&rest[..rest.len().min(most)]).unwrap_or(0);
                }
            }
            Event::ClientEnds => {
                if let Some(far) = &client_far {
                    client_over = true;
                    let _ = far.shutdown(std::net::Shutdown::Write);
                }
            }
            Event::ClientResets => {
                if let Some(far) = client_far.take() {
                    tcp::set_reset_on_close(&far, true).unwrap();
                }
            }
            Event::ServerResets => {
                if let Some(far) = server_far.take() {
                    tcp::set_reset_on_close(&far, true).unwrap();
                }
            }
            Event::ServerReads(most) => {
                if let Some(far) = &server_far {
                    at_server.read(far, most);
                }
            }
            Event::ClientReads(most) => {
                if let Some(far) = &client_far {
                    at_client.read(far, most);
                }
            }
            Event::Wait(time) => now += TimeSpan::from_milliseconds(time),
            Event::Connect => {}
        }
        // A turn of the relay.
        let is_connecting = matches!(event, Event::Connect);
        // The test decides when the server's answer arrives.
        let is_awaited = |it: &&mut NegotiatingClient| {
            is_connecting || now >= it.deadline || !matches!(it.stage, Stage::Connecting(_))
        };
        if let Some(running) = negotiating.as_mut().filter(is_awaited) {
            let call = |_| server.take().ok_or(Errno::CONNREFUSED);
            let step = match running.advance(now, || None, call) {
                Step::Decide(addresses) => {
                    let timeout = Some(TimeSpan::from_milliseconds(1000));
                    running.connect(addresses, timeout, now);
                    Step::Wait
                }
                step => step,
            };
            match step {
                Step::Join => {
                    let joined = negotiating
                        .take()
                        .and_then(NegotiatingClient::into_joined)
                        .unwrap();
                    let [first_up, first_down] = joined.first;
                    let (mut up, mut down) = (Transfer::new(), Transfer::new());
                    up.hold(first_up);
                    down.hold(first_down);
                    session = Some((joined.client, joined.server, up, down, joined.framed));
                }
                Step::End(_) => negotiating = None,
                _ => {}
            }
        }
        let mut failed = false;
        if let Some((client, server, up, down, framed)) = &mut session {
            for transfer in [&mut *up, &mut *down] {
                transfer.direction.handle_readable();
                transfer.direction.handle_writable();
            }
            let (client, server): (&LegSocket, &LegSocket) = (client, server);
            let framing = framed.as_mut().map(|it| (it, Message::Request));
            let moved = up.advance([client, server], (false, true), framing, &mut shared, now);
            failed |= moved.failed.is_some();
            let framing = framed.as_mut().map(|it| (it, Message::Answer));
            let moved = down.advance([server, client], (false, true), framing, &mut shared, now);
            failed |= moved.failed.is_some();
        }
        if failed {
            // Resets both, as a session does at its end.
            session = None;
        }
    }
    drop((session, negotiating));
    if let Some(far) = &server_far {
        for _ in 0..20 {
            at_server.read(far, 1 << 20);
        }
    }
    // The expected data of the server: the proxy's first bytes, and the client's data as far as it
    // was sent.
    let of_client = sent.saturating_sub(head.len());
    let got = &at_server.bytes;
    if !got.is_empty() {
        let first = match speech {
            Speech::Socks5 | Speech::Connect => 0,
            Speech::Header => got
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(got.len(), |at| at + 1),
            Speech::Plain => {
                let end = got.windows(4).position(|four| four == b"\r\n\r\n");
                end.map_or(got.len(), |at| at + 4)
            }
        };
        if matches!(speech, Speech::Plain) && first < got.len() {
            let fields = got[..first]
                .windows(3)
                .filter(|three| three == b"X: ")
                .count();
            prop_assert_eq!(fields, 100, "a hole in the head");
        }
        prop_assert!(got.len() - first <= data.len());
        prop_assert!(
            got[first..] == data[..got.len() - first],
            "a hole in the data"
        );
        if at_server.end == Some(Ended::Fin) {
            prop_assert_eq!(got.len() - first, of_client, "an end in order, but not all");
        }
    } else if at_server.end == Some(Ended::Fin) {
        prop_assert_eq!(of_client, 0, "an end in order, and nothing");
    }
    let told: &[u8] = match speech {
        Speech::Socks5 => b"\x05\x00\x05",
        Speech::Connect | Speech::Plain => b"HTTP/1.1 ",
        Speech::Header => b"",
    };
    let common = told.len().min(at_client.bytes.len());
    prop_assert_eq!(&at_client.bytes[..common], &told[..common]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_way_out_loses_bytes(
        speech in speech(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        run(speech, &events)?;
    }
}

/// The server reads nothing until long after the negotiation's time.
#[test]
fn what_there_is_no_room_for_goes_into_the_session() {
    for speech in [
        Speech::Socks5,
        Speech::Connect,
        Speech::Plain,
        Speech::Header,
    ] {
        let mut events = vec![Event::ClientSends(14_000); 3];
        events.extend([Event::Connect; 3]);
        events.extend([
            Event::Wait(900),
            Event::Wait(900),
            Event::ClientSends(1 << 20),
        ]);
        events.extend([Event::ServerReads(1 << 20), Event::ClientSends(1 << 20)].repeat(20));
        events.push(Event::ClientEnds);
        run(speech, &events).unwrap();
    }
}
