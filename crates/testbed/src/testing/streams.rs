//! Connections, with limits of time.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockRef, Socket, Type};

use super::LIMIT;

/// A stream whose reads and writes take at most [`LIMIT`].
#[must_use]
pub fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// A connection from the test's own namespace.
#[track_caller]
pub fn connect(address: impl ToSocketAddrs + Debug) -> TcpStream {
    let connected = TcpStream::connect(&address);
    bounded(connected.unwrap_or_else(|error| panic!("cannot connect to {address:?}: {error}")))
}

/// A connection from an address of the test's own namespace; the port may be 0.
///
/// # Errors
/// Those of `bind(2)` and `connect(2)`.
pub fn connect_as(source: &str, to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let source: SocketAddr = source.parse().map_err(io::Error::other)?;
    let to = to.to_socket_addrs()?.next();
    let to = to.ok_or_else(|| io::Error::other("no address to connect to"))?;
    let socket = Socket::new(Domain::for_address(source), Type::STREAM, None)?;
    socket.bind(&source.into())?;
    socket.connect(&to.into())?;
    Ok(bounded(socket.into()))
}

/// Whether a call from the test's own namespace is refused.
pub fn is_refused(address: impl ToSocketAddrs) -> bool {
    let first = address.to_socket_addrs().unwrap().next().unwrap();
    TcpStream::connect_timeout(&first, LIMIT)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A socket of a namespace, of the family of an address.
pub fn socket(namespace: &NetworkNamespace, server: &str) -> Socket {
    let domain = match server.parse::<IpAddr>().unwrap() {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    namespace
        .run(move || Socket::new(domain, Type::STREAM, None).unwrap())
        .unwrap()
}

/// A connection from a namespace.
///
/// # Errors
/// Those of `connect(2)`.
pub fn connect_from(
    namespace: &NetworkNamespace,
    server: &str,
    port: u16,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = socket(namespace, server);
    let address = SocketAddr::new(server.parse().unwrap(), port);
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(bounded(socket.into()))
}

/// The next connection, and from where it comes.
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut descriptors = [PollFd::new(listener, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: i64::try_from(LIMIT.as_secs()).unwrap(),
        tv_nsec: 0,
    };
    let ready = poll(&mut descriptors, Some(&limit)).unwrap();
    assert_eq!(ready, 1, "nobody connects");
    let (stream, from) = listener.accept().unwrap();
    let address = from.ip().to_canonical();
    (bounded(stream), SocketAddr::new(address, from.port()))
}

/// Sends bytes one way and compares; then ends that direction.
pub fn carries(mut from: TcpStream, mut to: TcpStream, count: usize) {
    let data: Vec<u8> = (0..count).map(|index| ((index * 31) >> 3) as u8).collect();
    let sent = data.clone();
    let writer: JoinHandle<TcpStream> = std::thread::spawn(move || {
        from.write_all(&sent).unwrap();
        from.shutdown(Shutdown::Write).unwrap();
        from
    });
    let received = rest(&mut to);
    assert!(received == data, "{} of {count} bytes", received.len());
    drop(writer.join().unwrap());
}

/// A few bytes there and back.
#[track_caller]
pub fn echoes(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"ping").unwrap();
    assert_eq!(&exactly::<4>(server), b"ping");
    server.write_all(b"pong").unwrap();
    assert_eq!(&exactly::<4>(client), b"pong");
}

/// The next `N` bytes.
#[track_caller]
pub fn exactly<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// All that comes until the end.
#[track_caller]
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether the next thing to come is a reset.
pub fn is_reset(stream: &mut TcpStream) -> bool {
    let result = stream.read_exact(&mut [0; 1]);
    result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// Closes at once by a reset, so that nothing of the connection is left.
pub fn abort(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}
