//! Transfers with checksums, and new connections, while something changes.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::support::*;

/// A server that sends its name as one byte, reads to the end, and answers with the checksum of the
/// received data. It ends with the test program.
pub fn server(name: u8) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, name));
        }
    });
    address
}

fn serve(mut stream: TcpStream, name: u8) -> std::io::Result<()> {
    stream.write_all(&[name])?;
    let mut sum = checksum();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            count => sum.write(&buffer[..count]),
        }
    }
    stream.write_all(&sum.finish().to_be_bytes())
}

/// The checksum of a stream, independent of how the stream is divided into pieces.
pub struct Sum(u64);

pub fn checksum() -> Sum {
    // FNV-1a.
    Sum(0xcbf2_9ce4_8422_2325)
}

impl Hasher for Sum {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The server's name.
pub fn name(stream: &mut TcpStream) -> u8 {
    let mut name = [0];
    stream.read_exact(&mut name).unwrap();
    name[0]
}

/// Ends the direction to the server, and compares the checksum of the server with the expected one.
pub fn assert_sum(mut stream: TcpStream, sum: &Sum) {
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(u64::from_be_bytes(answer), sum.finish());
}

#[derive(Default)]
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How much was transferred, and how many connections were opened.
#[derive(Debug, Default)]
pub struct Counts {
    pub transferred: AtomicUsize,
    pub connections: AtomicUsize,
}

/// Three transfers continue during the work and lose no byte; new connections are never refused. The servers at `web` are
/// `a` and `b`.
pub fn during(web: SocketAddr, work: impl FnOnce(&Counts)) -> Counts {
    let counts = Counts::default();
    std::thread::scope(|scope| {
        let end = End::default();
        let counts = &counts;
        for seed in 0..3_u8 {
            let stop = Arc::clone(&end.0);
            scope.spawn(move || {
                let mut stream = connect(web);
                // On a busy machine, a change may already be complete.
                assert!(b"ab".contains(&name(&mut stream)));
                let mut sum = checksum();
                let mut data: Vec<u8> = (0..50_000).map(|i| (i % 251) as u8 ^ seed).collect();
                while !stop.load(Ordering::Relaxed) {
                    data.rotate_left(7);
                    stream.write_all(&data).unwrap();
                    sum.write(&data);
                    counts.transferred.fetch_add(data.len(), Ordering::Relaxed);
                }
                assert_sum(stream, &sum);
            });
        }
        for _ in 0..2 {
            let stop = Arc::clone(&end.0);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = connect(web);
                    let name = name(&mut stream);
                    assert!(b"ab".contains(&name));
                    let mut sum = checksum();
                    sum.write(b"hello");
                    stream.write_all(b"hello").unwrap();
                    assert_sum(stream, &sum);
                    counts.connections.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        work(counts);
    });
    counts
}
