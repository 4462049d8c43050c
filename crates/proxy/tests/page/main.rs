//! The page of the admin listener, served by a real Midspan that carries traffic, in a real Chromium.
//! `make test-page` runs this test; `make test` does not, because it needs programs of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
// A part of what this test has in common with those of transparent listeners.
#[allow(unused_imports)]
#[path = "../kernel/transparent/support.rs"]
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use midspan_testbed::{KernelTests, kernel_test};

use common::{ADMIN, RELAY};
use support::*;

/// Names that would be run if the page put them in as HTML: of a listener, and of a destination.
const MARKUP: &str = "<img src=x onerror=window.hacked=1>";
/// The port of the HTTP proxy.
const PROXY: u16 = 8080;
/// What each session carries in 50 ms.
const CHUNK: usize = 50_000;

fn main() -> ExitCode {
    KernelTests::new().commands(common::COMMANDS).main()
}

/// The first of these programs that is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let files = |name| folders.iter().map(move |folder| folder.join(name));
    names.iter().flat_map(files).find(|file| file.is_file())
}

/// Sends data to a client until the session or the test ends.
fn serve(mut server: TcpStream, has_ended: &AtomicBool) {
    while !has_ended.load(Ordering::Relaxed) && server.write_all(&[7; CHUNK]).is_ok() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The answer of the HTTP proxy to a tunnel to this host.
fn answer_about(network: &Network, host: &str) -> String {
    let mut client = network.connect(GATEWAY, PROXY).unwrap();
    write!(
        client,
        "CONNECT {host}:80 HTTP/1.1\r\nHost: {host}:80\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    answer
}

#[kernel_test]
fn the_page_works_in_chromium() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let browser = match std::env::var_os("CHROMIUM") {
        Some(file) => Some(file.into()),
        None => program(&["chromium", "chromium-browser", "google-chrome"]),
    };
    let Some(browser) = browser else {
        return skip("there is no Chromium (apt-get install chromium, or the variable CHROMIUM)");
    };
    let Some(node) = program(&["node"]) else {
        return skip("there is no Node.js (apt-get install nodejs npm)");
    };
    for package in ["playwright-core", "axe-core"] {
        if !root.join("target/page/node_modules").join(package).is_dir() {
            return skip(&format!(
                "there is no {package}: make test-page installs it with npm"
            ));
        }
    }
    let network = Network::new();
    let listener = network.listen(PORT);
    let settings = format!(
        "[admin]\nlisten = \"{ADMIN}\"\n{RELAY}\
         [[listener]]\nname = \"{MARKUP}\"\nmode = \"transparent\"\ninterfaces = [\"acc\"]\n\
         [[listener]]\nname = \"proxy\"\nmode = \"http\"\nlisten = \"{GATEWAY}:{PROXY}\"\n\
         clients = [\"10.1.0.0/24\"]\n"
    );
    let midspan = Midspan::ready(&network.gateway, &settings);
    // A name with other characters than those of host names comes no further than this.
    let answer = answer_about(&network, MARKUP);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let screenshots = tempfile::tempdir().unwrap();
    let has_ended = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        for _ in 0..3 {
            let mut client = network.connect(SERVER, PORT).unwrap();
            let server = accept(&listener).0;
            let has_ended = &has_ended;
            scope.spawn(move || serve(server, has_ended));
            scope.spawn(move || {
                let mut buffer = [0; CHUNK];
                while client.read(&mut buffer).is_ok_and(|length| length > 0) {}
            });
        }
        let mut check = Command::new(node);
        check
            .arg(root.join("scripts/check-page.mjs"))
            .arg(format!("http://{ADMIN}/"))
            .arg(midspan.relay().as_raw_pid().to_string())
            .arg(screenshots.path())
            .env("CHROMIUM", browser)
            .env("HOME", screenshots.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = network.gateway.spawn(check).unwrap().wait_with_output();
        has_ended.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    println!("{text}");
    // Each width in light and dark, the page with hostile answers, and the end of the relay.
    assert_eq!(text.lines().count(), 6, "{text}");
    let pictures = std::fs::read_dir(screenshots.path()).unwrap();
    let is_picture = |name: &Path| name.extension().is_some_and(|end| end == "png");
    assert_eq!(
        pictures
            .filter(|file| is_picture(&file.as_ref().unwrap().path()))
            .count(),
        4
    );
}
