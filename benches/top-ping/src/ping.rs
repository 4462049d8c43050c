//! The round-trip times of one byte through the proxy.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use midspan_testbed::loopback::Ends;

use crate::Failure;

/// Time between two pings.
const PAUSE: Duration = Duration::from_millis(2);

/// A session whose server returns each byte.
pub struct Ping {
    client: std::net::TcpStream,
}

impl Ping {
    /// Returns bytes in a thread from now on, which ends with the session.
    pub fn new((client, mut server): Ends) -> Self {
        std::thread::spawn(move || {
            let mut byte = [0];
            while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
        });
        Self { client }
    }

    /// The round-trip times, in seconds, of the pings within this time.
    ///
    /// # Errors
    /// The session has ended.
    pub fn measure(&mut self, time: Duration) -> Result<Vec<f64>, Failure> {
        let end = Instant::now() + time;
        let mut times = Vec::new();
        while Instant::now() < end {
            std::thread::sleep(PAUSE);
            let start = Instant::now();
            self.client.write_all(&[1])?;
            self.client.read_exact(&mut [0])?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(times)
    }
}
