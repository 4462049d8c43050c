//! New connections, one after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two connections.
const PAUSE: Duration = Duration::from_millis(5);

/// Connections are opened until this value is dropped.
pub struct Opening {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Opening {
    /// Opens connections through the proxy from now on: each gets one byte, which `server` sends, and is closed.
    pub fn start(proxy: SocketAddr, server: TcpListener) -> Self {
        std::thread::spawn(move || {
            for stream in server.incoming().flatten() {
                let mut stream: TcpStream = stream;
                // The client notices an error.
                let _ = stream.write_all(&[1]);
            }
        });
        let (stop, opened) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&opened));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(proxy)?;
                stream.read_exact(&mut [0])?;
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            Ok(())
        });
        Self {
            stop,
            opened,
            thread: Some(thread),
        }
    }

    /// Ends it; returns the number of connections.
    ///
    /// # Errors
    /// A connection was refused or reset.
    pub fn end(mut self) -> std::io::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(result)) = self.thread.take().map(JoinHandle::join) {
            result?;
        }
        Ok(self.opened.load(Ordering::Relaxed))
    }
}
