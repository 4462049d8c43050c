//! How large a receive window can be open from the first ACK of a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use midspan_units::ByteSize;
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::{information, open_receive_window, set_reset_on_close};

/// The largest receive window, in bytes of data and at most `most`, that a new connection of this process
/// can have open from its first ACK on, after [`open_receive_window`]. It is less than 64 KiB before Linux
/// 6.10, and as large as `net.core.rmem_max` allows without `CAP_NET_ADMIN` of the initial user namespace.
///
/// This is tried with a connection from this machine to itself; no packet leaves the machine, and no
/// answer is awaited.
///
/// # Errors
/// Those of `socket(2)`, `bind(2)`, `setsockopt(2)` and `connect(2)`: the interface `lo` is down, or the
/// kernel is older than Linux 5.14.
pub fn largest_open_window(most: ByteSize) -> io::Result<ByteSize> {
    let (four, six) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    try_family(four, Domain::IPV4, most).or_else(|_| try_family(six, Domain::IPV6, most))
}

fn try_family(address: IpAddr, domain: Domain, most: ByteSize) -> io::Result<ByteSize> {
    let listener = TcpListener::bind((address, 0))?;
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // The connection leaves nothing behind.
    set_reset_on_close(&socket, true)?;
    open_receive_window(&socket, most)?;
    match socket.connect(&listener.local_addr()?.into()) {
        Ok(()) => {}
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    // The kernel chooses the window when it sends the SYN.
    let window = information(&socket)?.advertised_window();
    Ok(ByteSize::from_bytes(u64::from(window)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_shows_what_this_kernel_opens() {
        let of = |bytes| {
            largest_open_window(ByteSize::from_bytes(bytes))
                .unwrap()
                .bytes()
        };
        let large = of(1 << 20);
        if large < 1 << 16 {
            return println!("skipped: this kernel opens {large} bytes");
        }
        // Whole segments of loopback, which have nearly 64 KiB.
        assert!(large <= 1 << 20, "{large}");
        let small = of(140_000);
        assert!((65_536..=140_000).contains(&small), "{small}");
        assert!(small <= large, "{small} {large}");
    }
}
