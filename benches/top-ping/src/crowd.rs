//! The sessions through the proxy, and the data that some of them move.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_testbed::loopback::{Ends, session};

use crate::Failure;

/// Sessions of one client: the clients have addresses of their own, as those of a gateway do.
const SESSIONS_OF_CLIENT: u64 = 10;
/// How often each moving session gets data in a second, and how much.
const PIECES_PER_SECOND: u64 = 10;
const PIECE: usize = 1000;
/// Time between two turns of the thread that moves the data.
const TURN: Duration = Duration::from_millis(1);

/// The sessions; the data moves until this value is dropped.
pub struct Crowd {
    _idle: Vec<Ends>,
    stop: Arc<AtomicBool>,
    pieces: Arc<AtomicU64>,
    mover: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Opens the sessions through the proxy at `proxy`, whose server is `server`.
    ///
    /// # Errors
    /// A session cannot be opened.
    pub fn open(
        sessions: u64,
        moving: u64,
        proxy: SocketAddr,
        server: &TcpListener,
    ) -> Result<Self, Failure> {
        let mut ends = Vec::new();
        for number in 0..sessions {
            let opened = session(u32::try_from(number / SESSIONS_OF_CLIENT)?, proxy, server);
            ends.push(opened.map_err(|error| {
                format!("session {number} of {sessions} cannot be opened: {error}")
            })?);
            if (number + 1) % 1000 == 0 {
                eprintln!("{} of {sessions} sessions are open", number + 1);
            }
        }
        let idle = ends.split_off(usize::try_from(moving.min(sessions))?);
        let moving = ends;
        for (client, server) in &moving {
            client.set_nonblocking(true)?;
            server.set_nonblocking(true)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let pieces = Arc::new(AtomicU64::new(0));
        let (stopped, moved) = (Arc::clone(&stop), Arc::clone(&pieces));
        let mover = std::thread::spawn(move || move_data(moving, &stopped, &moved));
        Ok(Self {
            _idle: idle,
            stop,
            pieces,
            mover: Some(mover),
        })
    }

    /// Pieces of data that have arrived at clients.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(mover) = self.mover.take() {
            // A panic of that thread has been printed.
            let _ = mover.join();
        }
    }
}

/// Sends a piece on each session several times a second, spread over the time, and reads what has
/// arrived since its last turn.
fn move_data(mut sessions: Vec<Ends>, stop: &AtomicBool, pieces: &AtomicU64) {
    let data = [7; PIECE];
    let mut buffer = vec![0; 64 * PIECE];
    let turns = 1_000_000 / u64::try_from(TURN.as_micros()).unwrap_or(1) / PIECES_PER_SECOND;
    let turns = usize::try_from(turns).unwrap_or(1);
    let mut turn = 0;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for (client, server) in sessions.iter_mut().skip(turn).step_by(turns) {
            match client.read(&mut buffer) {
                Ok(bytes) => {
                    pieces.fetch_add((bytes / PIECE) as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The number of pieces shows that the session has ended.
                Err(_) => continue,
            }
            // If the buffer is full, this session waits for its next turn.
            let _ = server.write(&data);
        }
        turn = (turn + 1) % turns;
        next += TURN;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
