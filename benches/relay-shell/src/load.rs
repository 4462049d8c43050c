//! The clients, which load the relay.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;

/// Opens connections for `span`, with `clients` clients at once. Over each connection one byte
/// passes in each direction, then the client closes it. Returns the number of connections.
pub fn connections(port: u16, clients: usize, span: Duration) -> Result<u64, Failure> {
    let start = Instant::now();
    in_parallel(clients, move |client| {
        let mut count = 0;
        while start.elapsed() < span {
            let mut stream = connect(port, client)?;
            exchange(&mut stream)?;
            count += 1;
        }
        Ok(count)
    })
}

/// Opens `count` sessions, exchanges a byte on each and leaves them open.
pub fn idle_sessions(port: u16, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = connect(port, 0)?;
        exchange(&mut stream)?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Sends `bytes` over each of `flows` connections at once and waits for the server's count.
pub fn bulk(port: u16, flows: usize, bytes: u64) -> Result<(), Failure> {
    in_parallel(flows, move |client| {
        let mut stream = connect(port, client)?;
        let chunk = vec![0x5a; 1 << 18];
        let mut left = bytes;
        while left > 0 {
            let count = left.min(chunk.len() as u64);
            stream.write_all(&chunk[..count as usize])?;
            left -= count;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        if u64::from_be_bytes(answer) != bytes {
            return Err("the server has not received what was sent".into());
        }
        Ok(bytes)
    })?;
    Ok(())
}

/// Median of `count` round trips of one byte, in seconds.
///
/// The client polls without sleeping, because a sleeping core's time to wake up would hide the
/// delay that the relay adds.
pub fn round_trip(address: SocketAddr, count: usize) -> Result<f64, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        stream.write_all(&[0x5a])?;
        while let Err(error) = stream.read_exact(&mut [0]) {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error.into());
            }
        }
        times.push(start.elapsed().as_secs_f64());
    }
    midspan_records::statistics::quantile(&times, 0.5).ok_or_else(|| "no round trips".into())
}

/// Connects a client to the relay. Each client uses another address of the relay, so that ports do
/// not run out.
fn connect(port: u16, client: usize) -> std::io::Result<TcpStream> {
    let last = 1 + (client % 250) as u8;
    let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, last], port)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[0x5a])?;
    stream.read_exact(&mut [0])
}

fn in_parallel(
    clients: usize,
    client: impl Fn(usize) -> Result<u64, Failure> + Copy + Send + 'static,
) -> Result<u64, Failure> {
    let threads: Vec<_> = (0..clients)
        .map(|number| std::thread::spawn(move || client(number)))
        .collect();
    let mut sum = 0;
    for thread in threads {
        sum += thread.join().map_err(|_| "a client has panicked")??;
    }
    Ok(sum)
}
