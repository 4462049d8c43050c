//! A download through smoltcp.
//!
//! Arguments: own address, address and port of the server. Standard input is a TUN device: each
//! read or write is one IP packet. The program sends "get" and writes the received data to standard
//! output until the server closes the connection.

use std::error::Error;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const MTU: usize = 1500;
const LARGEST_PACKET: usize = 65_535;
const RECEIVE_BUFFER: usize = 65_535;
const SEND_BUFFER: usize = 4096;
const FIRST_PORT: u16 = 20_000;

/// The TUN device at standard input.
struct Tun {
    buffer: Vec<u8>,
}

struct Arrived<'a>(&'a [u8]);
struct Leaving;

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for Leaving {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let result = fill(&mut packet);
        // A packet that cannot be written is lost, as on a network.
        let _ = rustix::io::write(std::io::stdin(), &packet);
        result
    }
}

impl Device for Tun {
    type RxToken<'a> = Arrived<'a>;
    type TxToken<'a> = Leaving;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Leaving)> {
        let length = rustix::io::read(std::io::stdin(), &mut self.buffer[..]).ok()?;
        Some((Arrived(&self.buffer[..length]), Leaving))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving> {
        Some(Leaving)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [own, server, port] = &arguments[..] else {
        return Err("usage: smoltcp-client OWN-ADDRESS SERVER PORT".into());
    };
    download(own.parse()?, server.parse()?, port.parse()?)
}

fn download(own: IpAddr, server: IpAddr, port: u16) -> Result<(), Box<dyn Error>> {
    rustix::io::ioctl_fionbio(std::io::stdin(), true)?;
    let mut device = Tun {
        buffer: vec![0; LARGEST_PACKET],
    };
    let start = std::time::Instant::now();
    let now = || Instant::from_micros(i64::try_from(start.elapsed().as_micros()).unwrap_or(0));
    let mut config = Config::new(HardwareAddress::Ip);
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    config.random_seed = u64::from(since.subsec_nanos()) ^ u64::from(std::process::id()) << 32;
    let local_port = FIRST_PORT + (config.random_seed % 20_000) as u16;
    let mut interface = Interface::new(config, &mut device, now());
    let length = if own.is_ipv4() { 24 } else { 64 };
    let mut full = false;
    interface.update_ip_addrs(|addresses| {
        full = addresses.push(IpCidr::new(own.into(), length)).is_err();
    });
    if full {
        return Err("no room for the address".into());
    }
    // The device has no link layer, so the address of the router is never used.
    match IpAddress::from(server) {
        IpAddress::Ipv4(next) => interface.routes_mut().add_default_ipv4_route(next)?,
        IpAddress::Ipv6(next) => interface.routes_mut().add_default_ipv6_route(next)?,
    };

    let (mut receive, mut send) = (vec![0; RECEIVE_BUFFER], vec![0; SEND_BUFFER]);
    let mut socket = Socket::new(
        SocketBuffer::new(&mut receive[..]),
        SocketBuffer::new(&mut send[..]),
    );
    socket.connect(interface.context(), (server, port), local_port)?;
    let mut storage = [SocketStorage::EMPTY];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let handle = sockets.add(socket);
    let mut output = std::io::stdout().lock();
    let (mut asked, mut ending) = (false, false);
    loop {
        interface.poll(now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        if !asked && socket.may_send() {
            socket.send_slice(b"get")?;
            asked = true;
        }
        while socket.can_recv() {
            let written = socket.recv(|data| (data.len(), output.write_all(data)))?;
            written?;
        }
        match socket.state() {
            State::CloseWait if !ending => {
                socket.close();
                ending = true;
            }
            State::Closed | State::TimeWait if ending => break,
            State::Closed => return Err("the connection has ended too early".into()),
            _ => {}
        }
        let most = Duration::from_millis(100);
        let wait = interface.poll_delay(now(), &sockets).unwrap_or(most);
        let micros = wait.min(most).total_micros();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(micros.min(999_999) * 1000)?,
        };
        let stdin = std::io::stdin();
        let mut waited = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        poll(&mut waited, Some(&timeout))?;
    }
    output.flush()?;
    Ok(())
}
