//! Classic BPF programs that the kernel runs for each packet
//! (`Documentation/networking/filter.rst` of Linux): filters for packet sockets, so that unwanted
//! packets cost little, and the choice of one of several listening sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::SockFilter;

/// Loads relative to the network layer, whatever link layer there is (`SKF_NET_OFF`).
const NETWORK: u32 = 0xfff0_0000;

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_INDEX: u16 = 0x01;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const TO_INDEX: u16 = 0x07;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const SUBTRACT: u16 = 0x14;
const RETURN: u16 = 0x06;
const RETURN_RESULT: u16 = 0x16;

const TCP: u32 = 6;
/// The fragment header of IPv6.
const FRAGMENT: u32 = 44;

/// Accepts TCP segments between two ports, in both directions, over IPv4 and IPv6. Does not accept
/// later fragments of a datagram, which have no ports, or IPv6 with extension headers.
#[must_use]
pub fn tcp_between(one: u16, other: u16) -> Vec<SockFilter> {
    let (one, other) = (u32::from(one), u32::from(other));
    let op = SockFilter::new;
    vec![
        op(LOAD_BYTE, 0, 0, NETWORK),
        op(AND, 0, 0, 0xf0),
        op(JUMP_EQUAL, 1, 0, 0x40),
        op(JUMP_EQUAL, 9, 20, 0x60),
        // IPv4: TCP, not a later fragment; the index is the length of the header.
        op(LOAD_BYTE, 0, 0, NETWORK + 9),
        op(JUMP_EQUAL, 0, 18, TCP),
        op(LOAD_HALF, 0, 0, NETWORK + 6),
        op(JUMP_SET, 16, 0, 0x1fff),
        op(LOAD_BYTE, 0, 0, NETWORK),
        op(AND, 0, 0, 0x0f),
        op(SHIFT_LEFT, 0, 0, 2),
        op(TO_INDEX, 0, 0, 0),
        op(JUMP, 0, 0, 3),
        // IPv6
        op(LOAD_BYTE, 0, 0, NETWORK + 6),
        op(JUMP_EQUAL, 0, 9, TCP),
        op(LOAD_INDEX, 0, 0, 40),
        // Both: the ports.
        op(LOAD_HALF_INDEXED, 0, 0, NETWORK),
        op(JUMP_EQUAL, 0, 2, one),
        op(LOAD_HALF_INDEXED, 0, 0, NETWORK + 2),
        op(JUMP_EQUAL, 5, 0, other),
        op(LOAD_HALF_INDEXED, 0, 0, NETWORK),
        op(JUMP_EQUAL, 0, 2, other),
        op(LOAD_HALF_INDEXED, 0, 0, NETWORK + 2),
        op(JUMP_EQUAL, 1, 0, one),
        op(RETURN, 0, 0, 0),
        op(RETURN, 0, 0, u32::MAX),
    ]
}

/// Accepts TCP segments over IPv4 and IPv6 and keeps their first `bytes` bytes. Does not accept
/// later fragments of a datagram, or IPv6 with extension headers other than that of a first
/// fragment.
#[must_use]
pub fn tcp_headers(bytes: u32) -> Vec<SockFilter> {
    let op = SockFilter::new;
    vec![
        op(LOAD_BYTE, 0, 0, NETWORK),
        op(AND, 0, 0, 0xf0),
        op(JUMP_EQUAL, 1, 0, 0x40),
        op(JUMP_EQUAL, 4, 11, 0x60),
        // IPv4: TCP, not a later fragment.
        op(LOAD_BYTE, 0, 0, NETWORK + 9),
        op(JUMP_EQUAL, 0, 9, TCP),
        op(LOAD_HALF, 0, 0, NETWORK + 6),
        op(JUMP_SET, 7, 8, 0x1fff),
        // IPv6: TCP, or the first fragment of it.
        op(LOAD_BYTE, 0, 0, NETWORK + 6),
        op(JUMP_EQUAL, 6, 0, TCP),
        op(JUMP_EQUAL, 0, 4, FRAGMENT),
        op(LOAD_BYTE, 0, 0, NETWORK + 40),
        op(JUMP_EQUAL, 0, 2, TCP),
        op(LOAD_HALF, 0, 0, NETWORK + 42),
        op(JUMP_SET, 0, 1, 0xfff8),
        op(RETURN, 0, 0, 0),
        op(RETURN, 0, 0, bytes),
    ]
}

/// Where the number of a SYN's listening socket is in its IP header: the identification of IPv4, and
/// the last 16 bits of the flow label of IPv6. A SYN that is no fragment needs neither.
const IPV4_NUMBER: u32 = 4;
const IPV6_NUMBER: u32 = 2;

/// Writes into the header of a SYN (from its IP header on) by which of the listening sockets with
/// [`choose_listening_socket`] it is accepted, counted from 0. Does not write numbers that have no
/// place there, or into a packet without an IP header: the kernel then chooses by itself. The caller
/// computes the checksum of IPv4.
pub fn set_listening_socket(packet: &mut [u8], index: usize) {
    let Some(number) = index.checked_add(1).and_then(|it| u16::try_from(it).ok()) else {
        return;
    };
    let place = match packet.first().map(|first| first >> 4) {
        Some(4) => IPV4_NUMBER as usize,
        Some(6) => IPV6_NUMBER as usize,
        _ => return,
    };
    if let Some(bytes) = packet.get_mut(place..place + 2) {
        bytes.copy_from_slice(&number.to_be_bytes());
    }
}

/// Lets each SYN choose, by the [number in its header](set_listening_socket), which one of the
/// listening sockets with the same address and `SO_REUSEPORT` accepts it. They are numbered in the
/// order in which they began to listen; it suffices to call this function for one of them. If there is no
/// socket with this number, the kernel chooses one, as without this function.
///
/// # Errors
/// Those of `setsockopt(2)`, `SO_ATTACH_REUSEPORT_CBPF`.
pub fn choose_listening_socket(socket: impl AsFd) -> io::Result<()> {
    let op = SockFilter::new;
    let program = [
        op(LOAD_BYTE, 0, 0, NETWORK),
        op(AND, 0, 0, 0xf0),
        op(JUMP_EQUAL, 0, 2, 0x40),
        op(LOAD_HALF, 0, 0, NETWORK + IPV4_NUMBER),
        op(JUMP, 0, 0, 1),
        op(LOAD_HALF, 0, 0, NETWORK + IPV6_NUMBER),
        // Without a number, the result is more than any index.
        op(SUBTRACT, 0, 0, 1),
        op(RETURN_RESULT, 0, 0, 0),
    ];
    choose_by(socket.as_fd(), &program)
}

/// Loads the number of the processor that handles the packet (`SKF_AD_OFF + SKF_AD_CPU`).
const PROCESSOR: u32 = 0xffff_f000 + 36;
const LOAD_WORD: u16 = 0x20;

/// Most processors of [`choose_socket_of_processor`]: a program has at most 4,096 instructions.
pub const MOST_PROCESSORS: usize = 1_024;

/// Lets the processor that handles a SYN choose which one of the listening sockets with the same address and
/// `SO_REUSEPORT` accepts it: that of the same place in `processors`. The sockets are numbered in the order
/// in which they began to listen; it suffices to call this function for one of them. If the processor is not
/// among `processors`, the kernel chooses a socket, as without this function.
///
/// Unlike `SO_INCOMING_CPU`, this works on kernels before 6.2, too.
///
/// # Errors
/// Those of `setsockopt(2)`, `SO_ATTACH_REUSEPORT_CBPF`; more than [`MOST_PROCESSORS`].
pub fn choose_socket_of_processor(socket: impl AsFd, processors: &[usize]) -> io::Result<()> {
    if processors.len() > MOST_PROCESSORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    choose_by(socket.as_fd(), &socket_of_processor(processors))
}

fn socket_of_processor(processors: &[usize]) -> Vec<SockFilter> {
    let op = SockFilter::new;
    let mut program = vec![op(LOAD_WORD, 0, 0, PROCESSOR)];
    for (index, processor) in processors.iter().enumerate() {
        let Ok(processor) = u32::try_from(*processor) else {
            continue;
        };
        program.push(op(JUMP_EQUAL, 0, 1, processor));
        program.push(op(RETURN, 0, 0, index as u32));
    }
    // More than any index.
    program.push(op(RETURN, 0, 0, u32::MAX));
    program
}

/// Sets the program by which the kernel chooses among sockets with `SO_REUSEPORT`.
fn choose_by(socket: BorrowedFd<'_>, program: &[SockFilter]) -> io::Result<()> {
    // `struct sock_fprog`
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads `filter`, whose length is given, and the program to which it points;
    // `SockFilter` has the layout of `struct sock_filter`. Both live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            std::ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, sockopt};

    fn listening(at: SocketAddr) -> (OwnedFd, SocketAddr) {
        let family = match at {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &at).unwrap();
        listen(&socket, 64).unwrap();
        let address = rustix::net::getsockname(&socket).unwrap();
        (socket, address.try_into().unwrap())
    }

    /// Linux's own SYNs have random identifications and flow labels. Nearly all of them are no
    /// socket's number: then the kernel's hash chooses, and no connection is lost.
    #[test]
    fn connections_without_a_number_reach_some_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (first, at) = listening(address.parse().unwrap());
            choose_listening_socket(&first).unwrap();
            let sockets = [first, listening(at).0, listening(at).0];
            let clients: Vec<_> = (0..60).map(|_| TcpStream::connect(at).unwrap()).collect();
            let (mut accepted, begun) = (0, Instant::now());
            while accepted < clients.len() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{accepted}");
                let has_one = |socket: &&OwnedFd| rustix::net::accept(socket).is_ok();
                accepted += sockets.iter().filter(has_one).count();
            }
        }
    }

    #[test]
    fn the_processor_of_a_connection_chooses_its_socket() {
        let own = *crate::processors::allowed().last().unwrap();
        let other = own + 1;
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // The client's processor handles a SYN over the loopback interface.
            for (processors, chosen) in [([other, own], 1), ([own, other], 0)] {
                let (first, at) = listening(address.parse().unwrap());
                choose_socket_of_processor(&first, &processors).unwrap();
                let sockets = [first, listening(at).0];
                std::thread::spawn(move || {
                    crate::processors::run_only_on(own).unwrap();
                    (0..8).for_each(|_| drop(TcpStream::connect(at).unwrap()));
                })
                .join()
                .unwrap();
                let waiting = |socket: &OwnedFd| {
                    std::iter::repeat_with(|| rustix::net::accept(socket))
                        .take_while(Result::is_ok)
                        .count()
                };
                assert_eq!(waiting(&sockets[1 - chosen]), 0);
                assert_eq!(waiting(&sockets[chosen]), 8);
            }
        }
        let many = vec![0; MOST_PROCESSORS + 1];
        let (socket, _) = listening("127.0.0.1:0".parse().unwrap());
        assert!(choose_socket_of_processor(&socket, &many).is_err());
    }

    #[test]
    fn the_number_is_written_where_the_program_reads_it() {
        let mut four = [0; 20];
        four[0] = 0x45;
        set_listening_socket(&mut four, 2);
        assert_eq!(four[4..6], [0, 3]);
        let mut six = [0; 40];
        six[0] = 0x60;
        set_listening_socket(&mut six, 300);
        assert_eq!(six[2..4], [1, 45]);
        let before = six;
        set_listening_socket(&mut six, 65_535);
        assert_eq!(six, before);
        set_listening_socket(&mut [], 1);
        set_listening_socket(&mut [0x45, 0], 1);
    }
}
