//! The power fails while Midspan changes something, and comes back.

use std::thread;
use std::time::Duration;

use super::{Ended, Session};
use crate::error::Error;

/// How long after the first change the power fails, in seconds: during one of the next changes.
const CUTS: [u64; 3] = [2, 5, 9];

/// The service, and the disk has all that was written.
const SET_UP: &str = "network; gateway | install_service; start; intercepts
    wait_until midspan bypass on 198.18.0.1
    sync";
/// After the power is back: systemd starts Midspan, which works, complains about no file, and has the
/// bypass from before.
const CHECK: &str = "network
    wait_until midspan status
    journalctl --boot --unit midspan --no-pager
    if journalctl --boot --unit midspan --no-pager | grep ' ERROR \\|is not known\\|cannot be read'; then
        fail 'see above'
    fi
    midspan bypass | grep 198.18.0.1 || fail 'the bypass is forgotten'
    intercepts
    download
    sync";

/// Reloads, one after the other.
pub fn while_reloading(session: &mut Session<'_>) -> Result<Ended, Error> {
    let changes = "for number in $(seq 10000); do
            gateway | sed \"s/^policy/except_ports = [$number]\\n&/\" >/etc/midspan/midspan.toml.new
            mv /etc/midspan/midspan.toml.new /etc/midspan/midspan.toml
            systemctl reload midspan || true
            echo changed
        done";
    let found = "finding 'power cut while reloading' 'starts by itself, and intercepts'";
    interrupted(session, changes, found)
}

/// What is bypassed is written to the disk at each command.
pub fn while_writing(session: &mut Session<'_>) -> Result<Ended, Error> {
    let changes = "for number in $(seq 10000); do
            midspan bypass on \"192.0.2.$((number % 250))\" || true
            echo changed
        done";
    let found = "finding 'power cut while state is written' 'starts by itself, and intercepts'";
    interrupted(session, changes, found)
}

fn interrupted(session: &mut Session<'_>, changes: &str, found: &str) -> Result<Ended, Error> {
    let mut last = session.run(SET_UP)?;
    for seconds in CUTS {
        if !matches!(&last, Ok(done) if done.status == 0) {
            return Ok(last);
        }
        if let Err(broken) = session.begin(changes)? {
            return Ok(Err(broken));
        }
        thread::sleep(Duration::from_secs(seconds));
        session.cut_power();
        last = session.run(&format!("{CHECK}\n{found}"))?;
    }
    Ok(last)
}
