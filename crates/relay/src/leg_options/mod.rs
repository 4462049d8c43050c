//! What a leg is set to before its first byte: carries a [`LegStart`] out, with errors on which an
//! operator can act.

mod listening;

pub use listening::change_listener;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::tcp;
use midspan_policy::{Buffer, LegStart, PacingBy};
use midspan_units::{ByteSize, TimeSpan};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use thiserror::Error;

/// Longest time that `TCP_KEEPIDLE` takes.
const KEEPALIVE_LIMIT: TimeSpan = TimeSpan::from_seconds(32_767);

/// Why a leg cannot be set up as configured. Each text contains the key and what to do.
#[derive(Debug, Error)]
pub enum LegError {
    /// The kernel has no such congestion control.
    #[error(
        "congestion_control = \"{name}\": this kernel does not offer it; it offers {available} \
         (a module may have to be loaded: modprobe tcp_{name})"
    )]
    UnknownCongestionControl {
        /// As asked for.
        name: String,
        /// Those the kernel has loaded.
        available: String,
    },
    /// The congestion control needs a capability.
    #[error(
        "congestion_control = \"{name}\" needs CAP_NET_ADMIN, only {unrestricted} do not: run as \
         root, give the program the capability (setcap cap_net_admin+ep), allow it to everyone \
         (sysctl net.ipv4.tcp_allowed_congestion_control), or remove the key"
    )]
    RestrictedCongestionControl {
        /// As asked for.
        name: String,
        /// Those that everyone may use.
        unrestricted: String,
    },
    /// The buffer is beyond the system's limit.
    #[error(
        "{key} = \"{wanted}\" is more than this system allows ({limit}): raise it \
         (sysctl {sysctl}), run as root, or use \"auto\""
    )]
    BufferTooLarge {
        /// `send_buffer` or `receive_buffer`.
        key: &'static str,
        /// As asked for.
        wanted: ByteSize,
        /// What the kernel gave.
        limit: ByteSize,
        /// Name of the limit.
        sysctl: &'static str,
    },
    /// The value is outside what the option takes.
    #[error("{key} = \"{value}\" is out of range: it lies between {low} and {high}")]
    OutOfRange {
        /// Name of the key.
        key: &'static str,
        /// As asked for.
        value: String,
        /// Smallest value.
        low: String,
        /// Largest value.
        high: String,
    },
    /// What is asked for cannot be done yet.
    #[error("{key} = {value}: this version of Midspan cannot set it; leave it out")]
    NotSupported {
        /// Name of the key.
        key: &'static str,
        /// As asked for.
        value: String,
    },
    /// The kernel refused for another reason.
    #[error("{key} = \"{value}\": the kernel refused it: {source}")]
    Refused {
        /// Name of the key.
        key: &'static str,
        /// As asked for.
        value: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LegError {
    /// Name of the key that cannot be set.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::UnknownCongestionControl { .. } | Self::RestrictedCongestionControl { .. } => {
                "congestion_control"
            }
            Self::BufferTooLarge { key, .. }
            | Self::OutOfRange { key, .. }
            | Self::NotSupported { key, .. }
            | Self::Refused { key, .. } => key,
        }
    }
}

/// Sets all options in `start`. Call it before the first byte.
///
/// # Errors
/// The first option that cannot be set; those before it stay set.
pub fn apply(socket: impl AsFd, start: &LegStart) -> Result<(), LegError> {
    let socket = socket.as_fd();
    refuse_unsupported(start)?;
    set_congestion_control(socket, start)?;
    set_send_buffer(socket, start.send_buffer)?;
    set_receive_buffer(socket, start.receive_buffer)?;
    if let Some(window) = start.receive_window {
        // It may become smaller than this; see `Offered::receive_window`.
        tcp::open_receive_window(socket, window).map_err(refused("receive_window", window))?;
    }
    if let Some(limit) = start.notsent_lowat {
        tcp::set_notsent_lowat(socket, limit).map_err(refused("notsent_lowat", limit))?;
    }
    let by_kernel = start.pacing_by == PacingBy::Kernel;
    if let Some(rate) = start.pacing_rate.filter(|_| by_kernel) {
        tcp::set_pacing_rate(socket, Some(rate)).map_err(refused("pacing_rate", rate))?;
    }
    if start.ack_with_data {
        tcp::set_ack_with_data(socket).map_err(refused("ack_with_data", true))?;
    }
    if let Some(idle) = start.keepalive {
        set_keepalive(socket, idle)?;
    }
    if let Some(timeout) = start.user_timeout {
        tcp::set_user_timeout(socket, timeout).map_err(refused("user_timeout", timeout))?;
    }
    Ok(())
}

/// Sets the options on a socket that every connection accepted from it will inherit. Call this function
/// before the socket listens, or for later connections by [`change_listener`]. The receive buffer, which
/// determines the window scale, and the congestion control must be set before the handshake: if a connection
/// once had BBR, the kernel paces it permanently, even after a change. `keepalive` is set here because this
/// costs no system call per connection.
///
/// # Errors
/// The first option that cannot be set; all others are set nevertheless.
pub fn apply_before_listen(listener: impl AsFd, start: &LegStart) -> Result<(), LegError> {
    let listener = listener.as_fd();
    let congestion_control = set_congestion_control(listener, start);
    let keepalive = match start.keepalive {
        Some(idle) => set_keepalive(listener, idle),
        None => Ok(()),
    };
    let receive_buffer = set_receive_buffer(listener, start.receive_buffer);
    congestion_control.and(keepalive).and(receive_buffer)
}

fn set_congestion_control(socket: BorrowedFd<'_>, start: &LegStart) -> Result<(), LegError> {
    let Some(name) = &start.congestion_control else {
        return Ok(());
    };
    tcp::set_congestion_control(socket, name).map_err(|error| congestion_control_error(name, error))
}

/// Whether this process, on this machine, could set up such a leg: tries it on a socket of its
/// own and closes that.
///
/// # Errors
/// As [`apply`]; `Refused` with key `socket` where no socket can be opened.
pub fn check(start: &LegStart) -> Result<(), LegError> {
    let socket = fresh_socket().map_err(refused("socket", "tcp"))?;
    apply(&socket, start)
}

/// A new TCP socket of this network namespace, of a family that the kernel has.
fn fresh_socket() -> io::Result<OwnedFd> {
    let open =
        |family| rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    Ok(open(AddressFamily::INET).or_else(|_| open(AddressFamily::INET6))?)
}

fn refused<V: ToString>(key: &'static str, value: V) -> impl FnOnce(io::Error) -> LegError {
    move |source| LegError::Refused {
        key,
        value: value.to_string(),
        source,
    }
}

fn refuse_unsupported(start: &LegStart) -> Result<(), LegError> {
    if let Some(size) = start.segment_ceiling {
        return Err(LegError::NotSupported {
            key: "segment_ceiling",
            value: format!("\"{size}\""),
        });
    }
    if let Some(scale) = start.window_scale {
        return Err(LegError::NotSupported {
            key: "window_scale",
            value: scale.to_string(),
        });
    }
    Ok(())
}

fn congestion_control_error(name: &str, error: io::Error) -> LegError {
    let list = |names: io::Result<Vec<String>>| match names {
        Ok(names) if !names.is_empty() => names.join(", "),
        _ => "none that it names".to_owned(),
    };
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => LegError::UnknownCongestionControl {
            name: name.to_owned(),
            available: list(tcp::available_congestion_controls()),
        },
        Some(Errno::PERM) => LegError::RestrictedCongestionControl {
            name: name.to_owned(),
            unrestricted: list(tcp::unrestricted_congestion_controls()),
        },
        _ => refused("congestion_control", name)(error),
    }
}

fn set_send_buffer(socket: BorrowedFd<'_>, buffer: Buffer) -> Result<(), LegError> {
    const KEY: &str = "send_buffer";
    let Buffer::Fixed(wanted) = buffer else {
        return Ok(());
    };
    tcp::set_send_buffer(socket, wanted).map_err(refused(KEY, wanted))?;
    let given = tcp::send_buffer(socket).map_err(refused(KEY, wanted))?;
    compare_buffer(KEY, wanted, given, "net.core.wmem_max")
}

fn set_receive_buffer(socket: BorrowedFd<'_>, buffer: Buffer) -> Result<(), LegError> {
    const KEY: &str = "receive_buffer";
    let Buffer::Fixed(wanted) = buffer else {
        return Ok(());
    };
    tcp::set_receive_buffer(socket, wanted).map_err(refused(KEY, wanted))?;
    let given = tcp::receive_buffer(socket).map_err(refused(KEY, wanted))?;
    compare_buffer(KEY, wanted, given, "net.core.rmem_max")
}

/// The kernel doubles the size for its overhead, and cuts it silently at a limit.
fn compare_buffer(
    key: &'static str,
    wanted: ByteSize,
    given: ByteSize,
    sysctl: &'static str,
) -> Result<(), LegError> {
    if given.bytes() / 2 >= wanted.bytes() {
        return Ok(());
    }
    Err(LegError::BufferTooLarge {
        key,
        wanted,
        limit: ByteSize::from_bytes(given.bytes() / 2),
        sysctl,
    })
}

fn set_keepalive(socket: BorrowedFd<'_>, idle: TimeSpan) -> Result<(), LegError> {
    const KEY: &str = "keepalive";
    if idle > KEEPALIVE_LIMIT {
        return Err(LegError::OutOfRange {
            key: KEY,
            value: idle.to_string(),
            low: TimeSpan::from_seconds(1).to_string(),
            high: KEEPALIVE_LIMIT.to_string(),
        });
    }
    tcp::set_keepalive(socket, idle).map_err(refused(KEY, idle))
}
