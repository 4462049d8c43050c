//! Functions that run the real program.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program under test.
pub const MIDSPAN: &str = env!("CARGO_BIN_EXE_midspan");

/// A lock, because lab runs share the processors and must not run at the same time.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program as the user of the test.
pub fn midspan(arguments: &[&str]) -> Output {
    Command::new(MIDSPAN).args(arguments).output().unwrap()
}

/// Runs a copy of the program as an ordinary user, because the build's folder may be closed to this
/// user. If the machine has no way to do this, prints the reason and returns `None`.
pub fn midspan_as_ordinary_user(folder: &Path, arguments: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        return Some(midspan(arguments));
    }
    let program = folder.join("midspan");
    std::fs::copy(MIDSPAN, &program).unwrap();
    open_to_all(folder);
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ])
        .arg(&program)
        .args(arguments)
        .env("TMPDIR", folder)
        .current_dir(folder)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            println!("skipped: cannot run setpriv: {error}");
            None
        }
    }
}

/// Lets every user use a folder.
pub fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, all).unwrap();
}

/// Writes a path file.
pub fn path_file(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("test.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The records of `--json`, after a check of the exit status.
pub fn records(output: &Output) -> Vec<serde_json::Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    // Status 3: a run was void, which a busy machine may cause. The output contains the numbers
    // nevertheless.
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "status {code:?}: {errors}");
    // Every proxy must have carried its connections.
    assert!(!errors.contains("carried"), "{errors}");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    object["records"].as_array().unwrap().clone()
}

/// The value of one quantity of one case.
pub fn value(records: &[serde_json::Value], case: &str, quantity: &str) -> f64 {
    records
        .iter()
        .find(|record| record["case"] == case && record["quantity"] == quantity)
        .unwrap_or_else(|| panic!("no record of {quantity} for {case}"))["value"]
        .as_f64()
        .unwrap()
}

/// The lines of a path file for a download of 300 KB.
pub const DOWNLOAD: &str = r#"
[[flow]]
name = "300 KB"
from = "client"
to = "server"
workload = "download"
size = "300 KB"
"#;

/// A path with one proxy, on which 300 KB take at least 0.24 s.
pub fn one_proxy(flows: &str) -> String {
    format!(
        r#"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
[[host]]
name = "server"
[[link]]
name = "access"
between = ["client", "gateway"]
rate = "10 Mbit/s"
delay = "5 ms"
[[link]]
name = "core"
between = ["gateway", "server"]
delay = "5 ms"
{flows}
"#
    )
}

/// A path with two proxies in a row, on which 300 KB take at least 0.24 s. Without its last link the
/// round-trip time is 30 ms; `core` is the one-way delay of that link.
pub fn two_proxies(family: &str, core: &str, flows: &str) -> String {
    format!(
        r#"
family = "{family}"
[[host]]
name = "client"
[[proxy]]
name = "near"
[[proxy]]
name = "far"
client_leg = {{ congestion_control = "bbr", initial_window = 30 }}
[[host]]
name = "server"
[[link]]
name = "access"
between = ["client", "near"]
rate = "10 Mbit/s"
delay = "5 ms"
[[link]]
name = "middle"
between = ["near", "far"]
rate = "50 Mbit/s"
delay = "10 ms"
loss = "0.1 %"
[[link]]
name = "core"
between = ["far", "server"]
delay = "{core}"
{flows}
"#
    )
}

/// The text on standard error, with its words on one line: long errors are wrapped.
pub fn error_text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = text.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}
