//! A thread of the relay that hangs: the others decide about new connections, and serve them.

use std::time::{Duration, Instant};

use super::support::*;
use crate::common::held_thread::HeldThread;

/// A client whose SYN is lost repeats it after 1 s.
const AT_ONCE: Duration = Duration::from_millis(900);
/// More than the other thread keeps for itself while both make turns.
const SESSIONS: usize = 24;

#[kernel_test]
fn new_connections_do_not_wait_for_a_thread_that_hangs() {
    let network = Network::new();
    let far = network.listen(PORT);
    for listener in [TRANSPARENT.to_owned(), early()] {
        let text = format!("[interception]\nwatchdog_timeout = \"1 h\"\n{listener}");
        let midspan = Midspan::ready(&network.gateway, &text);
        for thread in ["relay 0", "relay 1"] {
            let held = HeldThread::hold(midspan.status().relay_pid, thread);
            // Until the other thread has noticed.
            std::thread::sleep(Duration::from_millis(400));
            let mut sessions = Vec::new();
            for (server, _) in BOTH.repeat(SESSIONS / BOTH.len()) {
                let start = Instant::now();
                let mut near = network.connect(server, PORT).unwrap();
                let (mut served, _) = accept(&far);
                echoes(&mut near, &mut served);
                let after = start.elapsed();
                assert!(after < AT_ONCE, "{after:?}: {}", midspan.log());
                sessions.push((near, served));
            }
            assert_eq!(network.taken(PORT), SESSIONS, "{}", midspan.log());
            for (near, _) in sessions {
                abort(near);
            }
            wait_until("closed", || network.taken(PORT) == 0);
            drop(held);
        }
        midspan.stop();
    }
}
