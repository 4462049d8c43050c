//! Two codecs, with a connection in memory between them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::keys::{new_secret, public_key};

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    bytes: VecDeque<u8>,
    /// Bytes that were ever written.
    written: usize,
    has_end: bool,
}

/// One end of a connection. Calls move at most the next number of `pieces`, and a direction has room for `room` bytes.
struct Wire {
    from: Rc<RefCell<Stream>>,
    to: Rc<RefCell<Stream>>,
    pieces: Vec<usize>,
    turn: usize,
    room: usize,
}

impl Wire {
    fn piece(&mut self) -> usize {
        let Some(place) = self.turn.checked_rem(self.pieces.len()) else {
            return usize::MAX;
        };
        self.turn += 1;
        self.pieces[place]
    }

    fn finish(&self) {
        self.to.borrow_mut().has_end = true;
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.piece().min(buffer.len());
        let mut from = self.from.borrow_mut();
        if from.bytes.is_empty() {
            return match from.has_end {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let count = most.min(from.bytes.len());
        for (to, byte) in buffer.iter_mut().zip(from.bytes.drain(..count)) {
            *to = byte;
        }
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.piece();
        let mut to = self.to.borrow_mut();
        let room = self.room.saturating_sub(to.bytes.len());
        let count = bytes.len().min(room).min(most);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        to.bytes.extend(&bytes[..count]);
        to.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wires(pieces: &[usize], room: usize) -> [Wire; 2] {
    let streams = [(); 2].map(|()| Rc::new(RefCell::new(Stream::default())));
    [(0, 1), (1, 0)].map(|(from, to)| Wire {
        from: Rc::clone(&streams[from]),
        to: Rc::clone(&streams[to]),
        pieces: pieces.to_vec(),
        turn: 0,
        room,
    })
}

/// Both ends of a connection, each with the key that the other one expects.
fn codecs() -> [Codec; 2] {
    let [client, server] = [new_secret().unwrap(), new_secret().unwrap()];
    [
        Codec::client(&client, public_key(&server).unwrap()).unwrap(),
        Codec::server(&server, vec![[7; KEY_LENGTH], public_key(&client).unwrap()]).unwrap(),
    ]
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Lets both ends look for bytes until neither has anything to do.
fn settle(codecs: &mut [Codec; 2], wires: &mut [Wire; 2]) -> [ErrorKind; 2] {
    let mut kinds = [ErrorKind::WouldBlock; 2];
    for _ in 0..20 {
        for end in 0..2 {
            match codecs[end].look(&mut wires[end], &mut [0]) {
                Err(error) => kinds[end] = error.kind(),
                Ok(count) => panic!("end {end} has read {count} bytes"),
            }
        }
    }
    kinds
}

fn ready() -> ([Codec; 2], [Wire; 2]) {
    let (mut codecs, mut wires) = (codecs(), wires(&[], usize::MAX));
    assert_eq!(settle(&mut codecs, &mut wires), [ErrorKind::WouldBlock; 2]);
    assert!(codecs.iter().all(Codec::is_ready));
    (codecs, wires)
}

#[test]
fn both_ends_have_the_key_of_the_other_one() {
    let [client, server] = [new_secret().unwrap(), new_secret().unwrap()];
    let keys = [&client, &server].map(|secret| public_key(secret).unwrap());
    let mut codecs = [
        Codec::client(&client, keys[1]).unwrap(),
        Codec::server(&server, vec![keys[0]]).unwrap(),
    ];
    assert_eq!(codecs[0].peer_key(), None);
    let mut wires = wires(&[], usize::MAX);
    settle(&mut codecs, &mut wires);
    assert_eq!(codecs[0].peer_key(), Some(keys[1]));
    assert_eq!(codecs[1].peer_key(), Some(keys[0]));
    // An idle connection is silent, so that a byte on it shows that it is of no use any more.
    for wire in &wires {
        assert!(wire.from.borrow().bytes.is_empty());
        assert!(wire.from.borrow().written < 2000);
    }
}

#[test]
fn a_request_before_the_handshake_arrives_after_it() {
    let (mut codecs, mut wires) = (codecs(), wires(&[], usize::MAX));
    assert_eq!(codecs[0].send(&mut wires[0], b"request").unwrap(), 7);
    let mut buffer = [0; 16];
    let mut count = 0;
    for _ in 0..5 {
        let _ = codecs[0].look(&mut wires[0], &mut [0]);
        if let Ok(more) = codecs[1].receive(&mut wires[1], &mut buffer[count..]) {
            count += more;
        }
    }
    assert_eq!(&buffer[..count], b"request");
}

#[test]
fn what_was_looked_at_is_read_again() {
    let ([mut client, mut server], [mut to_server, mut to_client]) = ready();
    assert_eq!(client.send(&mut to_server, b"head, data").unwrap(), 10);
    let mut buffer = [0; 4];
    assert_eq!(server.look(&mut to_client, &mut buffer).unwrap(), 4);
    assert_eq!(&buffer, b"head");
    assert_eq!(server.look(&mut to_client, &mut [0; 2]).unwrap(), 2);
    let mut all: Vec<u8> = Vec::new();
    while all.len() < 10 {
        let mut buffer = [0; 3];
        let count = server.receive(&mut to_client, &mut buffer).unwrap();
        all.extend(&buffer[..count]);
    }
    assert_eq!(all, b"head, data");
    let blocked = server.receive(&mut to_client, &mut buffer);
    assert_eq!(kind(blocked), ErrorKind::WouldBlock);
}

#[test]
fn each_direction_ends_on_its_own() {
    let ([mut client, mut server], [mut to_server, mut to_client]) = ready();
    client.send(&mut to_server, b"last").unwrap();
    client.end_writing(&mut to_server).unwrap();
    to_server.finish();
    let mut buffer = [0; 9];
    assert_eq!(server.receive(&mut to_client, &mut buffer).unwrap(), 4);
    for _ in 0..3 {
        assert_eq!(server.receive(&mut to_client, &mut buffer).unwrap(), 0);
    }
    assert!(server.is_ended() && server.is_decided() && !client.is_ended());
    // The other direction continues.
    assert_eq!(server.send(&mut to_client, b"answer").unwrap(), 6);
    assert_eq!(client.receive(&mut to_server, &mut buffer).unwrap(), 6);
    server.end_writing(&mut to_client).unwrap();
    assert_eq!(client.receive(&mut to_server, &mut buffer).unwrap(), 0);
}

#[test]
fn an_end_without_its_record_is_a_reset() {
    let ([mut client, mut server], [mut to_server, mut to_client]) = ready();
    client.send(&mut to_server, b"last").unwrap();
    to_server.finish();
    let mut buffer = [0; 9];
    assert_eq!(server.receive(&mut to_client, &mut buffer).unwrap(), 4);
    assert!(server.is_decided());
    for _ in 0..3 {
        let read = server.receive(&mut to_client, &mut buffer);
        assert_eq!(kind(read), ErrorKind::ConnectionReset);
    }
    assert_eq!(server.failure(), Some(Failure::Truncated));
    assert!(!server.is_ended());
}

#[test]
fn another_key_is_refused_by_either_end() {
    let secrets = [(); 3].map(|()| new_secret().unwrap());
    let keys = secrets.map(|secret| public_key(&secret).unwrap());
    for (expected_by_client, expected_by_server, failures) in [
        (keys[2], keys[0], [Failure::WrongKey, Failure::Refused]),
        (keys[1], keys[2], [Failure::Refused, Failure::WrongKey]),
    ] {
        let mut codecs = [
            Codec::client(&secrets[0], expected_by_client).unwrap(),
            Codec::server(&secrets[1], vec![expected_by_server]).unwrap(),
        ];
        let mut wires = wires(&[], usize::MAX);
        let _ = codecs[0].send(&mut wires[0], b"secret");
        let kinds = settle(&mut codecs, &mut wires);
        assert_eq!(kinds, [ErrorKind::ConnectionReset; 2]);
        assert_eq!(codecs.map(|codec| codec.failure()), failures.map(Some));
    }
}

#[test]
fn a_caller_without_tls_is_refused() {
    for request in [
        &b"CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\n\r\n"[..],
        &[0; 300],
        b"\x16\x03\x01\x00\x05abcde",
    ] {
        let ([_, mut server], [mut caller, mut wire]) = (codecs(), wires(&[], usize::MAX));
        caller.write_all(request).unwrap();
        let read = server.receive(&mut wire, &mut [0; 9]);
        assert_eq!(kind(read), ErrorKind::ConnectionReset, "{request:?}");
        assert_eq!(server.failure(), Some(Failure::NotTls), "{request:?}");
    }
}

#[test]
fn a_handshake_has_an_end() {
    let ([_, mut server], [mut caller, mut wire]) = (codecs(), wires(&[], usize::MAX));
    // A ClientHello of 60,000 bytes, of which no end comes.
    caller
        .write_all(b"\x16\x03\x01\x40\x00\x01\x00\xea\x60\x03\x03")
        .unwrap();
    caller.write_all(&vec![0; (16 << 10) - 6]).unwrap();
    caller.write_all(b"\x16\x03\x01\x40\x00").unwrap();
    caller.write_all(&vec![0; 16 << 10]).unwrap();
    let read = server.receive(&mut wire, &mut [0; 9]);
    assert_eq!(kind(read), ErrorKind::ConnectionReset);
}

/// Sends all bytes in the way of a transfer: what is not taken is held, and sent again. Returns what arrives.
fn carried(data: &[u8], pieces: &[usize], room: usize, at_once: usize) -> Vec<u8> {
    let ([mut client, mut server], [mut to_server, mut to_client]) =
        (codecs(), wires(pieces, room));
    let (mut sent, mut arrived, mut is_finished) = (0, Vec::new(), false);
    let mut buffer = vec![0; at_once];
    for _ in 0..1_000_000 {
        if sent < data.len() {
            let most = data.len().min(sent + at_once);
            match client.send(&mut to_server, &data[sent..most]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        } else if client.is_ready() && !is_finished {
            is_finished = client.end_writing(&mut to_server).is_ok();
            if is_finished {
                to_server.finish();
            }
        }
        let _ = client.look(&mut to_server, &mut [0]);
        match server.receive(&mut to_client, &mut buffer) {
            Ok(0) => return arrived,
            Ok(count) => arrived.extend(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }
    panic!(
        "{sent} of {} bytes were sent, {} arrived",
        data.len(),
        arrived.len()
    );
}

/// The codec that reads one direction of a connection, its wire, and the bytes of the connection after the handshake
/// with their end.
fn encrypted(data: &[u8]) -> (Codec, Wire, Vec<u8>) {
    let ([mut client, server], [mut to_server, to_client]) = ready();
    let mut sent = 0;
    while sent < data.len() {
        sent += client.send(&mut to_server, &data[sent..]).unwrap();
    }
    client.end_writing(&mut to_server).unwrap();
    let bytes = to_server.to.borrow_mut().bytes.drain(..).collect();
    (server, to_client, bytes)
}

/// What is read of these bytes of the connection, and how that ends.
fn read_all(codec: &mut Codec, wire: &mut Wire, bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
    {
        let mut from = wire.from.borrow_mut();
        from.bytes.extend(bytes);
        from.has_end = true;
    }
    let (mut arrived, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        match codec.receive(wire, &mut buffer) {
            Ok(0) => return (arrived, Ok(())),
            Ok(count) => arrived.extend(&buffer[..count]),
            Err(error) => return (arrived, Err(error)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All bytes arrive in their order, and then the end, however the connection divides them and however little room
    /// it has.
    #[test]
    fn bytes_arrive_however_they_are_divided(
        data in proptest::collection::vec(any::<u8>(), 0..40_000),
        pieces in proptest::collection::vec(1_usize..5000, 0..8),
        room in 1_usize..40_000,
        at_once in 1_usize..40_000,
    ) {
        let arrived = carried(&data, &pieces, room.max(32), at_once.max(8));
        prop_assert!(arrived == data);
    }

    /// A connection that is cut anywhere is a reset, and never an end.
    #[test]
    fn a_cut_is_always_noticed(
        data in proptest::collection::vec(any::<u8>(), 0..40_000),
        place in any::<proptest::sample::Index>(),
    ) {
        let (mut codec, mut wire, bytes) = encrypted(&data);
        let cut = place.index(bytes.len());
        let (arrived, end) = read_all(&mut codec, &mut wire, &bytes[..cut]);
        prop_assert!(data.starts_with(&arrived));
        prop_assert_eq!(kind(end), ErrorKind::ConnectionReset);
    }

    /// After a changed byte, nothing more arrives, and no end. Only the version in the head of a record has no meaning
    /// (RFC 8446 §5.1).
    #[test]
    fn a_change_is_always_noticed(
        data in proptest::collection::vec(any::<u8>(), 0..40_000),
        place in any::<proptest::sample::Index>(),
        change in 1_u8..=255,
    ) {
        let (mut codec, mut wire, mut bytes) = encrypted(&data);
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        let (arrived, end) = read_all(&mut codec, &mut wire, &bytes);
        match end {
            Ok(()) => prop_assert!(arrived == data),
            Err(error) => {
                prop_assert!(data.starts_with(&arrived));
                prop_assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
        }
    }

    /// Any bytes instead of a handshake are refused, or more of them are awaited.
    #[test]
    fn other_bytes_are_no_handshake(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let ([_, mut server], [mut caller, mut wire]) = (codecs(), wires(&[], usize::MAX));
        caller.write_all(&bytes).unwrap();
        let read = server.receive(&mut wire, &mut [0; 100]);
        prop_assert!(read.is_err() && !server.is_ready());
    }
}
