//! Servers on loopback addresses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use socket2::{Domain, Socket, Type};

/// Addresses of each server, so that ports in TIME_WAIT do not run out.
const ADDRESSES: u8 = 16;

/// A server on several loopback addresses; its threads end with the program.
pub struct Server {
    /// The addresses on which the server listens.
    pub addresses: Vec<SocketAddr>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    /// Answers every byte with a byte; one connection after the other on each of `threads`.
    pub fn echo(threads: usize) -> std::io::Result<Self> {
        Self::start(threads, |mut stream, _| {
            let mut byte = [0];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
            Ok(())
        })
    }

    /// Answers one byte and keeps the connection open until [`Server::release`].
    pub fn hold() -> std::io::Result<Self> {
        Self::start(1, |mut stream, held| {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
            if let Ok(mut held) = held.lock() {
                held.push(stream);
            }
            Ok(())
        })
    }

    /// Reads to the end of each connection, up to `threads` at once, and answers with the count.
    pub fn sink(threads: usize) -> std::io::Result<Self> {
        Self::start(threads, |mut stream, _| {
            let mut buffer = vec![0; 1 << 18];
            let mut count = 0_u64;
            loop {
                match stream.read(&mut buffer)? {
                    0 => return stream.write_all(&count.to_be_bytes()),
                    read => count += read as u64,
                }
            }
        })
    }

    /// Closes the connections that [`Server::hold`] keeps.
    pub fn release(&self) {
        if let Ok(mut held) = self.held.lock() {
            held.clear();
        }
    }

    fn start(
        threads: usize,
        serve: fn(TcpStream, &Mutex<Vec<TcpStream>>) -> std::io::Result<()>,
    ) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([0, 0, 0, 0], 0)).into())?;
        socket.listen(4096)?;
        let listener: TcpListener = socket.into();
        let port = listener.local_addr()?.port();
        let held = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..threads {
            let listener = listener.try_clone()?;
            let held = Arc::clone(&held);
            std::thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    // The client of a failed connection reports the failure.
                    let _ = stream.set_nodelay(true);
                    let _ = serve(stream, &held);
                }
            });
        }
        Ok(Self {
            addresses: (1..=ADDRESSES)
                .map(|last| SocketAddr::from(([127, 0, 1, last], port)))
                .collect(),
            held,
        })
    }
}
