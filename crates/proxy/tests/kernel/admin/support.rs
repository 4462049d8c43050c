//! A configuration with an admin listener, clients and servers.
#![allow(dead_code, missing_docs)]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use midspan_linux::netlink::Netlink;
pub use midspan_testbed::kernel_test;
pub use midspan_testbed::testing::{LIMIT, Midspan, abort, bounded, connect, echoes, wait_until};

pub use crate::common::{ADMIN, Control, admin, get, metric};

pub const LISTEN: &str = "127.0.0.1:8080";
pub const SERVER: &str = "127.0.0.1:9090";

pub const CONFIGURATION: &str = r#"
[admin]
listen = "127.0.0.1:9464"
[log]
format = "json"
[relay]
threads = 2
pipe_size = "64 KiB"
pipe_memory = "1 MiB"
drain_timeout = "0 s"
[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
[[listener]]
name = "closed"
listen = "127.0.0.1:8081"
to = "127.0.0.1:9091"
[[listener]]
name = "silent"
listen = "127.0.0.1:8082"
to = "192.0.2.9:80"
connect_timeout = "100 ms"
[[listener]]
name = "away"
listen = "127.0.0.1:8083"
to = "203.0.113.9:80"
"#;

/// Sets up the network, with a link on which no host answers.
pub fn set_up_network() {
    let netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_veth("near", "far").unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    let address = "192.0.2.1/24".parse().unwrap();
    netlink.add_address("near", address).unwrap();
}

/// All sessions of `/sessions`. If a busy thread did not answer in time, the page is read again.
pub fn complete(page: &str) -> serde_json::Value {
    let start = Instant::now();
    loop {
        let (status, text) = get(page);
        assert_eq!(status, 200);
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        if answer["complete"] == true {
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "never complete: {answer}");
    }
}

/// Both ends of a session through the listener "web".
pub fn session(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = connect(LISTEN);
    let mut server = bounded(listener.accept().unwrap().0);
    echoes(&mut client, &mut server);
    (client, server)
}

pub fn close(mut client: TcpStream, mut server: TcpStream) {
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

/// Checks that the proxy resets a connection, perhaps before `connect` returns.
pub fn is_reset_at_once(address: &str) {
    if let Ok(stream) = TcpStream::connect(address) {
        is_reset(bounded(stream));
    }
}

/// Checks that the proxy resets a connection.
pub fn is_reset(mut stream: TcpStream) {
    assert!(stream.read_exact(&mut [0; 1]).is_err());
}
