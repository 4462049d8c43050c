//! Many sessions through a proxy on the loopback interface, for benches.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

/// How long a connection may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A session: the client's socket and the server's.
pub type Ends = (TcpStream, TcpStream);

/// Uses as many descriptors as the system permits this process.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the first session beyond the limit reports it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// An address of this machine at which no program listens.
///
/// # Errors
/// Those of `bind(2)`.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Opens a session through `proxy`, whose server is `server`, for the client with this number. Each client has an
/// address of its own, from 127.1.0.1 on.
///
/// # Errors
/// Those of `bind(2)`, `connect(2)` and `accept(2)`.
pub fn session(client: u32, proxy: SocketAddr, server: &TcpListener) -> io::Result<Ends> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let address = Ipv4Addr::from(0x7f01_0001_u32.saturating_add(client));
    socket.bind(&SocketAddr::from((address, 0)).into())?;
    socket.connect_timeout(&proxy.into(), LIMIT)?;
    let client = TcpStream::from(socket);
    client.set_nodelay(true)?;
    let (far, _) = server.accept()?;
    far.set_nodelay(true)?;
    Ok((client, far))
}
