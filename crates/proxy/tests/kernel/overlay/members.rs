//! The file of members changes while the nodes run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::support::*;

const CHANGED: &str = "the file of members has changed";

/// Replaces the file in one step, as programs that write such files do.
pub fn replace_file(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
    fs::rename(&new, file).unwrap();
}

fn replace(sites: &Sites, text: &str) {
    replace_file(sites.members(), text);
}

fn wait_for_changes(nodes: &[Midspan], count: usize) {
    for node in nodes {
        wait_until("the members are in force", || {
            node.log().matches(CHANGED).count() == count
        });
    }
}

fn notices(midspan: &Midspan) -> String {
    let status: Value = page(midspan, "/status");
    status["status"]["notices"].to_string()
}

#[kernel_test]
fn changed_members_are_in_force_without_a_reload() {
    let sites = Sites::new("");
    let nodes = sites.all();
    let (mut client, mut server) = session(&sites);
    let first = fs::read_to_string(sites.members()).unwrap();
    let other = first.replace("10.4.0.0/24", "10.5.0.0/24");
    assert_ne!(other, first);
    replace(&sites, &other);
    wait_for_changes(&nodes, 1);
    // The exit no longer connects to this server, and the running session continues.
    assert_ne!(socks(&sites, &address(2, PORT)).1, 0);
    echoes(&mut client, &mut server);
    // Written in place, as by an editor.
    fs::write(sites.members(), &first).unwrap();
    wait_for_changes(&nodes, 2);
    let (mut new_client, mut new_server) = session(&sites);
    echoes(&mut new_client, &mut new_server);
    echoes(&mut client, &mut server);
}

#[kernel_test]
fn a_wrong_or_missing_file_leaves_the_members_as_they_are() {
    let sites = Sites::new("");
    let nodes = sites.all();
    let first = fs::read_to_string(sites.members()).unwrap();
    let (mut client, mut server) = session(&sites);
    let wrong = [
        // No TOML, no node, and none with the name of this node.
        "[[node",
        "node = []",
        "[[node]]\nname = \"xyz\"\naddress = \"10.2.0.9:7704\"\nsecurity = \"network\"\n",
    ];
    for text in wrong {
        replace(&sites, text);
        let ams = &nodes[2];
        let shown = "the file of members is not used, the last members stay";
        wait_until("the fault is shown", || notices(ams).contains(shown));
        let (mut new_client, mut new_server) = session(&sites);
        echoes(&mut new_client, &mut new_server);
        replace(&sites, &first);
        wait_until("the fault is over", || !notices(ams).contains(shown));
    }
    fs::remove_file(sites.members()).unwrap();
    for node in &nodes {
        wait_until("the missing file is shown", || {
            notices(node).contains("No such file")
        });
    }
    let (mut new_client, mut new_server) = session(&sites);
    echoes(&mut new_client, &mut new_server);
    echoes(&mut client, &mut server);
    for node in &nodes {
        assert!(!node.log().contains(CHANGED), "{}", node.log());
    }
    // The next start of a Midspan needs the file; the temporary file is removed at the end of the test.
    replace(&sites, &first);
}
