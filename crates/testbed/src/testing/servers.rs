//! Servers that can be recognised, and that can end and come back while their connections continue.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::exactly;

/// A server that sends its name as one byte, and then returns what it gets.
#[derive(Debug)]
pub struct NamedServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl NamedServer {
    /// A server with this name at this address; with port 0, at any port.
    #[must_use]
    pub fn start(address: impl Into<SocketAddr>, name: u8) -> Self {
        let listener = TcpListener::bind(address.into()).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let is_over_there = Arc::clone(&is_over);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over_there.load(Ordering::Acquire) {
                    return;
                }
                std::thread::spawn(move || serve(stream, name));
            }
        });
        Self {
            address,
            is_over,
            accepting,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, new connections are refused. Those that exist continue. Returns the address.
    pub fn stop(self) -> SocketAddr {
        self.is_over.store(true, Ordering::Release);
        // The thread waits for a connection.
        drop(TcpStream::connect(self.address));
        self.accepting.join().unwrap();
        self.address
    }
}

fn serve(mut stream: TcpStream, name: u8) -> io::Result<()> {
    stream.write_all(&[name])?;
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

/// The name of the server with which a new connection has been connected.
pub fn name_of_server(stream: &mut TcpStream) -> u8 {
    let [name] = exactly(stream);
    name
}

/// Whether the server of a connection still returns what it gets.
pub fn is_answered(stream: &mut TcpStream) -> bool {
    stream.write_all(b"still there").is_ok() && exactly(stream) == *b"still there"
}
