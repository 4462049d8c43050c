//! Connected sockets whose `TCP_INFO` is read.

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};

use midspan_linux::tcp;

use crate::Failure;

/// Both ends of connections over loopback. The two ends of one stand for the two legs of a session.
pub struct Sockets(Vec<[TcpStream; 2]>);

impl Sockets {
    /// This many connections. A process has two descriptors for each.
    pub fn connect(count: usize) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let connect = || -> std::io::Result<[TcpStream; 2]> {
            let near = TcpStream::connect(address)?;
            let (far, _) = listener.accept()?;
            Ok([near, far])
        };
        let all = (0..count).map(|number| -> Result<[TcpStream; 2], Failure> {
            connect().map_err(|error| {
                format!("connection {number} (ulimit -n, or fewer --connections): {error}").into()
            })
        });
        Ok(Self(all.collect::<Result<_, Failure>>()?))
    }

    /// Reads `TCP_INFO` of both legs of a session.
    pub fn read(&self, session: usize) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        for leg in &self.0[session % self.0.len()] {
            black_box(tcp::information(leg)?);
        }
        Ok(())
    }
}
