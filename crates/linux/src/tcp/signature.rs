//! Signed segments: TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925), as in <linux/tcp.h>.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::raw;

/// `TCP_MD5SIG` and `TCP_AO_ADD_KEY`.
const MD5_KEY: libc::c_int = 14;
const AO_ADD_KEY: libc::c_int = 38;
/// Longest key (`TCP_MD5SIG_MAXKEYLEN`, `TCP_AO_MAXKEYLEN`).
const KEY_LIMIT: usize = 80;
/// `struct sockaddr_storage`.
const ADDRESS: usize = 128;

/// Makes the kernel sign all segments to `peer` with TCP-MD5, and require the signature from `peer`. Call
/// this function before the connection is opened, or on a listening socket. The port of `peer` does not
/// matter.
///
/// # Errors
/// `InvalidInput` for a key of more than 80 bytes; otherwise those of `setsockopt(2)`, `ENOPROTOOPT` if the
/// kernel has no TCP-MD5.
pub fn set_md5_key(socket: impl AsFd, peer: SocketAddr, key: &[u8]) -> io::Result<()> {
    // `struct tcp_md5sig`: address, flags, prefix, length of the key, interface, key.
    let mut value = [0; ADDRESS + 8 + KEY_LIMIT];
    let length = put_address_and_key(&mut value, peer, key, ADDRESS + 8)?;
    value[ADDRESS + 2..ADDRESS + 4].copy_from_slice(&u16::from(length).to_ne_bytes());
    raw::set_option(socket.as_fd(), libc::IPPROTO_TCP, MD5_KEY, &value)
}

/// Makes the kernel sign all segments to `peer` with TCP-AO (HMAC-SHA-1-96, key id 1 in both directions), and
/// require the signature from `peer`. Call this function before the connection is opened, or on a listening
/// socket. The port of `peer` does not matter.
///
/// # Errors
/// `InvalidInput` for a key of more than 80 bytes; otherwise those of `setsockopt(2)`, `ENOPROTOOPT` if the
/// kernel has no TCP-AO (before Linux 6.7, or without `CONFIG_TCP_AO`).
pub fn set_ao_key(socket: impl AsFd, peer: SocketAddr, key: &[u8]) -> io::Result<()> {
    const ALGORITHM: &[u8] = b"hmac(sha1)";
    /// The address, 64 bytes for the algorithm's name, interface, flags, reserved.
    const NUMBERS: usize = ADDRESS + 64 + 4 + 4 + 2;
    // `struct tcp_ao_add`: then prefix, ids of sent and received keys, length of the signature,
    // flags, length of the key, key.
    let mut value = [0; NUMBERS + 6 + KEY_LIMIT];
    let length = put_address_and_key(&mut value, peer, key, NUMBERS + 6)?;
    value[ADDRESS..ADDRESS + ALGORITHM.len()].copy_from_slice(ALGORITHM);
    let prefix = match peer.ip() {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    value[NUMBERS..NUMBERS + 6].copy_from_slice(&[prefix, 1, 1, 12, 0, length]);
    raw::set_option(socket.as_fd(), libc::IPPROTO_TCP, AO_ADD_KEY, &value)
}

/// The address at the front with port 0, the key at its place; the key's length.
fn put_address_and_key(
    value: &mut [u8],
    peer: SocketAddr,
    key: &[u8],
    place: usize,
) -> io::Result<u8> {
    if key.len() > KEY_LIMIT {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let family = match peer {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    // `sa_family_t` has 16 bits.
    value[..2].copy_from_slice(&u16::try_from(family).unwrap_or_default().to_ne_bytes());
    match peer.ip() {
        IpAddr::V4(four) => value[4..8].copy_from_slice(&four.octets()),
        IpAddr::V6(six) => value[8..24].copy_from_slice(&six.octets()),
    }
    value[place..place + key.len()].copy_from_slice(key);
    Ok(u8::try_from(key.len()).unwrap_or_default())
}
