//! One client that takes all it can get, and another.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::support::*;

const CONNECTIONS: usize = 500;
/// What 16 MiB carry is 367 sessions; a quarter of them is less than the least share.
const SHARE: usize = 100;

fn connect_from(source: &str, to: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = format!("{source}:0").parse().unwrap();
    let to: SocketAddr = to.parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    bounded(socket.into())
}

/// Whether it is open after all that will be reset has been.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = (&*stream).read(&mut [0; 64]);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// Served in each mode, a byte there and back; how long it took.
fn is_served(listener: &TcpListener, source: &str) -> Duration {
    let start = Instant::now();
    let mut client = connect_from(source, HTTP);
    client
        .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    exactly::<39>(&mut client);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    let mut client = connect_from(source, FORWARD);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

/// 500 idle connections of one client, with sessions or without a word: another is served.
pub fn one_client_does_not_shut_others_out() {
    for (address, says) in [(FORWARD, &b""[..]), (SOCKS, b""), (SOCKS, b"\x05")] {
        let _proxy = Proxy::ready(&format!("[limits]\nmemory = \"16 MiB\"\n{}", each_mode("")));
        let listener = TcpListener::bind(SERVER).unwrap();
        let taken: Vec<TcpStream> = (0..CONNECTIONS)
            .filter_map(|_| {
                let mut stream = connect_from("127.0.0.7", address);
                // It may be reset already.
                stream.write_all(says).ok()?;
                Some(stream)
            })
            .collect();
        wait_until("shed", || {
            let shed = metric("midspan_sessions_shed_total{reason=\"sessions_per_client\"}");
            shed as usize >= CONNECTIONS - SHARE
        });
        let open = taken.iter().filter(|stream| is_open(stream)).count();
        assert!(open <= SHARE, "{open}");
        if address == FORWARD {
            for _ in 0..open {
                drop(listener.accept().unwrap());
            }
        }
        let time = is_served(&listener, "127.0.0.8");
        println!("  {address}: {open} of {CONNECTIONS} open; another is served in {time:?}");
    }
}
