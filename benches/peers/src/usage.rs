//! CPU time and memory of a peer's processes.

use std::fs;
use std::time::Duration;

use crate::Failure;

/// The process and all its descendants.
pub fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        for thread in threads(parent) {
            let file = format!("/proc/{parent}/task/{thread}/children");
            let children = fs::read_to_string(file).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    all
}

fn threads(process: u32) -> Vec<String> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    folder
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// CPU time of the processes so far, in the kernel and in user space.
pub fn cpu_time(process: u32) -> Duration {
    let mut seconds = 0.0;
    for member in family(process) {
        for thread in threads(member) {
            let task = format!("/proc/{member}/task/{thread}");
            seconds += schedule(&task).map_or(0.0, |(run, _)| run);
        }
    }
    Duration::from_secs_f64(seconds)
}

/// For how many seconds a thread has run, and for how many it has waited for a core. `task` is its
/// folder in `/proc`.
pub fn schedule(task: &str) -> Option<(f64, f64)> {
    let text = fs::read_to_string(format!("{task}/schedstat")).ok()?;
    let mut seconds = text
        .split(' ')
        .map(|field| field.parse::<u64>().ok().map(|it| it as f64 / 1e9));
    Some((seconds.next()??, seconds.next()??))
}

/// Bytes of anonymous memory of the processes, without files and shared memory.
pub fn memory(process: u32) -> Result<u64, Failure> {
    let mut kilobytes = 0;
    for member in family(process) {
        let text = fs::read_to_string(format!("/proc/{member}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let value = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes += value
            .and_then(|value| value.parse::<u64>().ok())
            .ok_or("the kernel does not report RssAnon")?;
    }
    Ok(kilobytes * 1024)
}
