//! The server's services.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use midspan_linux::namespace::NetworkNamespace;
use rustix::net::RecvFlags;
use socket2::{Domain, Socket, Type};

use crate::Failure;
use crate::accounting::SERVER;

/// Port of the service that answers every byte with a byte.
pub const ECHO: u16 = 7;
/// Port of the service that keeps connections open.
pub const HOLD: u16 = 8;
/// Port of the service that reads all data and answers with the number of bytes.
pub const SINK: u16 = 9;
/// All services, in the order of [`crate::network::proxy`]'s numbers.
pub const SERVICES: [u16; 3] = [ECHO, HOLD, SINK];

/// The services, on all addresses of the server; they end with the program.
pub struct Services {
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Services {
    /// Starts the services. Echo and sink serve up to this number of connections at once.
    pub fn start(
        namespace: &NetworkNamespace,
        clients: usize,
        flows: usize,
    ) -> Result<Self, Failure> {
        let held = Arc::new(Mutex::new(Vec::new()));
        serve(namespace, ECHO, clients + 1, echo)?;
        serve(namespace, SINK, flows, sink)?;
        let keep = Arc::clone(&held);
        serve(namespace, HOLD, 1, move |mut stream| {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
            if let Ok(mut held) = keep.lock() {
                held.push(stream);
            }
            Ok(())
        })?;
        Ok(Self { held })
    }

    /// Closes the connections that [`HOLD`] keeps.
    pub fn release(&self) {
        if let Ok(mut held) = self.held.lock() {
            held.clear();
        }
    }
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// Discards the data in the kernel, without copying it, so that the measurement contains mainly the
/// peer's work.
fn sink(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut count = 0_u64;
    loop {
        let (_, length) = rustix::net::recv(&stream, &mut buffer[..], RecvFlags::TRUNC)?;
        match length {
            0 => return stream.write_all(&count.to_be_bytes()),
            length => count += length as u64,
        }
    }
}

fn serve(
    namespace: &NetworkNamespace,
    port: u16,
    threads: usize,
    handle: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static,
) -> Result<(), Failure> {
    let listener = namespace.run(move || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&std::net::SocketAddr::from(([0, 0, 0, 0], port)).into())?;
        socket.listen(4096)?;
        Ok(socket.into())
    })??;
    for _ in 0..threads {
        let listener = listener.try_clone()?;
        let handle = handle.clone();
        let serve = move || {
            while let Ok((stream, _)) = listener.accept() {
                // The client of a failed connection reports the failure.
                let _ = stream.set_nodelay(true);
                let _ = handle(stream);
            }
        };
        std::thread::Builder::new()
            .name(SERVER.to_owned())
            .spawn(serve)?;
    }
    Ok(())
}
