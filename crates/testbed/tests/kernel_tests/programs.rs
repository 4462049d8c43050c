//! Programs that are started, waited for and ended.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;
use std::time::Duration;

use midspan_testbed::kernel_test;
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::network::Node;
use midspan_testbed::program::{Launch, LaunchError};
use midspan_testbed::testing::{Midspan, assert_no_refused_call, wait_until};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

pub const COMMANDS: &[Command] = &[
    ("serve", |arguments| serve(arguments)),
    ("relay", |_| wait_for_ever()),
    ("fail", |_| {
        eprintln!("error: nothing works");
        ExitCode::FAILURE
    }),
    ("hang", |_| wait_for_ever()),
];

fn wait_for_ever() -> ExitCode {
    loop {
        std::thread::sleep(Duration::from_secs(600));
    }
}

/// As a daemon does: a child, a byte when it is ready, its configuration logged at first and when
/// asked to read it again.
fn serve(arguments: &[&str]) -> ExitCode {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--as", "relay"]);
    midspan_linux::process::end_with_parent_thread(&mut child);
    let mut child = child.spawn().unwrap();
    let mut signals = Signals::new([SIGHUP, SIGTERM]).unwrap();
    let log = || eprint!("{}", fs::read_to_string(arguments[0]).unwrap());
    log();
    println!();
    std::io::stdout().flush().unwrap();
    for signal in &mut signals {
        match signal {
            SIGHUP => log(),
            _ => break,
        }
    }
    eprintln!("ending");
    child.kill().unwrap();
    child.wait().unwrap();
    ExitCode::SUCCESS
}

#[kernel_test]
fn a_program_is_started_and_ended() {
    let host = Node::host("host").make().unwrap();
    let launch = Launch::this_program("serve")
        .configuration("# one\n")
        .inside(&host);
    let mut program = launch.ready().unwrap();
    let log = program.wait_for_line("[control]").unwrap();
    let socket = program.socket().unwrap().display().to_string();
    // At the end, so that lines keep their numbers.
    assert_eq!(log, format!("# one\n\n[control]\nsocket = \"{socket}\"\n"));
    assert_eq!(program.children(), [program.only_child().unwrap()]);
    assert_eq!(
        program.child_with("relay").unwrap(),
        program.only_child().unwrap()
    );
    program.write("# two\n").unwrap();
    program.signal(Signal::HUP).unwrap();
    program.wait_for_line("# two").unwrap();
    assert!(program.is_running());
    let log = program.end().unwrap();
    assert!(log.ends_with("ending\n"), "{log}");
}

#[kernel_test]
fn a_text_with_control_is_left_alone() {
    let text = "[control]\nsocket = \"\"\n";
    let program = Launch::this_program("serve")
        .configuration(text)
        .ready()
        .unwrap();
    assert_eq!(program.wait_for_line("socket").unwrap(), text);
    assert_eq!(program.socket(), None);
}

#[kernel_test]
fn one_that_does_not_become_ready_is_told() {
    let error = Launch::this_program("fail").ready().err().unwrap();
    assert!(matches!(error, LaunchError::NotReady { .. }), "{error}");
    assert!(
        error.to_string().contains("error: nothing works"),
        "{error}"
    );
    let error = Launch::new("/nonsuch").ready().err().unwrap();
    assert!(matches!(error, LaunchError::Io { .. }), "{error}");
}

#[kernel_test]
fn one_that_does_not_end_is_told() {
    let program = Launch::new("sh").args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"]);
    let program = program.ready().unwrap();
    let limit = Duration::from_millis(300);
    let error = program.end_within(limit).err().unwrap();
    assert!(matches!(error, LaunchError::StillRuns { .. }), "{error}");
}

#[kernel_test]
fn when_its_value_goes_nothing_runs_on() {
    let mut program = Launch::this_program("serve")
        .configuration("")
        .ready()
        .unwrap();
    let (helper, relay) = (program.id(), program.only_child().unwrap());
    assert!(program.kill_with_children());
    drop(program);
    // The relay may be a zombie of the first process's for a while.
    let line = |id| fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    assert_eq!(line(helper), "");
    assert_eq!(line(relay.as_raw_nonzero().get() as u32), "");
}

#[kernel_test]
fn a_program_may_be_given_time_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::this_program("serve")
        .configuration("")
        .folder(folder.path())
        .grace(Duration::from_secs(20));
    drop(launch.ready().unwrap());
    let log = fs::read_to_string(folder.path().join("midspan.log")).unwrap();
    assert!(log.ends_with("ending\n"), "{log}");
}

#[kernel_test]
fn files_stand_in_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    fs::write(&file, "192.0.2.1 somebody\n").unwrap();
    let mut program = Launch::new("cat")
        .arg("/etc/hosts")
        .arg("/etc/hostname")
        .in_place_of(&file, "/etc/hosts")
        .in_place_of(&file, "/etc/hostname")
        .start()
        .unwrap();
    let lines = BufReader::new(program.take_output().unwrap()).lines();
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(lines, ["192.0.2.1 somebody"; 2], "{}", program.log());
    assert!(program.wait().unwrap().success());
}

#[kernel_test]
fn variables_and_limits_arrive() {
    let mut program = Launch::new("sh")
        .args(["-c", "echo $WORD; ulimit -n; cat >&2; echo end >&2"])
        .environment("WORD", "of mine")
        .open_files(77)
        .start()
        .unwrap();
    let lines = BufReader::new(program.take_output().unwrap()).lines();
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(lines, ["of mine", "77"]);
    // Its standard input is empty.
    program.wait_for_line("end").unwrap();
}

#[kernel_test]
fn a_refused_call_in_the_log_fails_a_test() {
    let log = "ready\nthe sandbox of the relay has refused a call: 41\n";
    let result = std::panic::catch_unwind(|| assert_no_refused_call(log));
    assert!(result.is_err());
    assert_no_refused_call("ready\n");
    let dropped = std::panic::catch_unwind(|| {
        let text = "# the sandbox has refused";
        let midspan = Midspan::of(Launch::this_program("serve").configuration(text));
        wait_until("logged", || midspan.log().contains("refused"));
    });
    assert!(dropped.is_err());
}
