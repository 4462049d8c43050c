//! Sets `MIDSPAN_VERSION`: the version with the commit, or without it if git or the repository is missing.
//! Sets `MIDSPAN_BUILT_FROM`: the commit, or nothing.
//! `MIDSPAN_COMMIT` in the environment of the build is used instead of git.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = commit();
    let built_from = commit.clone().unwrap_or_default();
    println!("cargo:rustc-env=MIDSPAN_BUILT_FROM={built_from}");
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=MIDSPAN_VERSION={version}");
    // Without any such line, cargo would run this program after each change of a file.
    println!("cargo:rerun-if-changed=build.rs");
}

/// The commit that is checked out.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=MIDSPAN_COMMIT");
    if let Ok(commit) = env::var("MIDSPAN_COMMIT")
        && !commit.is_empty()
    {
        return Some(commit);
    }
    // The source may be unpacked in a repository of something else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // Each commit and each checkout adds a line to this file.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// The output of git; `None` if git is missing or fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
