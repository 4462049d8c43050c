//! Filters for packet sockets: classic BPF programs that the kernel runs for each packet
//! (`Documentation/networking/filter.rst` of Linux), so that unwanted packets cost little.

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
const RETURN: u16 = 0x06;

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
