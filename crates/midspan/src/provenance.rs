//! Where results come from: the program, the machine and the time.

use std::fs;
use std::thread::available_parallelism;
use std::time::SystemTime;

use midspan_report::Fact;

/// The facts that the page of every command has.
pub fn facts() -> Vec<Fact> {
    vec![
        Fact::new("Midspan", env!("MIDSPAN_VERSION")),
        Fact::new("kernel", kernel()),
        Fact::new("processors", processors()),
        Fact::new("date", httpdate::fmt_http_date(SystemTime::now())),
    ]
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    let [system, release, machine] = [uname.sysname(), uname.release(), uname.machine()]
        .map(|part| part.to_string_lossy().into_owned());
    format!("{system} {release} ({machine})")
}

/// The number of processors, and their name where the kernel has one.
fn processors() -> String {
    let count = available_parallelism().map_or(1, usize::from);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name");
    match name {
        Some((_, name)) => format!("{count} × {}", name.trim()),
        None => count.to_string(),
    }
}
