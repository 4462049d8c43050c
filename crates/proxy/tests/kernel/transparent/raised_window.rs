//! Initial windows that are raised when the handshake shows a long leg.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::skip;

use super::learning::DelayedAccess;
use super::support::*;
use super::tracking::with_admin;

/// Above the limit of long legs, on a busy machine too.
const DELAY: Duration = Duration::from_millis(250);
const OFF: &str = "client_leg = { sending_ahead = \"off\" }\n";

/// The congestion windows of the client legs of all sessions.
fn windows(gateway: &NetworkNamespace) -> Vec<u64> {
    let text = gateway.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9464").unwrap();
        let request = "GET /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let text = text.unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let page: serde_json::Value = serde_json::from_str(body).unwrap();
    let sessions = page["sessions"].as_array().unwrap().iter();
    let window = |of: &serde_json::Value| of["client_leg"]["congestion_window_segments"].as_u64();
    sessions.map(|of| window(of).unwrap()).collect()
}

/// The first client of a network, whose leg is long, gets a large window, as long as the configuration bounds what is sent in it.
#[kernel_test]
fn the_handshake_of_a_long_leg_raises_the_window() {
    let network = Network::with_access_router();
    let _access = DelayedAccess::with_delay(&network, DELAY);
    let listener = network.listen(PORT);
    let configuration = |more: &str| {
        format!(
            "{}policy = \"auto\"\ncontrol_group = \"0 %\"\n{more}",
            with_admin()
        )
    };
    let midspan = Midspan::ready(&network.gateway, &configuration(""));
    if midspan.log().contains("BPF cannot be used") {
        return skip("BPF needs CAP_BPF in the first user namespace, and a mounted cgroup2");
    }
    let open = || {
        let near = network.connect(SERVER, PORT).unwrap();
        let (far, _) = accept(&listener);
        wait_until("session", || windows(&network.gateway).len() == 1);
        (near, far, windows(&network.gateway)[0])
    };
    let close = |near: TcpStream, far: TcpStream| {
        carries(far, near, 300_000);
        wait_until("ended", || windows(&network.gateway).is_empty());
    };
    let (near, far, window) = open();
    assert_eq!(window, 1_000);
    close(near, far);
    let again = midspan.reload(&configuration(""));
    assert!(again.ok, "{:?}", again.error);
    let (near, far, window) = open();
    assert_eq!(window, 1_000);
    close(near, far);
    let off = midspan.reload(&configuration(OFF));
    assert!(off.ok, "{:?}", off.error);
    let (near, far, window) = open();
    assert!(window <= 640, "{window}");
    close(near, far);
    let on = midspan.reload(&configuration(""));
    assert!(on.ok, "{:?}", on.error);
    let (near, far, window) = open();
    assert_eq!(window, 1_000);
    close(near, far);
    // A configuration that is refused changes nothing.
    let refused = midspan.reload(&configuration("listen = \"127.0.0.1:1\"\n"));
    assert!(!refused.ok);
    let (near, far, window) = open();
    assert_eq!(window, 1_000);
    close(near, far);
    midspan.stop();
}
