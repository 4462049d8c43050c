//! Bytes that arrive on an encrypted connection between two nodes of an overlay.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use midspan_tls::{Codec, public_key};

/// Two ends of a connection: what the first one has written, and what the second one has written.
#[derive(Default)]
struct Streams([VecDeque<u8>; 2]);

/// One end.
struct End<'a> {
    streams: &'a mut Streams,
    is_first: bool,
    /// Nothing more follows.
    is_over: bool,
}

impl Read for End<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let from = &mut self.streams.0[usize::from(self.is_first)];
        match (from.is_empty(), self.is_over) {
            (true, false) => Err(ErrorKind::WouldBlock.into()),
            _ => from.read(buffer),
        }
    }
}

impl Write for End<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.streams.0[usize::from(!self.is_first)].write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A node that gets any bytes instead of those of the other node: from the beginning, or (if the first byte is odd)
/// after the handshake. The second bit selects the node that gets them.
pub fn tls(input: &[u8]) {
    let [selection, bytes @ ..] = input else {
        return;
    };
    let (is_later, is_first) = (selection & 1 != 0, selection & 2 != 0);
    let secrets = [[1; 32], [2; 32]];
    let [Ok(first), Ok(second)] = secrets.map(|secret| public_key(&secret)) else {
        return;
    };
    let (Ok(client), Ok(server)) = (
        Codec::client(&secrets[0], second),
        Codec::server(&secrets[1], vec![first]),
    ) else {
        return;
    };
    let (mut codecs, mut streams) = ([client, server], Streams::default());
    for _ in 0..6 {
        for (place, codec) in codecs.iter_mut().enumerate() {
            let is_first = place == 0;
            let _ = codec.look(&mut end(&mut streams, is_first, false), &mut [0]);
            if !is_later {
                break;
            }
        }
    }
    streams.0[usize::from(is_first)] = bytes.iter().copied().collect();
    let codec = &mut codecs[usize::from(!is_first)];
    let mut buffer = [0; 100];
    for _ in 0..20 {
        let read = codec.receive(&mut end(&mut streams, is_first, true), &mut buffer);
        // The keys are random, so no input can be a valid record.
        assert!(
            read.is_err(),
            "{} bytes of a connection without the keys were read",
            read.unwrap_or_default()
        );
    }
    assert_eq!(codec.is_ready(), is_later);
}

const fn end(streams: &mut Streams, is_first: bool, is_over: bool) -> End<'_> {
    End {
        streams,
        is_first,
        is_over,
    }
}
