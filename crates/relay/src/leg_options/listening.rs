//! Changing what connections inherit from a socket that listens already.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::tcp;
use midspan_policy::{Buffer, LegStart};
use midspan_units::ByteSize;

use super::{LegError, apply_before_listen, fresh_socket};

/// Sets on a listening socket the options that connections accepted from now on inherit: receive buffer,
/// congestion control, keep-alive and mark. An option that `start` or `mark` leaves out gets the value of a
/// new socket of this network namespace.
///
/// # Errors
/// As [`apply`](super::apply). After a refused option, some of the others are not set: those of `start` in
/// the order of [`apply_before_listen`], those that it leaves out in the order congestion control,
/// keep-alive, receive buffer. Before Linux 5.14 a fixed receive buffer cannot go back to `"auto"`.
pub fn change_listener(
    listener: impl AsFd,
    start: &LegStart,
    mark: Option<u32>,
) -> Result<(), LegError> {
    let listener = listener.as_fd();
    let marked = match tcp::mark(listener) {
        Ok(present) if present == mark.unwrap_or(0) => Ok(()),
        _ => tcp::set_mark(listener, mark.unwrap_or(0)),
    };
    let defaults = set_to_defaults(listener, start);
    let applied = apply_before_listen(listener, start);
    let refused = |key, source| LegError::Refused {
        key,
        value: "the system's default".to_owned(),
        source,
    };
    applied
        .and(marked.map_err(|error| refused("initial_window", error)))
        .and(defaults.map_err(|(key, error)| refused(key, error)))
}

fn set_to_defaults(
    listener: BorrowedFd<'_>,
    start: &LegStart,
) -> Result<(), (&'static str, io::Error)> {
    let fresh = fresh_socket().map_err(|error| ("receive_buffer", error))?;
    let congestion_control = match start.congestion_control {
        None => congestion_control(listener, &fresh),
        Some(_) => Ok(()),
    };
    let keepalive = match start.keepalive {
        None => rustix::net::sockopt::set_socket_keepalive(listener, false),
        Some(_) => Ok(()),
    };
    let receive_buffer = match start.receive_buffer {
        Buffer::Auto => receive_buffer(listener, &fresh),
        _ => Ok(()),
    };
    congestion_control
        .map_err(|error| ("congestion_control", error))
        .and(keepalive.map_err(|error| ("keepalive", error.into())))
        .and(receive_buffer.map_err(|error| ("receive_buffer", error)))
}

fn congestion_control(listener: BorrowedFd<'_>, fresh: &OwnedFd) -> io::Result<()> {
    let default = tcp::congestion_control(fresh)?;
    if tcp::congestion_control(listener)? == default {
        return Ok(());
    }
    tcp::set_congestion_control(listener, &default)
}

fn receive_buffer(listener: BorrowedFd<'_>, fresh: &OwnedFd) -> io::Result<()> {
    let default = tcp::receive_buffer(fresh)?;
    if tcp::receive_buffer(listener)? == default {
        return Ok(());
    }
    // The kernel doubles the size that is set.
    tcp::set_receive_buffer(listener, ByteSize::from_bytes(default.bytes() / 2))?;
    tcp::unlock_receive_queue(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn a_listener_goes_back_to_the_defaults() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let default = tcp::receive_buffer(&socket).unwrap();
        let control = tcp::congestion_control(&socket).unwrap();
        let start = LegStart {
            congestion_control: Some("reno".to_owned()),
            receive_buffer: Buffer::Fixed(ByteSize::from_bytes(100_000)),
            ..LegStart::default()
        };
        socket.listen(1).unwrap();
        change_listener(&socket, &start, None).unwrap();
        assert_eq!(tcp::congestion_control(&socket).unwrap(), "reno");
        assert_eq!(tcp::receive_buffer(&socket).unwrap().bytes(), 200_000);
        match change_listener(&socket, &LegStart::default(), None) {
            Ok(()) => {}
            Err(LegError::Refused { source, .. })
                if Errno::from_io_error(&source) == Some(Errno::NOPROTOOPT) =>
            {
                return println!("skipped: this kernel has no SO_BUF_LOCK");
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(tcp::congestion_control(&socket).unwrap(), control);
        assert_eq!(tcp::receive_buffer(&socket).unwrap(), default);
    }
}
