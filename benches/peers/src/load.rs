//! The clients, which load the peer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;

use crate::Failure;

/// Time limit of each answer.
const LIMIT: Duration = Duration::from_secs(20);
const CHUNK: usize = 1 << 20;

/// The address to which the client of a given number connects.
pub type Target = fn(usize) -> SocketAddr;

/// Connections, and their set-up times in seconds: from `connect` to the first byte of the answer.
pub struct Connections {
    /// Time from the first `connect` to the last answer.
    pub elapsed: f64,
    /// The set-up time of each connection.
    pub set_up: Vec<f64>,
}

/// Opens connections for `span`, with `clients` clients at once. Over each connection one byte
/// passes in each direction, then the client closes it.
pub fn connections(
    from: &NetworkNamespace,
    target: Target,
    clients: usize,
    span: Duration,
) -> Result<Connections, Failure> {
    let start = Instant::now();
    let each = in_parallel(from, clients, move |client| {
        let mut times = Vec::new();
        while start.elapsed() < span {
            // Each connection has another destination, so that ports in TIME_WAIT do not run out.
            let number = client + times.len();
            let began = Instant::now();
            let mut stream =
                connect(target(number)).map_err(|e| format!("connect {}: {e}", times.len()))?;
            exchange(&mut stream)
                .map_err(|e| format!("exchange {} {:?}: {e}", times.len(), stream.local_addr()))?;
            times.push(began.elapsed().as_secs_f64());
        }
        Ok(times)
    })?;
    Ok(Connections {
        elapsed: start.elapsed().as_secs_f64(),
        set_up: each.into_iter().flatten().collect(),
    })
}

/// Opens `count` sessions, exchanges a byte on each and leaves them open.
pub fn idle_sessions(
    from: &NetworkNamespace,
    target: Target,
    count: usize,
) -> Result<Vec<TcpStream>, Failure> {
    let streams = in_parallel(from, 1, move |_| {
        (0..count)
            .map(|number| {
                let mut stream = connect(target(number))?;
                exchange(&mut stream)?;
                Ok(stream)
            })
            .collect::<Result<Vec<_>, Failure>>()
    })?;
    Ok(streams.into_iter().flatten().collect())
}

/// Sends data over each of `flows` connections for `span` and waits for the server's counts.
/// Returns the number of bytes, and the time in seconds.
pub fn bulk(
    from: &NetworkNamespace,
    target: Target,
    flows: usize,
    span: Duration,
) -> Result<(u64, f64), Failure> {
    let start = Instant::now();
    let counts = in_parallel(from, flows, move |client| {
        let mut stream = connect(target(client))?;
        let chunk = vec![0x5a; CHUNK];
        let mut sent = 0_u64;
        while start.elapsed() < span {
            sent += stream.write(&chunk)? as u64;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        match u64::from_be_bytes(answer) == sent {
            true => Ok(sent),
            false => Err("the server has not received what was sent".into()),
        }
    })?;
    Ok((counts.into_iter().sum(), start.elapsed().as_secs_f64()))
}

/// Median of `count` round trips of one byte, in seconds.
///
/// The client polls without sleeping, because a sleeping core's time to wake up would hide the
/// delay that the peer adds.
pub fn round_trip(from: &NetworkNamespace, target: Target, count: usize) -> Result<f64, Failure> {
    let times = in_parallel(from, 1, move |client| {
        let mut stream = connect(target(client))?;
        stream.set_nonblocking(true)?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            stream.write_all(&[0x5a])?;
            while let Err(error) = stream.read_exact(&mut [0]) {
                if error.kind() != ErrorKind::WouldBlock || start.elapsed() > LIMIT {
                    return Err(error.into());
                }
            }
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(times)
    })?;
    let times: Vec<f64> = times.into_iter().flatten().collect();
    midspan_records::statistics::quantile(&times, 0.5).ok_or_else(|| "no round trips".into())
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[0x5a])?;
    stream.read_exact(&mut [0])
}

/// Runs `count` clients in the namespace, each in a thread.
fn in_parallel<T: Send + 'static>(
    from: &NetworkNamespace,
    clients: usize,
    client: impl Fn(usize) -> Result<T, Failure> + Copy + Send + 'static,
) -> Result<Vec<T>, Failure> {
    // A thread that the namespace's thread starts is in the same namespace.
    from.run(move || {
        let threads: Vec<_> = (0..clients)
            .map(|number| std::thread::spawn(move || client(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a client has panicked")?)
            .collect()
    })?
}
