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
            (found.trim() == name).then_some(id)
        });
        let id = nix::unistd::Pid::from_raw(named.max().unwrap());
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

impl Drop for HeldThread {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}
