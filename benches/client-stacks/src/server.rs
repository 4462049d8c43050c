//! The server, and its data: each byte follows from its position.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use midspan_linux::namespace::NetworkNamespace;
use socket2::{Domain, Socket, Type};

use crate::Failure;
use crate::network::PORT;

/// An endless stream of bytes from xorshift64*, in which a piece at a wrong position is noticed.
pub struct Content {
    state: u64,
    word: [u8; 8],
    next: usize,
}

impl Default for Content {
    fn default() -> Self {
        Self {
            state: 0x9e37_79b9_7f4a_7c15,
            word: [0; 8],
            next: 8,
        }
    }
}

impl Iterator for Content {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.next == self.word.len() {
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            let mixed = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d);
            self.word = mixed.to_be_bytes();
            self.next = 0;
        }
        self.next += 1;
        Some(self.word[self.next - 1])
    }
}

/// Listens on the port for both versions of IP, and sends `bytes` bytes over each connection.
///
/// # Errors
/// The port is in use.
pub fn serve(server: &NetworkNamespace, bytes: usize) -> Result<(), Failure> {
    let listener = server.run(|| -> Result<TcpListener, Failure> {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
        socket.set_only_v6(false)?;
        let any = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
        socket.bind(&any.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    })??;
    // The thread ends with the program; there are a few dozen networks, each with one such thread.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // The client of a failed connection reports the failure.
            let _ = send(stream, bytes);
        }
    });
    Ok(())
}

fn send(mut stream: TcpStream, bytes: usize) -> Result<(), Failure> {
    let mut request = [0; 3];
    stream.read_exact(&mut request)?;
    let content: Vec<u8> = Content::default().take(bytes).collect();
    stream.write_all(&content)?;
    stream.shutdown(Shutdown::Write)?;
    // Reads until the client has closed the connection.
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn parts_at_other_places_differ() {
        let content: Vec<u8> = Content::default().take(1 << 16).collect();
        for size in [1220, 1448, 4420, 13_300] {
            let parts: std::collections::HashSet<&[u8]> = content.chunks(size).collect();
            assert_eq!(parts.len(), content.len().div_ceil(size));
        }
    }
}
