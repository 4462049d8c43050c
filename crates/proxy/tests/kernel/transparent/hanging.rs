//! A program `nft` that hangs: the helper still answers commands, and no session is lost.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::Request;
use midspan_testbed::program::Launch;

use super::support::*;
use crate::common::assert_upgraded;

const NFT: &str = "/usr/sbin/nft";

/// A program that replaces `nft` and can be made to hang.
struct Hanging(tempfile::TempDir);

impl Hanging {
    fn new() -> Self {
        let planted = Self(tempfile::tempdir().unwrap());
        fs::copy(NFT, planted.path("nft")).unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\n[ ! -e hang ] || {{ echo $$ >> hanging; exec sleep 600; }}\n\
             [ ! -e slow ] || sleep 2.2\nexec ./nft \"$@\"\n",
            planted.0.path().display()
        );
        fs::write(planted.path("wrapper"), script).unwrap();
        fs::set_permissions(planted.path("wrapper"), Permissions::from_mode(0o755)).unwrap();
        planted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts Midspan with this program as `nft`.
    fn start(&self, gateway: &NetworkNamespace, text: &str) -> Midspan {
        let launch = Launch::this_program("run")
            .configuration(text)
            .inside(gateway)
            .in_place_of(self.path("wrapper"), NFT);
        Midspan::of(launch)
    }

    fn hang(&self) {
        fs::write(self.path("hang"), "").unwrap();
    }

    /// From now on, each call takes 2.2 s more, which is longer than a command waits for the rules.
    fn slow_down(&self) {
        fs::write(self.path("slow"), "").unwrap();
    }

    fn speed_up(&self) {
        fs::remove_file(self.path("slow")).unwrap();
    }

    fn work_again(&self) {
        fs::remove_file(self.path("hang")).unwrap();
    }

    /// The ids of all processes that have hung so far.
    fn hung(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("hanging")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Whether a process hangs at this moment.
    fn hangs(&self) -> bool {
        let is_alive = |process: &String| {
            let name = fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep")
        };
        self.hung().last().is_some_and(is_alive)
    }
}

/// While `nft` hangs, the helper answers commands, only one `nft` runs at a time, and the relay
/// continues.
#[kernel_test]
fn the_helper_does_not_wait_for_nft() {
    if !Path::new(NFT).exists() {
        return skip(&format!("there is no {NFT}"));
    }
    let network = Network::new();
    let listener = network.listen(PORT);
    let planted = Hanging::new();
    let midspan = planted.start(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let relay = midspan.relay();
    planted.hang();
    // Another program changes rules, so Midspan checks its own rules.
    rules(&network.gateway, "table inet other {}\n");
    // The same process hangs before and after the answer, so the helper answered meanwhile.
    wait_until("answered meanwhile", || {
        let hung = planted.hung();
        let status = planted.hangs().then(|| midspan.status());
        let meanwhile = planted.hangs() && planted.hung() == hung;
        status.is_some_and(|status| meanwhile && status.pid == midspan.id())
    });
    // The helper refuses a change of rules meanwhile.
    wait_until("refused meanwhile", || {
        let hung = planted.hung();
        let answer = planted
            .hangs()
            .then(|| midspan.ask_once(&Request::BypassOn { prefix: None }));
        let meanwhile = planted.hangs() && planted.hung() == hung;
        answer.is_some_and(|answer| {
            assert!(!answer.ok);
            let error = answer.error.unwrap();
            meanwhile && error.contains("worked on for long")
        })
    });
    wait_until("said", || midspan.log().contains("nft did not end"));
    echoes(&mut near, &mut far);
    planted.work_again();
    network.wait_until_taken(&listener, SERVER, false, 1);
    wait_until("bypassed", || {
        output(
            &network.gateway,
            "nft",
            &["list", "table", "inet", "midspan"],
        )
        .contains("meta nfproto ipv4 return")
    });
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    network.wait_until_taken(&listener, SERVER, true, 1);
    assert_eq!(midspan.relay(), relay);
    assert!(!midspan.log().contains("no sign of life"));
    abort(near);
    midspan.stop();
}

/// A bypass that is refused because `nft` hangs is carried out later, so a restart keeps it. The same
/// command can be given again.
#[kernel_test]
fn a_late_bypass_is_kept() {
    if !Path::new(NFT).exists() {
        return skip(&format!("there is no {NFT}"));
    }
    let network = Network::new();
    let state = tempfile::tempdir().unwrap();
    let directory = format!(
        "[relay]\nstate_directory = \"{}\"\n",
        state.path().display()
    );
    let planted = Hanging::new();
    let text = TRANSPARENT.replace("[relay]\n", &directory);
    let midspan = planted.start(&network.gateway, &text);
    let kept = || fs::read_to_string(state.path().join("bypasses")).unwrap_or_default();
    let prefix = Some("198.18.0.0/15".to_owned());
    let on = Request::BypassOn {
        prefix: prefix.clone(),
    };
    let off = Request::BypassOff { prefix };
    assert!(midspan.ask(&on).ok);
    assert_eq!(kept(), "198.18.0.0/15\n");
    planted.hang();
    for _ in 0..2 {
        let error = midspan.ask_once(&off).error.unwrap_or_default();
        assert!(error.contains("cannot be changed yet"), "{error}");
        assert_eq!(kept(), "");
    }
    planted.work_again();
    wait_until("bypass off", || midspan.ask_once(&off).ok);
    // Now there is nothing to switch off.
    let error = midspan.ask_once(&off).error.unwrap_or_default();
    assert!(error.contains("not bypassed"), "{error}");
    midspan.stop();
}

/// Each call of `nft` takes longer than a command waits: repeated commands succeed.
#[kernel_test]
fn commands_succeed_although_nft_is_slow() {
    if !Path::new(NFT).exists() {
        return skip(&format!("there is no {NFT}"));
    }
    let network = Network::new();
    let listener = network.listen(PORT);
    let planted = Hanging::new();
    let midspan = planted.start(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    planted.slow_down();
    // With another mark.
    let window = "client_leg = { initial_window = 30 }\n";
    let answer = midspan.reload(&format!("{TRANSPARENT}{window}"));
    assert!(answer.ok, "{answer:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Another program changes rules during the trial, so Midspan checks its own rules when the trial ends.
            wait_until("tried", || midspan.log().contains("upgrade: trying"));
            rules(&network.gateway, "table inet other {}\n");
            wait_until("executed", || midspan.log().contains("upgrade: executing"));
            planted.speed_up();
        });
        assert_upgraded(&midspan.upgrade(None));
    });
    echoes(&mut near, &mut far);
    carries(near, far, 300_000);
    midspan.stop();
}
