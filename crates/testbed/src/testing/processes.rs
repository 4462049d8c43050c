//! Processes that a test stops.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// Stops a process (`SIGSTOP`), and waits until each of its threads has stopped. On a busy machine
/// the threads run for some milliseconds after the signal was sent.
#[track_caller]
pub fn stop_process(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    wait_until("stopped", || {
        let folder = format!("/proc/{}/task", process.as_raw_nonzero());
        let threads = fs::read_dir(folder).unwrap();
        threads.filter_map(Result::ok).all(|thread| {
            // A thread that has ended meanwhile has no file.
            let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // proc_pid_stat(5): the state follows the name, which may contain any character.
            state.is_empty()
                || state
                    .rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('T'))
        })
    });
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_stopped_process_runs_no_more() {
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"])
            .stdin(Stdio::null());
        let mut child = busy.spawn().unwrap();
        let process = Pid::from_child(&child);
        stop_process(process);
        let file = format!("/proc/{}/schedstat", child.id());
        let ran = || fs::read_to_string(&file).unwrap();
        let before = ran();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(ran(), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
