//! One socket option at a time.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use midspan_units::{BitRate, ByteSize, Dscp, TimeSpan};
use rustix::net::{AddressFamily, sockopt};
use socket2::{Domain, SockRef, Socket, Type};

use super::raw;

/// `SO_MAX_PACING_RATE` of `socket(7)`; the number is the same except on SPARC and PA-RISC.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// Congestion control of this socket (`TCP_CONGESTION`).
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Sets the congestion control (`TCP_CONGESTION`).
///
/// # Errors
/// `NotFound` where the kernel has none of this name; `PermissionDenied` where it is not among
/// [`unrestricted_congestion_controls`] and the process lacks `CAP_NET_ADMIN`.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// Makes slow start begin again: the slow-start threshold becomes infinite, as at the beginning of a
/// connection. Returns whether this is possible. The congestion window does not change, and the
/// congestion control forgets earlier losses.
///
/// There is no option for this, but BBR sets the threshold when it starts. Afterwards the earlier
/// congestion control is set again at once. If the kernel has no BBR, nothing changes. From then on
/// the kernel paces the socket.
///
/// # Errors
/// Those of `getsockopt(2)` and `setsockopt(2)`.
pub fn slow_start_again(socket: impl AsFd) -> io::Result<bool> {
    const SETS_IT: &str = "bbr";
    let socket = socket.as_fd();
    let before = congestion_control(socket)?;
    if before == SETS_IT {
        // It holds to no threshold.
        return Ok(true);
    }
    match set_congestion_control(socket, SETS_IT) {
        Ok(()) => set_congestion_control(socket, &before).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes BBR begin again on a socket that has it: BBR takes the shortest round trip that TCP has measured (in five
/// minutes at most) as new, and is in its Startup. The congestion window does not change. A socket with another
/// congestion control stays as it is.
///
/// There is no option for this, but a congestion control begins when it is set. Reno, which every kernel has and every
/// process may set, is set for an instant before.
///
/// # Errors
/// Those of `getsockopt(2)` and `setsockopt(2)`. If BBR may not be set any more, the socket has CUBIC.
pub fn begin_bbr_again(socket: impl AsFd) -> io::Result<()> {
    const BBR: &str = "bbr";
    let socket = socket.as_fd();
    if congestion_control(socket)? != BBR {
        return Ok(());
    }
    set_congestion_control(socket, "reno")?;
    set_congestion_control(socket, BBR).inspect_err(|_| {
        // An administrator has forbidden BBR meanwhile. Reno is the worst choice for a fast path.
        let _ = set_congestion_control(socket, "cubic");
    })
}

/// Linux 6.15, `linux/tcp.h`.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// Sets the least retransmission time-out (`TCP_RTO_MIN_US`), to which the kernel adds the smoothed round trip.
///
/// # Errors
/// Those of `setsockopt(2)`: `ENOPROTOOPT` before Linux 6.15, `EINVAL` for more than 200 ms or less than 5 ms.
pub fn set_least_timeout(socket: impl AsFd, time: TimeSpan) -> io::Result<()> {
    let microseconds = libc::c_int::try_from(time.nanoseconds() / 1000);
    let value = microseconds.unwrap_or(libc::c_int::MAX).to_ne_bytes();
    raw::set_option(socket.as_fd(), libc::IPPROTO_TCP, TCP_RTO_MIN_US, &value)
}

/// The least retransmission time-out.
///
/// # Errors
/// Those of `getsockopt(2)`: `ENOPROTOOPT` before Linux 6.15.
pub fn least_timeout(socket: impl AsFd) -> io::Result<TimeSpan> {
    let mut bytes = [0; 4];
    raw::get_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        TCP_RTO_MIN_US,
        &mut bytes,
    )?;
    let microseconds = u64::from(u32::from_ne_bytes(bytes));
    Ok(TimeSpan::from_nanoseconds(microseconds * 1000))
}

/// Whether this kernel lets a connection have a least retransmission time-out.
#[must_use]
pub fn has_least_timeout() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| least_timeout(&socket).is_ok())
}

/// Makes the kernel load the module of a congestion control, unless the kernel has it already. This needs
/// `CAP_NET_ADMIN` in the first user namespace.
///
/// # Errors
/// `NotFound` where the kernel has none of this name, or may not load it; those of `socket(2)` and
/// [`set_congestion_control`].
pub fn load_congestion_control(name: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    set_congestion_control(&socket, name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let reason = format!("the kernel has no {name}, and has loaded no module tcp_{name}");
            io::Error::new(io::ErrorKind::NotFound, reason)
        }
        _ => error,
    })
}

/// The congestion controls that this kernel has loaded.
///
/// # Errors
/// Those of reading a file under `/proc`.
pub fn available_congestion_controls() -> io::Result<Vec<String>> {
    words_of("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// The congestion controls that need no capability.
///
/// # Errors
/// Those of reading a file under `/proc`.
pub fn unrestricted_congestion_controls() -> io::Result<Vec<String>> {
    words_of("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
}

fn words_of(file: &str) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(file)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Limit of unsent data in the send buffer, in bytes (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn notsent_lowat(socket: impl AsFd) -> io::Result<ByteSize> {
    let bytes = SockRef::from(&socket.as_fd()).tcp_notsent_lowat()?;
    Ok(ByteSize::from_bytes(u64::from(bytes)))
}

/// Sets the limit of unsent data (`TCP_NOTSENT_LOWAT`). A limit above 4 GiB − 1 byte is reduced to that.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_notsent_lowat(socket: impl AsFd, limit: ByteSize) -> io::Result<()> {
    let bytes = u32::try_from(limit.bytes()).unwrap_or(u32::MAX);
    SockRef::from(&socket.as_fd()).set_tcp_notsent_lowat(bytes)
}

/// How many bytes have to wait in the receive queue before the socket counts as readable (`SO_RCVLOWAT`); an end, an
/// error and a full queue are reported in any case.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_low_water_mark(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    raw::set_option(socket.as_fd(), level, name, &bytes.to_ne_bytes())
}

/// Time that sent data may stay unacknowledged (`TCP_USER_TIMEOUT`, RFC 5482); `None` for the
/// kernel's own limit.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn user_timeout(socket: impl AsFd) -> io::Result<Option<TimeSpan>> {
    let milliseconds = sockopt::tcp_user_timeout(socket)?;
    Ok((milliseconds != 0).then(|| TimeSpan::from_milliseconds(u64::from(milliseconds))))
}

/// Sets the time that sent data may stay unacknowledged (`TCP_USER_TIMEOUT`), rounded up to a
/// millisecond; at most 24 days.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_user_timeout(socket: impl AsFd, timeout: TimeSpan) -> io::Result<()> {
    let milliseconds = timeout.nanoseconds().div_ceil(1_000_000).max(1);
    let limit = i32::MAX.unsigned_abs();
    let milliseconds = u32::try_from(milliseconds).unwrap_or(limit).min(limit);
    Ok(sockopt::set_tcp_user_timeout(socket, milliseconds)?)
}

/// Idle time after which the peer is probed (`TCP_KEEPIDLE`); `None` where it never is.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn keepalive(socket: impl AsFd) -> io::Result<Option<TimeSpan>> {
    let socket = socket.as_fd();
    if !sockopt::socket_keepalive(socket)? {
        return Ok(None);
    }
    Ok(Some(sockopt::tcp_keepidle(socket)?.into()))
}

/// Has the peer probed after this idle time (`SO_KEEPALIVE`, `TCP_KEEPIDLE`), rounded up to a
/// second; 1 s to 32,767 s. Interval and number of probes stay the kernel's.
///
/// # Errors
/// `InvalidInput` beyond the range, else those of `setsockopt(2)`.
pub fn set_keepalive(socket: impl AsFd, idle: TimeSpan) -> io::Result<()> {
    let socket = socket.as_fd();
    let seconds = idle.nanoseconds().div_ceil(1_000_000_000).max(1);
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(seconds))?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// Upper bound of the sending rate (`SO_MAX_PACING_RATE`); `None` where there is none.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn pacing_rate(socket: impl AsFd) -> io::Result<Option<BitRate>> {
    let mut value = [0; 8];
    let length = raw::get_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        SO_MAX_PACING_RATE,
        &mut value,
    )?;
    // Kernels before 4.20 know 32 bits only.
    let rate = if length == 4 {
        let [a, b, c, d, ..] = value;
        match u32::from_ne_bytes([a, b, c, d]) {
            u32::MAX => u64::MAX,
            rate => u64::from(rate),
        }
    } else {
        u64::from_ne_bytes(value)
    };
    Ok(rate_from_bytes_per_second(rate))
}

/// Sets the upper bound of the sending rate (`SO_MAX_PACING_RATE`); `None` takes it away.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_pacing_rate(socket: impl AsFd, rate: Option<BitRate>) -> io::Result<()> {
    let bytes_per_second = rate.map_or(u64::MAX, BitRate::bytes_per_second);
    raw::set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        SO_MAX_PACING_RATE,
        &bytes_per_second.to_ne_bytes(),
    )
}

/// A rate as the kernel gives it: bytes per second, all ones for "no limit", 0 for "not known".
pub(super) fn rate_from_bytes_per_second(rate: u64) -> Option<BitRate> {
    if rate == u64::MAX {
        return None;
    }
    BitRate::from_bits_per_second(rate.saturating_mul(8))
}

/// Size of the send buffer as the kernel counts it: its overhead included, about twice the data.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn send_buffer(socket: impl AsFd) -> io::Result<ByteSize> {
    let bytes = sockopt::socket_send_buffer_size(socket)?;
    Ok(ByteSize::from_bytes(bytes as u64))
}

/// Size of the receive buffer as the kernel counts it: its overhead included, about twice the
/// data.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn receive_buffer(socket: impl AsFd) -> io::Result<ByteSize> {
    let bytes = sockopt::socket_recv_buffer_size(socket)?;
    Ok(ByteSize::from_bytes(bytes as u64))
}

/// Sets the send buffer (`SO_SNDBUF`), which ends the kernel's autotuning. Beyond
/// `net.core.wmem_max` it needs `CAP_NET_ADMIN` of the initial user namespace.
///
/// # Errors
/// Those of `setsockopt(2)`. A size beyond the limit is *not* an error of the kernel: read it
/// back with [`send_buffer`].
pub fn set_send_buffer(socket: impl AsFd, size: ByteSize) -> io::Result<()> {
    let socket = socket.as_fd();
    let size = buffer_size(size);
    if sockopt::set_socket_send_buffer_size_force(socket, size).is_ok() {
        return Ok(());
    }
    Ok(sockopt::set_socket_send_buffer_size(socket, size)?)
}

/// Sets the receive buffer (`SO_RCVBUF`); as [`set_send_buffer`], with `net.core.rmem_max`.
///
/// The window scale is fixed at the handshake: a buffer set afterwards helps only up to the
/// scale that was offered then.
///
/// # Errors
/// As [`set_send_buffer`].
pub fn set_receive_buffer(socket: impl AsFd, size: ByteSize) -> io::Result<()> {
    let socket = socket.as_fd();
    let size = buffer_size(size);
    if sockopt::set_socket_recv_buffer_size_force(socket, size).is_ok() {
        return Ok(());
    }
    Ok(sockopt::set_socket_recv_buffer_size(socket, size)?)
}

/// The size for the system call, at most what the kernel can double in an int.
fn buffer_size(size: ByteSize) -> usize {
    let limit = usize::try_from(i32::MAX / 2).unwrap_or(usize::MAX);
    usize::try_from(size.bytes()).unwrap_or(limit).min(limit)
}

/// Sets whether closing the socket resets the connection (`SO_LINGER` with a time of 0) or ends it with a
/// FIN.
///
/// While a session lives, this is set, so that a crash never looks like a clean end. Before a clean close, it
/// is unset.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_reset_on_close(socket: impl AsFd, reset: bool) -> io::Result<()> {
    let linger = reset.then_some(Duration::ZERO);
    Ok(sockopt::set_socket_linger(socket, linger)?)
}

/// Lets `connect(2)` wait for the first data, and sends the data in the SYN, as far as
/// `net.ipv4.tcp_fastopen` allows (`TCP_FASTOPEN_CONNECT` of tcp(7), RFC 7413).
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_fast_open(socket: impl AsFd) -> io::Result<()> {
    let on = 1_i32.to_ne_bytes();
    raw::set_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_FASTOPEN_CONNECT,
        &on,
    )
}

/// Lets the kernel send the ACK of the peer's SYN-ACK together with the first data, or 200 ms later if there is no
/// data by then (`TCP_DEFER_ACCEPT` on a socket that connects). Call it before `connect(2)`.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_ack_with_data(socket: impl AsFd) -> io::Result<()> {
    // The time is only used by sockets that listen.
    let seconds = 1_i32.to_ne_bytes();
    raw::set_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        &seconds,
    )
}

/// The mark of packets of this socket (`SO_MARK`).
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn mark(socket: impl AsFd) -> io::Result<u32> {
    SockRef::from(&socket.as_fd()).mark()
}

/// Marks packets of this socket (`SO_MARK`). Accepted sockets inherit the listener's.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` (or `CAP_NET_RAW` since Linux 5.17).
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(&socket.as_fd()).set_mark(mark)
}

/// The DSCP of packets of this socket (`IP_TOS` of ip(7), `IPV6_TCLASS` of ipv6(7)).
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn dscp(socket: impl AsFd) -> io::Result<Dscp> {
    let socket = socket.as_fd();
    let field = match sockopt::socket_domain(socket)? {
        AddressFamily::INET6 => sockopt::ipv6_tclass(socket)?,
        _ => u32::from(sockopt::ip_tos(socket)?),
    };
    Dscp::from_number(u64::from((field & 0xff) >> 2)).map_err(io::Error::other)
}

/// Sets the DSCP of packets of this socket (`IP_TOS`, `IPV6_TCLASS`). Accepted sockets inherit the
/// listener's, and its SYN-ACKs have it; with the sysctl `net.ipv4.tcp_reflect_tos` both have the
/// client's instead. For TCP, the kernel keeps the two ECN bits, which these options include.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_dscp(socket: impl AsFd, dscp: Dscp) -> io::Result<()> {
    let socket = socket.as_fd();
    let field = dscp.number() << 2;
    let result = match sockopt::socket_domain(socket)? {
        AddressFamily::INET6 => sockopt::set_ipv6_tclass(socket, u32::from(field)),
        _ => sockopt::set_ip_tos(socket, field),
    };
    Ok(result?)
}

/// Longest headers of a SYN: those of IPv6 with extensions, and of TCP.
const SAVED: usize = 512;

/// Makes a listening socket keep the headers of the SYN of each connection (`TCP_SAVE_SYN`), for
/// [`saved_dscp`].
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_save_syn(socket: impl AsFd, is_on: bool) -> io::Result<()> {
    let value = libc::c_int::from(is_on).to_ne_bytes();
    raw::set_option(
        socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_SAVE_SYN,
        &value,
    )
}

/// The DSCP of the client's SYN on an accepted socket (`TCP_SAVED_SYN`), and frees the kept
/// headers; `None` if none were kept, as for a SYN that was answered with a SYN cookie.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn saved_dscp(socket: impl AsFd) -> io::Result<Option<Dscp>> {
    let mut headers = [0; SAVED];
    let option = libc::TCP_SAVED_SYN;
    let length = raw::get_option(socket.as_fd(), libc::IPPROTO_TCP, option, &mut headers)?;
    Ok(headers.get(..length).and_then(Dscp::of_packet))
}

/// Bytes written and not yet acknowledged by the peer, sent or not (`SIOCOUTQ`).
///
/// # Errors
/// Those of `ioctl(2)`; `InvalidInput` on a listening socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<ByteSize> {
    raw::output_queue(socket.as_fd()).map(ByteSize::from_bytes)
}

/// Whether the kernel has `TCP_REPAIR` (Linux 3.5, `CONFIG_CHECKPOINT_RESTORE`), and this process
/// may use it. The socket must neither listen nor be connected, and stays as it is.
///
/// # Errors
/// Those of `setsockopt(2)`; `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn try_repair(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    for value in [1_i32, 0] {
        raw::set_option(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            &value.to_ne_bytes(),
        )?;
    }
    Ok(())
}
