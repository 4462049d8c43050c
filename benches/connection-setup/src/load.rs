//! Clients and servers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use socket2::{Domain, SockRef, Socket, Type};

use crate::Failure;
use crate::chain::SERVER;

/// First port of the servers. Servers on several ports keep the clients from running out of their
/// own ports.
const FIRST_PORT: u16 = 8000;
const PORTS: u16 = 8;
/// Time limit of each system call.
const LIMIT: Duration = Duration::from_secs(10);

/// Threads that accept, read a request, answer it and close.
pub struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Starts on each port as many threads as there may be clients at once.
    pub fn start(server: &NetworkNamespace, threads: usize) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let threads = server.run(move || -> Result<_, Failure> {
            let mut all = Vec::new();
            for port in FIRST_PORT..FIRST_PORT + PORTS {
                let listener = listen(port)?;
                for _ in 0..threads.div_ceil(usize::from(PORTS)).max(1) {
                    let listener = listener.try_clone()?;
                    let stop = Arc::clone(&stopped);
                    all.push(std::thread::spawn(move || serve(&listener, &stop)));
                }
            }
            Ok(all)
        })??;
        Ok(Self { stop, threads })
    }

    /// Ends the threads.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn listen(port: u16) -> Result<TcpListener, Failure> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // Lets a thread that waits in `accept` notice the end.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

fn serve(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok((mut stream, _)) = listener.accept() {
            let mut byte = [0];
            let _ = stream.set_read_timeout(Some(LIMIT));
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&byte);
            }
        }
    }
}

/// Opens `count` connections, one after another. Returns how long each took, in seconds.
pub fn set_up_times(client: &NetworkNamespace, count: usize) -> Result<Vec<f64>, Failure> {
    client.run(move || {
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let start = Instant::now();
            let stream = TcpStream::connect(address(number))?;
            times.push(start.elapsed().as_secs_f64());
            exchange(stream)?;
        }
        Ok(times)
    })?
}

/// Opens connections for `span`, with `clients` clients at once. Over each connection a request of
/// one byte and an answer of one byte pass, and the server closes it. Returns the connections per
/// second, and the number of resets.
pub fn connection_rate(
    client: &NetworkNamespace,
    clients: usize,
    span: Duration,
) -> Result<(f64, f64), Failure> {
    client.run(move || {
        let start = Instant::now();
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                std::thread::spawn(move || -> Result<(u32, u32), std::io::Error> {
                    let (mut count, mut reset) = (0, 0);
                    while start.elapsed() < span {
                        let stream = TcpStream::connect_timeout(&address(client), LIMIT)?;
                        match exchange(stream) {
                            Ok(()) => count += 1,
                            Err(error) if error.kind() == ErrorKind::ConnectionReset => reset += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    Ok((count, reset))
                })
            })
            .collect();
        let (mut sum, mut resets) = (0, 0);
        for thread in threads {
            let (count, reset) = thread.join().map_err(|_| "a client has panicked")??;
            sum += count;
            resets += reset;
        }
        Ok((
            f64::from(sum) / start.elapsed().as_secs_f64(),
            f64::from(resets),
        ))
    })?
}

fn exchange(mut stream: TcpStream) -> std::io::Result<()> {
    SockRef::from(&stream).set_tcp_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&[7])?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer[..] {
        [7] => Ok(()),
        _ => Err(std::io::Error::other("a wrong answer")),
    }
}

/// Each client uses a port of the server that no other client uses.
fn address(number: usize) -> SocketAddr {
    let port = u16::try_from(number % usize::from(PORTS)).unwrap_or_default();
    SocketAddr::from((SERVER, FIRST_PORT + port))
}
