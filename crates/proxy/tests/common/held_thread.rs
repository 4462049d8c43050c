//! A thread of the relay that is stopped from outside.

use std::fs;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use nix::sys::ptrace::{self, Options};

/// A thread of another process that is stopped; it continues when this value is dropped.
pub struct HeldThread {
    release: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl HeldThread {
    /// Stops the newest thread with this name.
    pub fn hold(process: u32, name: &str) -> Self {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let named = tasks.flatten().filter_map(|task| {
            let found = fs::read_to_string(task.path().join("comm")).ok()?;
            let id: i32 = task.file_name().to_str()?.parse().ok()?;
            let started = start(&fs::read_to_string(task.path().join("stat")).ok()?)?;
            (found.trim() == name).then_some((started, id))
        });
        let (_, id) = named.max().unwrap();
        let id = nix::unistd::Pid::from_raw(id);
        let (held, is_held) = mpsc::channel();
        let (release, wait): (Sender<()>, Receiver<()>) = mpsc::channel();
        let tracer = std::thread::spawn(move || {
            ptrace::seize(id, Options::empty()).unwrap();
            ptrace::interrupt(id).unwrap();
            held.send(()).unwrap();
            // The kernel releases the thread when its tracer, this thread, ends.
            let _ = wait.recv();
        });
        is_held.recv().unwrap();
        Self {
            release: Some(release),
            tracer: Some(tracer),
        }
    }
}

/// When a thread started: field 22 of proc_pid_stat(5). Its number does not show this, because the kernel begins again
/// with small numbers.
fn start(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}
