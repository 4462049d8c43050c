//! The environment of a case's script: the network, both ends, and the proxy if there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use crate::end::End;
use crate::error::{Error, Played, Stop};
use crate::network::{EXPLICIT_PORT, Family, Network, Target};
use crate::pattern::Direction;
use crate::proxies::{Proxy, Running, Unconnected};
use crate::transcript::{Event, Log, Transcript, errno};

/// Connections that may wait in the accept queue of a listening socket.
const BACKLOG: i32 = 1024;

/// Time limit for a proxy to close its connections after their ends, or to end itself.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// Time limit for a proxy's header in functions that record no events.
const HEADER_LIMIT: Duration = Duration::from_secs(2);

/// One run of one case.
pub struct Stage<'a> {
    /// The network of this run.
    pub network: &'a Network,
    /// IPv4 or IPv6.
    pub family: Family,
    /// Transfer less data and wait for shorter times.
    pub quick: bool,
    /// Time limit of each step.
    pub limit: Duration,
    proxy: &'a dyn Proxy,
    running: Option<Running>,
    client: Log,
    server: Log,
    fault: Log,
    seen_at_gateway: bool,
}

/// A listening socket of the server.
#[derive(Debug)]
pub struct Listener(Socket);

impl<'a> Stage<'a> {
    /// Starts the proxy, if there is one.
    pub fn new(
        network: &'a Network,
        family: Family,
        quick: bool,
        limit: Duration,
        proxy: &'a dyn Proxy,
        running: Option<Running>,
    ) -> Self {
        Self {
            network,
            family,
            quick,
            limit,
            proxy,
            running,
            client: Log::default(),
            server: Log::default(),
            fault: Log::default(),
            seen_at_gateway: false,
        }
    }

    /// `full`, or `quick` in a quick run.
    pub fn amount<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether a proxy runs on the gateway.
    #[must_use]
    pub const fn has_proxy(&self) -> bool {
        self.running.is_some()
    }

    /// The events of both ends and the proxy so far.
    #[must_use]
    pub fn transcript(&self) -> Transcript {
        Transcript {
            client: self.client.events(),
            server: self.server.events(),
            proxy: self.fault.events(),
        }
    }

    /// The log of the client's end.
    pub const fn client_log(&self) -> &Log {
        &self.client
    }

    /// The log of the server's end.
    pub const fn server_log(&self) -> &Log {
        &self.server
    }

    /// Records a fault of the proxy itself.
    pub fn fault(&self, event: Event) {
        self.fault.add(event);
    }

    /// Opens a listening socket on the server.
    pub fn listen(&self, target: Target) -> Result<Listener, Stop> {
        let any: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let address = SocketAddr::new(any, target.port());
        let socket = self.network.server.run(move || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok::<_, std::io::Error>(socket)
        })?;
        Ok(Listener(
            socket.map_err(Error::system("listen on the server"))?,
        ))
    }

    /// An unconnected socket of the client.
    pub fn client_socket(&self) -> Result<Socket, Stop> {
        let domain = match self.family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let socket = (self.network.client).run(move || Socket::new(domain, Type::STREAM, None))?;
        Ok(socket.map_err(Error::system("open a socket"))?)
    }

    /// Connects the client to a target, through the proxy or directly.
    pub fn connect(&self, target: Target) -> Result<End, Stop> {
        self.connect_with(self.client_socket()?, target, &self.client)
    }

    /// Connects from a given port, which was used before and may still be in use for a moment.
    pub fn connect_from(&self, port: u16, target: Target) -> Result<End, Stop> {
        let any: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let begin = Instant::now();
        loop {
            let socket = self.client_socket()?;
            socket
                .set_reuse_address(true)
                .and_then(|()| socket.bind(&SocketAddr::new(any, port).into()))
                .map_err(Error::system("bind the client's port"))?;
            let log = Log::default();
            let connected = self.connect_with(socket, target, &log);
            let taken = log
                .events()
                .contains(&Event::ConnectFailed(Errno::ADDRNOTAVAIL));
            if taken && begin.elapsed() < self.limit {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            for event in log.events() {
                self.client.add(event);
            }
            return Ok(connected?.with_log(self.client.clone()));
        }
    }

    /// Connects with a prepared socket, and with a log for this end.
    pub fn connect_with(&self, socket: Socket, target: Target, log: &Log) -> Result<End, Stop> {
        let end = End::new(socket, Direction::ToServer, log.clone(), self.limit)?;
        match self.proxy.connect(end.socket(), self.family, target) {
            Ok(()) => log.add(Event::Connected),
            Err(Unconnected::Status(code)) => {
                log.add(Event::ConnectRefused(code));
                return Err(Stop::Here);
            }
            Err(Unconnected::Error(error)) => match error {
                // A reset can only follow a SYN-ACK; it arrived before `connect` returned.
                Errno::CONNRESET => {
                    log.add(Event::Connected);
                    log.add(Event::Failed(Errno::CONNRESET));
                    return Err(Stop::Here);
                }
                Errno::INPROGRESS | Errno::AGAIN => {
                    log.add(Event::Overdue("answer to a SYN"));
                    return Err(Stop::Here);
                }
                error => {
                    log.add(Event::ConnectFailed(error));
                    return Err(Stop::Here);
                }
            },
        }
        Ok(end)
    }

    /// Connects to the server's open port without recording events; `None` if this fails. The time
    /// limit is the socket's own.
    pub fn try_connect(&self, socket: Socket) -> Result<Option<End>, Stop> {
        let connected = self.proxy.connect(&socket, self.family, Target::Open);
        match connected {
            Ok(()) => Ok(Some(End::new(
                socket,
                Direction::ToServer,
                Log::default(),
                self.limit,
            )?)),
            Err(_) => Ok(None),
        }
    }

    /// Accepts a connection if one arrives within `time`, without recording events.
    pub fn try_accept(&self, listener: &Listener, time: Duration) -> Result<Option<End>, Stop> {
        while is_readable(&listener.0, time)? {
            let (socket, _) = listener.0.accept().map_err(Error::system("accept"))?;
            let limit = socket.set_read_timeout(Some(HEADER_LIMIT));
            limit.map_err(Error::system("set a time limit"))?;
            if self.proxy.check_header(&socket, self.family).is_ok() {
                return Ok(Some(End::new(
                    socket,
                    Direction::ToClient,
                    Log::default(),
                    self.limit,
                )?));
            }
        }
        Ok(None)
    }

    /// Waits until a connection can be accepted.
    pub fn wait_until_arrived(&mut self, listener: &Listener) -> Played {
        if !is_readable(&listener.0, self.limit)? {
            self.server.add(Event::Overdue("connection"));
            return Err(Stop::Here);
        }
        if self.running.is_some() && !self.seen_at_gateway {
            // If a session did not go through the proxy, its result would prove nothing.
            if self.connections_of_proxies(&[ESTABLISHED, CLOSE_WAIT])? == 0 {
                self.fault(Event::Other("the session went past the proxy"));
            }
            self.seen_at_gateway = true;
        }
        Ok(())
    }

    /// Accepts the next connection of the server.
    pub fn accept(&mut self, listener: &Listener) -> Result<End, Stop> {
        let log = self.server.clone();
        self.accept_with(listener, &log)
    }

    /// Accepts the next connection, with a log for this end.
    pub fn accept_with(&mut self, listener: &Listener, log: &Log) -> Result<End, Stop> {
        self.wait_until_arrived(listener)?;
        let (socket, _) = listener.0.accept().map_err(Error::system("accept"))?;
        log.add(Event::Accepted);
        let end = End::new(socket, Direction::ToClient, log.clone(), self.limit)?;
        match self.proxy.check_header(end.socket(), self.family) {
            Ok(()) => Ok(end),
            Err(error) => {
                log.add(match errno(&error) {
                    Errno::CONNRESET => Event::Failed(Errno::CONNRESET),
                    _ => Event::Other("NO RIGHT HEADER OF THE PROXY PROTOCOL"),
                });
                Err(Stop::Here)
            }
        }
    }

    /// Opens a connection from the client to the server, and returns both ends.
    pub fn pair(&mut self) -> Result<(End, End), Stop> {
        let listener = self.listen(Target::Open)?;
        self.pair_at(&listener)
    }

    /// Opens a connection to an existing listener.
    pub fn pair_at(&mut self, listener: &Listener) -> Result<(End, End), Stop> {
        let client = self.connect(Target::Open)?;
        Ok((client, self.accept(listener)?))
    }

    /// Opens a connection with a log for each end.
    pub fn pair_with(
        &mut self,
        listener: &Listener,
        client: &Log,
        server: &Log,
    ) -> Result<(End, End), Stop> {
        let near = self.connect_with(self.client_socket()?, Target::Open, client)?;
        Ok((near, self.accept_with(listener, server)?))
    }

    /// Runs an action on the proxy, if there is one.
    pub fn with_proxy(&mut self, action: impl FnOnce(&mut Running)) {
        if let Some(running) = &mut self.running {
            action(running);
        }
    }

    /// Checks that the proxy ends by itself.
    pub fn expect_proxy_to_end(&mut self) {
        if let Some(running) = &mut self.running
            && !running.ends_within(CLEAR_LIMIT)
        {
            self.fault(Event::Other("the proxy still runs"));
        }
    }

    /// Checks that the proxy holds no connection, after both ends have closed all of them.
    pub fn expect_nothing_left(&self) -> Result<(), Error> {
        if self.running.is_none() {
            return Ok(());
        }
        let begin = Instant::now();
        while self.connections_of_proxies(&[ESTABLISHED, CLOSE_WAIT])? > 0 {
            if begin.elapsed() > CLEAR_LIMIT {
                self.fault(Event::Other("connections are left at the proxy"));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The number of connections of the hosts with proxies to or from the targets' ports in one of these
    /// states.
    fn connections_of_proxies(&self, states: &'static [&'static str]) -> Result<usize, Error> {
        let mut count = 0;
        for host in self.network.proxy_hosts() {
            count += host
                .run(move || connections_here(states))?
                .map_err(Error::system("read the connections of a proxy's host"))?;
        }
        Ok(count)
    }
}

/// The number of connections in this network namespace to or from the targets' ports in one of these states.
fn connections_here(states: &[&str]) -> std::io::Result<usize> {
    let ports: Vec<String> = Target::ALL
        .iter()
        .map(|target| target.port())
        .chain([EXPLICIT_PORT])
        .map(|port| format!(":{port:04X}"))
        .collect();
    let mut count = 0;
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let text = std::fs::read_to_string(table)?;
        count += text
            .lines()
            .filter(|line| {
                let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                let [_, local, remote, state] = fields[..] else {
                    return false;
                };
                let ours = |address: &str| ports.iter().any(|p| address.ends_with(p));
                states.contains(&state) && (ours(local) || ours(remote))
            })
            .count();
    }
    Ok(count)
}

fn is_readable(socket: &Socket, time: Duration) -> Result<bool, Error> {
    let mut descriptors = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let ready = poll(&mut descriptors, Some(&limit));
    Ok(ready.map_err(Error::system("wait for a connection"))? > 0)
}

/// States of connections in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
const CLOSE_WAIT: &str = "08";
