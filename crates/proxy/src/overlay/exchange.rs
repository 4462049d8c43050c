//! The exchanges with one node: a connection that stays open, with one request at a time.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use midspan_explicit::hop::{InvalidRow, RowReader, row_request};
use midspan_policy::overlay::{LegKeys, NodeName, Row};
use midspan_relay::LegSocket;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

/// A node that does not answer within this time is called again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses after failures: the first one, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const MOST_DOUBLINGS: u32 = 5;

/// The exchanges with one node.
#[derive(Debug)]
pub struct Exchange {
    /// The leg to the node.
    pub node: NodeName,
    /// Where the node accepts hops.
    pub address: SocketAddr,
    /// The address of this machine from which the leg begins; `None` if the kernel chooses.
    pub from: Option<IpAddr>,
    /// The keys of the leg; `None` if it is not encrypted.
    pub keys: Option<LegKeys>,
    connection: Option<Connection>,
    /// When the next request is due.
    due: Instant,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug)]
struct Connection {
    socket: LegSocket,
    state: State,
    /// When the state began.
    since: Instant,
    reader: RowReader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    /// TLS is in its handshake.
    Securing,
    Idle,
    Asked,
}

/// What an event has led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Happened {
    /// Nothing to report.
    Nothing,
    /// The node has answered after this time.
    Answered(Duration, Row),
    /// The node has refused the connection.
    Refused,
    /// The connection is of no use, and has been closed.
    Failed(String),
}

impl Exchange {
    /// Exchanges with this node; the first one begins now.
    pub const fn new(node: NodeName, address: SocketAddr, now: Instant) -> Self {
        Self {
            node,
            address,
            from: None,
            keys: None,
            connection: None,
            due: now,
            failures: 0,
        }
    }

    /// The same from this address of this machine, with these keys of the leg.
    pub const fn begun_at(mut self, from: Option<IpAddr>, keys: Option<LegKeys>) -> Self {
        (self.from, self.keys) = (from, keys);
        self
    }

    /// One exchange over this socket, which is connected, or connecting.
    pub fn over(
        node: NodeName,
        address: SocketAddr,
        (socket, is_connected): (LegSocket, bool),
        now: Instant,
    ) -> Self {
        let state = match is_connected {
            true => State::Idle,
            false => State::Connecting,
        };
        Self {
            connection: Some(Connection {
                socket,
                state,
                since: now,
                reader: RowReader::default(),
            }),
            ..Self::new(node, address, now)
        }
    }

    /// The socket, after an exchange.
    pub fn into_socket(self) -> Option<LegSocket> {
        let open = self.connection?;
        (open.state == State::Idle).then_some(open.socket)
    }

    /// Does what is due for the only exchange over this connection.
    pub fn advance_once(&mut self, now: Instant) -> Happened {
        match self.connection {
            Some(_) => self.advance(now, PATIENCE),
            None => Happened::Failed("it has closed the connection".to_owned()),
        }
    }

    /// When this exchange needs attention without an event.
    pub fn next(&self) -> Instant {
        match &self.connection {
            Some(open) if open.state != State::Idle => open.since + PATIENCE,
            _ => self.due,
        }
    }

    /// The socket, and the event that is awaited.
    pub fn awaited(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let open = self.connection.as_ref()?;
        let flags = match open.state {
            State::Connecting => PollFlags::OUT,
            State::Securing | State::Idle | State::Asked => PollFlags::IN,
        };
        Some((open.socket.as_fd(), flags))
    }

    /// Does what is due; the next request follows after this interval.
    pub fn advance(&mut self, now: Instant, interval: Duration) -> Happened {
        if let Some(open) = &self.connection
            && open.state != State::Idle
        {
            if now < open.since + PATIENCE {
                return Happened::Nothing;
            }
            return self.fail(now, "it does not answer".to_owned());
        }
        if now < self.due {
            return Happened::Nothing;
        }
        self.due = now + interval;
        match self.connection.is_some() {
            true => self.ask(now),
            false => match begin(self.address, self.from, self.keys.as_ref()) {
                Ok(socket) => {
                    self.connection = Some(Connection {
                        socket,
                        state: State::Connecting,
                        since: now,
                        reader: RowReader::default(),
                    });
                    Happened::Nothing
                }
                Err(error) => self.fail_to_connect(now, error),
            },
        }
    }

    /// Handles an event of the socket.
    pub fn handle_event(&mut self, now: Instant) -> Happened {
        let Some(open) = &mut self.connection else {
            return Happened::Nothing;
        };
        if open.state == State::Connecting {
            return match sockopt::socket_error(&open.socket) {
                Ok(Ok(())) => self.secure(now),
                Ok(Err(error)) | Err(error) => self.fail_to_connect(now, error),
            };
        }
        if open.state == State::Securing {
            return self.secure(now);
        }
        let mut buffer = [0_u8; 4096];
        let count = match open.socket.receive(&mut buffer) {
            Ok(0) => {
                // The node may close an idle connection; the next request opens another one.
                let was_asked = open.state == State::Asked;
                self.connection = None;
                return match was_asked {
                    true => self.fail(now, "it has closed the connection".to_owned()),
                    false => Happened::Nothing,
                };
            }
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Happened::Nothing,
            Err(error) => {
                let why = why(&open.socket, error);
                return self.fail(now, why);
            }
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        let taken = match open.state {
            State::Asked => open.reader.take(bytes),
            State::Connecting | State::Securing | State::Idle => Err(InvalidRow::NoAnswer),
        };
        match taken {
            Ok(None) => Happened::Nothing,
            Ok(Some(row)) => {
                let time = now.saturating_duration_since(open.since);
                (open.state, open.since) = (State::Idle, now);
                self.failures = 0;
                Happened::Answered(time, row)
            }
            Err(error) => self.fail(now, error.to_string()),
        }
    }

    /// The first request follows the handshake of TLS, if there is one, so that it measures a round trip.
    fn secure(&mut self, now: Instant) -> Happened {
        let Some(open) = &mut self.connection else {
            return Happened::Nothing;
        };
        if !open.socket.is_ready() {
            open.state = State::Securing;
            match open.socket.peek() {
                Err(Errno::AGAIN | Errno::INTR) if !open.socket.is_ready() => {
                    return Happened::Nothing;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => {
                    let why = why(&open.socket, error);
                    return self.fail(now, why);
                }
                Ok(_) => return self.fail(now, "it speaks out of turn".to_owned()),
            }
        }
        self.ask(now)
    }

    fn ask(&mut self, now: Instant) -> Happened {
        let Some(open) = &mut self.connection else {
            return Happened::Nothing;
        };
        let request = row_request(&self.node.node(), open.reader.tag());
        // An idle connection has room for a request.
        match open.socket.send(&request) {
            Ok(count) if count == request.len() => {
                (open.state, open.since) = (State::Asked, now);
                Happened::Nothing
            }
            Ok(_) => self.fail(now, "the request was sent in part".to_owned()),
            Err(error) => {
                let why = why(&open.socket, error);
                self.fail(now, why)
            }
        }
    }

    fn fail_to_connect(&mut self, now: Instant, error: Errno) -> Happened {
        match (self.fail(now, error.to_string()), error) {
            (_, Errno::CONNREFUSED) => Happened::Refused,
            (failed, _) => failed,
        }
    }

    /// Closes the connection. The next attempt comes later after each failure, and never ceases.
    fn fail(&mut self, now: Instant, why: String) -> Happened {
        self.connection = None;
        let pause = FIRST_PAUSE * (1 << self.failures.min(MOST_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        self.due = now + pause.min(LONGEST_PAUSE);
        Happened::Failed(why)
    }
}

/// Why a connection is of no use.
fn why(socket: &LegSocket, error: Errno) -> String {
    match socket.failure() {
        Some(failure) => failure.to_string(),
        None => error.to_string(),
    }
}

/// Begins to connect to a node, from this address of this machine, with these keys of the leg.
fn begin(
    address: SocketAddr,
    from: Option<IpAddr>,
    keys: Option<&LegKeys>,
) -> rustix::io::Result<LegSocket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(from) = from {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {
            let socket = LegSocket::from(socket);
            socket.encrypt_to(keys)?;
            Ok(socket)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use midspan_explicit::hop::row_answer;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Advances until something has happened, with a clock that the test moves.
    fn until(exchange: &mut Exchange, now: Instant) -> Happened {
        loop {
            match exchange.advance(now, SECOND) {
                Happened::Nothing => {}
                happened => return happened,
            }
            let Some((socket, flags)) = exchange.awaited() else {
                return Happened::Nothing;
            };
            let mut watched = [rustix::event::PollFd::from_borrowed_fd(socket, flags)];
            rustix::event::poll(&mut watched, None).unwrap();
            match exchange.handle_event(now) {
                Happened::Nothing => {}
                happened => return happened,
            }
        }
    }

    #[test]
    fn one_connection_has_many_exchanges() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let row = Row {
            load: 7,
            ..Row::default()
        };
        let node: NodeName = "fra".parse().unwrap();
        let (first_request, first_answer) = (row_request(&node, None), row_answer(&row, None));
        let mut reader = RowReader::default();
        assert_eq!(reader.take(&first_answer), Ok(Some(row.clone())));
        let tag = reader.tag();
        let (request, answer) = (row_request(&node, tag), row_answer(&row, tag));
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            // The second and the third answer are without a row.
            for (request, answer) in [
                (&first_request, &first_answer),
                (&request, &answer),
                (&request, &answer),
            ] {
                let mut read = vec![0; request.len()];
                socket.read_exact(&mut read).unwrap();
                assert_eq!(&read, request);
                socket.write_all(answer).unwrap();
            }
        });
        let begin = Instant::now();
        let mut exchange = Exchange::new(node, address, begin);
        for number in 0..3 {
            let now = begin + SECOND * number;
            let happened = until(&mut exchange, now);
            assert_eq!(happened, Happened::Answered(Duration::ZERO, row.clone()));
            assert_eq!(exchange.next(), now + SECOND);
        }
        serving.join().unwrap();
        // The node has closed it while it was idle: that is no failure.
        let (_, flags) = exchange.awaited().unwrap();
        assert_eq!(flags, PollFlags::IN);
        while exchange.awaited().is_some() {
            assert_eq!(exchange.handle_event(begin), Happened::Nothing);
        }
        // Now no process listens. The pauses get longer.
        let mut now = begin + SECOND * 3;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(until(&mut exchange, now), Happened::Refused);
            assert_eq!(exchange.next(), now + SECOND * pause);
            now = exchange.next();
        }
    }

    #[test]
    fn one_exchange_over_a_socket_gives_it_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let node: NodeName = "fra".parse().unwrap();
        let (answer, length) = (
            row_answer(&Row::default(), None),
            row_request(&node, None).len(),
        );
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            for _ in 0..2 {
                socket.read_exact(&mut vec![0; length]).unwrap();
                socket.write_all(&answer).unwrap();
            }
            socket
        });
        let now = Instant::now();
        // First it is connecting; the second time, it is connected.
        let mut next = (super::begin(address, None, None).unwrap(), false);
        for _ in 0..2 {
            let mut exchange = Exchange::over(node.clone(), address, next, now);
            let happened = until(&mut exchange, now);
            assert_eq!(happened, Happened::Answered(Duration::ZERO, Row::default()));
            next = (exchange.into_socket().unwrap(), true);
        }
        let served = serving.join().unwrap();
        let peer = TcpStream::from(OwnedFd::from(next.0)).peer_addr().unwrap();
        assert_eq!(peer, served.local_addr().unwrap());
    }

    #[test]
    fn silence_and_other_answers_are_failures() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let begin = Instant::now();
        let mut exchange = Exchange::new("fra".parse().unwrap(), address, begin);
        assert_eq!(exchange.advance(begin, SECOND), Happened::Nothing);
        let late = exchange.advance(begin + PATIENCE, SECOND);
        assert!(matches!(late, Happened::Failed(_)), "{late:?}");
        drop(listener.accept().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let next = exchange.next();
        let happened = until(&mut exchange, next);
        assert!(matches!(happened, Happened::Failed(_)), "{happened:?}");
        serving.join().unwrap();
    }
}
