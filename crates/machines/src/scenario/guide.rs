//! Follows the gateway guide: writes its files and runs its commands, in their order, on a machine
//! with its own systemd and its own kernel.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use self::page::{Step, is_shown, steps};
use super::{Ended, Session};
use crate::error::Error;
use crate::machine::Done;
use crate::programs::GUIDE;

// The reader of the page belongs to the test that follows it in network namespaces.
#[allow(dead_code, unreachable_pub, clippy::panic)]
#[path = "../../../midspan/tests/kernel/page.rs"]
mod page;

/// The interfaces of step 1: the first line names the file and a command.
const INTERFACES: &str = "# /etc/network/interfaces.d/gateway, then: ";
/// Lines that fetch and build Midspan: here it is built already, and no connection leaves the
/// machine. In the last line, only the installation remains.
const NOT_HERE: [&str; 2] = ["apt-get install --yes git make", "git clone "];
/// How often a command that Midspan refused for the moment is tried again.
const TRIES: u32 = 20;
const BUILD: &str = "cd midspan && make deb && ";

/// Follows the guide to its end, or to the first step that does not do what the guide shows.
pub fn follow(session: &mut Session<'_>) -> Result<Ended, Error> {
    let page = fs::read_to_string(GUIDE).map_err(Error::file(GUIDE.as_ref()))?;
    let workspace = session.programs.workspace.clone();
    let mut shown = String::new();
    let mut done = session.run("hosts")?;
    if !is_good(&done) {
        return Ok(done);
    }
    done = session.type_in(&interfaces(&page))?;
    for step in steps(&page) {
        if !is_good(&done) {
            break;
        }
        match step {
            Step::File { path, text } => done = session.type_in(&write(&path, &text))?,
            Step::Commands { place, lines } => {
                let mut printed = String::new();
                for line in &lines {
                    let command = command(&workspace, &place, line);
                    done = session.type_in(&command)?;
                    for _ in 0..TRIES {
                        if !asks_to_try_again(&done) {
                            break;
                        }
                        done = session.type_in(&format!("sleep 5; {command}"))?;
                    }
                    let Ok(Done { printed: more, .. }) = &done else {
                        break;
                    };
                    shown.push_str(&format!("{place}$ {line}\n{more}"));
                    printed.push_str(more);
                    if !is_good(&done) {
                        break;
                    }
                }
                if let Ok(done) = &mut done {
                    done.printed = printed;
                }
            }
            Step::Output(lines) => {
                if let Ok(done) = &mut done
                    && !is_shown(&done.printed, &lines)
                {
                    done.status = 1;
                    shown.push_str(&format!("but the guide shows:\n{}\n", lines.join("\n")));
                }
            }
        }
    }
    if let Ok(done) = &mut done {
        if done.status == 0 {
            shown.push_str("finding: the gateway guide: every command does what the page shows\n");
        }
        done.printed = shown;
    }
    Ok(done)
}

/// While the rules are being worked on, which takes a slow machine seconds, Midspan refuses a change.
fn asks_to_try_again(done: &Ended) -> bool {
    matches!(done, Ok(done) if done.status != 0 && done.printed.contains("try again"))
}

fn is_good(done: &Ended) -> bool {
    matches!(done, Ok(done) if done.status == 0)
}

/// The file of step 1, and the command in its first line.
fn interfaces(page: &str) -> String {
    let (_, rest) = page.split_once(INTERFACES).unwrap_or_default();
    let (command, rest) = rest.split_once('\n').unwrap_or_default();
    let (text, _) = rest.split_once("```").unwrap_or_default();
    let file = INTERFACES.trim_start_matches("# ");
    let file = file.split(',').next().unwrap_or_default();
    if text.is_empty() {
        return "echo 'the guide has no interfaces'; exit 1".to_owned();
    }
    format!("{} && {command}", write(file, text))
}

/// Writes a file, and the folder around it.
fn write(path: &str, text: &str) -> String {
    let text = BASE64_STANDARD.encode(text);
    format!("mkdir --parents \"$(dirname '{path}')\" && base64 --decode <<<{text} >'{path}'")
}

/// A line of the guide, on the gateway or on the client.
fn command(workspace: &Path, place: &str, line: &str) -> String {
    if NOT_HERE.iter().any(|start| line.starts_with(start)) {
        return "true".to_owned();
    }
    let line = line.strip_prefix(BUILD).unwrap_or(line);
    match (place, line.strip_suffix('&')) {
        ("client", Some(line)) => format!(
            "ip netns exec client {line} >/dev/null 2>&1 &
             until ip netns exec client ss -Htn state established | grep -q :80; do sleep 1; done"
        ),
        ("client", None) => format!(
            "ip netns exec client bash -c \"$(base64 --decode <<<{})\"",
            BASE64_STANDARD.encode(line)
        ),
        _ => format!("cd '{}' && {line}", workspace.display()),
    }
}
