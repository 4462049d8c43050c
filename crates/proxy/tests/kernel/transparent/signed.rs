//! Connections with signed segments pass untouched, because no proxy can split them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

use midspan_linux::tcp;
use socket2::{Domain, Socket, Type};

use super::support::*;

type SetKey = fn(BorrowedFd<'_>, SocketAddr, &[u8]) -> io::Result<()>;

#[kernel_test]
fn tcp_md5_passes() {
    signed_passes("TCP-MD5", |socket, peer, key| {
        tcp::set_md5_key(socket, peer, key)
    });
}

#[kernel_test]
fn tcp_ao_passes() {
    signed_passes("TCP-AO", |socket, peer, key| {
        tcp::set_ao_key(socket, peer, key)
    });
}

fn signed_passes(name: &str, set_key: SetKey) {
    let missing = rustix::io::Errno::NOPROTOOPT.raw_os_error();
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, client) in BOTH {
            let server = SocketAddr::new(server.parse().unwrap(), 179);
            let listener = network
                .server
                .run(move || {
                    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
                    socket.bind(&server.into())?;
                    let client = SocketAddr::new(client.parse().unwrap(), 0);
                    set_key(socket.as_fd(), client, b"a secret of both ends")?;
                    socket.listen(10)?;
                    Ok::<_, io::Error>(TcpListener::from(socket))
                })
                .unwrap();
            let listener = match listener {
                Ok(listener) => listener,
                Err(error) if error.raw_os_error() == Some(missing) => {
                    return skip(&format!("the kernel lacks {name}"));
                }
                Err(error) => panic!("{error}"),
            };
            let socket = socket(&network.client, &server.ip().to_string());
            set_key(socket.as_fd(), server, b"a secret of both ends").unwrap();
            socket.connect_timeout(&server.into(), LIMIT).unwrap();
            let mut near = bounded(socket.into());
            let (mut far, from) = accept(&listener);
            assert_eq!(from, near.local_addr().unwrap());
            assert_eq!(network.taken(179), 0);
            echoes(&mut near, &mut far);
            carries(near, far, 1_000_000);
            // Without the key the server does not answer at all; this is no asymmetric route.
            let unsigned = connect_from(&network.client, &server.ip().to_string(), 179, UNSIGNED);
            assert_eq!(unsigned.map(drop).is_ok(), text.contains("early"));
        }
        let log = midspan.end();
        assert!(log.contains("authenticated 2"), "{log}");
    }
}

const UNSIGNED: std::time::Duration = std::time::Duration::from_secs(2);
