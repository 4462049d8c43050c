//! A packet socket's ring, and programs that the kernel runs for packets, in a network namespace.

#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use midspan_linux::netlink::Netlink;
use midspan_linux::packet_filter;
use midspan_linux::packet_socket::{PacketSocket, Sight};
use midspan_linux::raw_packet::{Family, RawSocket};
use midspan_testbed::{KernelTests, kernel_test};
use socket2::{Domain, Socket, Type};

/// For what the kernel may do later.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    KernelTests::new().main()
}

/// The emulator's rings are a gigabyte and more, and each program that a run starts is a fork.
#[kernel_test]
fn the_ring_is_not_copied_at_a_fork() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    let _socket = PacketSocket::open("lo", 64, Sight::Incoming).unwrap();
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // Of a mapping, the flags come last.
    let flags = mappings
        .lines()
        .skip_while(|line| !line.contains("socket:["))
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .unwrap();
    assert!(
        flags.split_whitespace().any(|flag| flag == "dc"),
        "not set aside at a fork:{flags}"
    );
}

/// The headers of TCP are in a whole segment and in the first fragment of one.
#[kernel_test]
fn whole_segments_and_first_fragments_pass_the_filter() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    let filter = packet_filter::tcp_headers(192);
    let mut tap = PacketSocket::open_filtered("lo", 64, Sight::Incoming, &filter).unwrap();
    let four = |kind: u8, fragment: u16| {
        let mut frame = vec![0; 14 + 60];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        (frame[14], frame[17], frame[23]) = (0x45, 60, kind);
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame
    };
    // With the next header, and that and the offset of a fragment header where there is one.
    let six = |next: u8, of_fragment: u8, fragment: u16| {
        let mut frame = vec![0; 14 + 80];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        (frame[14], frame[19], frame[20]) = (0x60, 40, next);
        frame[54] = of_fragment;
        frame[56..58].copy_from_slice(&fragment.to_be_bytes());
        frame
    };
    let frames = [
        (four(6, 0), true),
        (four(6, 0x2000), true),
        (four(6, 0x2001), false),
        (four(17, 0), false),
        (six(6, 0, 0xffff), true),
        (six(44, 6, 1), true),
        (six(44, 6, 9), false),
        (six(44, 17, 1), false),
        (six(17, 6, 0), false),
        (six(6, 1, 0), true),
    ];
    for (frame, _) in &frames {
        tap.send(frame).unwrap();
    }
    // The last one passes, so that those before it have been judged once it is here.
    let (last, _) = &frames[frames.len() - 1];
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.last() != Some(last) {
        assert!(
            begun.elapsed() < LIMIT,
            "the last frame never came: {seen:?}"
        );
        seen.extend(tap.receive(|received| received.frame.to_vec()));
    }
    let passed = frames.iter().filter(|(_, passes)| *passes);
    let passed: Vec<_> = passed.map(|(frame, _)| frame.clone()).collect();
    assert_eq!(seen, passed);
}

/// A datagram of one byte to an address of this machine, from the same address.
fn datagram(to: SocketAddr) -> Vec<u8> {
    let port = to.port().to_be_bytes();
    let udp = [port[0], port[1], port[0], port[1], 0, 9, 0, 0, b'x'];
    match to {
        SocketAddr::V4(_) => {
            let header = [
                0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
            ];
            [&header[..], &udp].concat()
        }
        SocketAddr::V6(_) => {
            let mut packet = [&[0x60, 0, 0, 0, 0, 9, 17, 64][..], &[0; 32], &udp].concat();
            (packet[23], packet[39]) = (1, 1);
            // The pseudo header: both addresses, the length, the protocol.
            let mut sum = 1 + 1 + 9 + 17_u32;
            for word in packet[40..].chunks(2) {
                let low = word.get(1).copied().unwrap_or(0);
                sum += u32::from(u16::from_be_bytes([word[0], low]));
            }
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            packet[46..48].copy_from_slice(&sum.to_be_bytes());
            packet
        }
    }
}

/// For TCP and UDP, the kernel chooses among sockets with the same address in the same way.
#[kernel_test]
fn the_number_in_a_header_chooses_the_socket() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    for (address, family) in [("127.0.0.1:7000", Family::V4), ("[::1]:7000", Family::V6)] {
        let address: SocketAddr = address.parse().unwrap();
        let open = |_| -> UdpSocket {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.into()
        };
        let sockets: Vec<UdpSocket> = (0..4).map(open).collect();
        packet_filter::choose_listening_socket(&sockets[0]).unwrap();
        let raw = RawSocket::from_socket(RawSocket::open(family).unwrap());
        for index in [2, 0, 3, 1, 3, 3] {
            let mut packet = datagram(address);
            packet_filter::set_listening_socket(&mut packet, index);
            raw.send_marked(&packet, 0).unwrap();
            let begun = Instant::now();
            let reached = loop {
                let got = |socket: &UdpSocket| socket.recv(&mut [0; 9]).is_ok();
                if let Some(reached) = sockets.iter().position(got) {
                    break reached;
                }
                assert!(begun.elapsed() < LIMIT, "lost: {index} of {address}");
            };
            assert_eq!(reached, index, "{address}");
        }
    }
}
