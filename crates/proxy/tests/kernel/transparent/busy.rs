//! A machine whose processors have too much work.
//!
//! `MIDSPAN_BUSY=full` takes ten minutes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::support::*;

/// Programs that never wait.
const PROGRAMS: usize = 8;
const QUICK: Duration = Duration::from_secs(5);
const FULL: Duration = Duration::from_secs(600);

/// The programs, which are ended when this value is dropped.
struct Busy(Vec<Child>);

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// No thread is assumed to be stuck, and no session is lost.
#[kernel_test]
fn nothing_is_ended_on_a_busy_machine() {
    let is_full = std::env::var("MIDSPAN_BUSY").is_ok_and(|value| value == "full");
    let time = if is_full { FULL } else { QUICK };
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let relay = midspan.relay();
    let start_one = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        // However this test ends, the programs end with it.
        midspan_linux::process::end_with_parent_thread(&mut command);
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let busy = Busy((0..PROGRAMS).map(start_one).collect());
    let start = Instant::now();
    let mut exchanges = 0_u64;
    while start.elapsed() < time {
        echoes(&mut near, &mut far);
        exchanges += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(busy);
    assert_eq!(midspan.relay(), relay);
    println!("    {exchanges} exchanges in {} s", time.as_secs());
    abort(near);
    let log = midspan.end();
    for text in ["is stuck", "no sign of life"] {
        assert!(!log.contains(text), "{log}");
    }
}
