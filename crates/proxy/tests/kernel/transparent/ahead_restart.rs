//! A listener binds again after a restart, although connections on which Midspan sends ahead were open,
//! or are in TIME_WAIT.

use std::fs;
use std::io::{Read, Write};

use midspan_linux::namespace::NetworkNamespace;

use super::support::*;

/// The port of the listener.
const OWN_PORT: u16 = 4000;
/// Half of them stay open, and half end in TIME_WAIT.
const CONNECTIONS: usize = 100;

fn configuration() -> String {
    format!(
        "[profile.narrow]\nclients = \"all\"\nsend_ahead = \"512 KiB\"\n[relay]\nthreads = 2\n\
         [[listener]]\nname = \"test\"\nlisten = \"{GATEWAY}:{OWN_PORT}\"\nto = \"{SERVER}:{PORT}\"\n"
    )
}

/// A socket whose window scale was changed by `TCP_REPAIR` would lose its `SO_REUSEADDR`, and the address
/// would be in use for a minute after its end.
#[kernel_test]
fn a_listener_binds_at_once_although_repaired_connections_are_left() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &configuration());
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let mut near = network.connect(GATEWAY, OWN_PORT).unwrap();
        let (mut far, _) = accept(&listener);
        near.write_all(b"get").unwrap();
        far.read_exact(&mut [0; 3]).unwrap();
        far.write_all(b"answer").unwrap();
        if number % 2 == 0 {
            // The server closes first. So TIME_WAIT is on the gateway's end towards the client.
            drop(far);
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"answer");
        } else {
            open.push((near, far));
        }
    }
    let has_ended = || in_time_wait(&network.gateway) >= CONNECTIONS / 2;
    wait_until("in TIME_WAIT", has_ended);
    // The open ones are reset.
    drop(midspan);
    assert!(has_ended());
    let again = Midspan::ready(&network.gateway, &configuration());
    let mut near = network.connect(GATEWAY, OWN_PORT).unwrap();
    let (mut far, _) = accept(&listener);
    far.write_all(b"answer").unwrap();
    near.read_exact(&mut [0; 6]).unwrap();
    drop((near, far, open));
    again.end();
}

/// Number of the host's connections of the listener's port that are in TIME_WAIT.
fn in_time_wait(namespace: &NetworkNamespace) -> usize {
    let table = || fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let table = namespace.run(table).unwrap();
    let suffix = format!(":{OWN_PORT:04X}");
    let is_meant = |row: &&str| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        fields[1].ends_with(&suffix) && fields[3] == "06"
    };
    table.lines().filter(is_meant).count()
}
