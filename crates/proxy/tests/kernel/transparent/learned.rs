//! What was learned is listed, and can be forgotten.

use std::fs;
use std::time::{Duration, SystemTime};

use midspan_proxy::client::{Place, get};
use midspan_proxy::command::Request;
use midspan_proxy::learned::Learned;

use super::asymmetric::{asymmetric, connects};
use super::support::*;

/// What a proxy has learned, about hosts with a prefix.
pub fn learned(midspan: &Midspan, prefix: &str) -> Learned {
    let place = Place::Socket(midspan.socket());
    let (status, text) = get(place, &format!("/learned?prefix={prefix}")).unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

pub fn forget(midspan: &Midspan, prefix: Option<&str>) -> midspan_proxy::command::Answer {
    let prefix = prefix.map(str::to_owned);
    midspan.ask(&Request::Forget { prefix })
}

/// A forgotten route is tried again at once, although its proof would hold for long.
#[kernel_test]
fn a_forgotten_asymmetric_route_is_intercepted_again() {
    let network = asymmetric();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    assert!(connects(&network, SERVER, &listener) > 0, "not taken");
    let known = learned(&midspan, CLIENT).asymmetric_routes;
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!(known[0].client, "10.1.0.2/32");
    assert_eq!(known[0].servers, "10.3.0.0/24");
    assert!(known[0].left_seconds.unwrap() > 60.0);
    // By the server's network, too.
    let same = learned(&midspan, "10.3.0.77").asymmetric_routes;
    assert_eq!((same.len(), &same[0].client), (1, &known[0].client));
    // From now on the answers come back through the gateway.
    output(&network.server, "ip", &["route", "del", "10.1.0.0/24"]);
    assert!(!network.is_taken(&listener, SERVER, 0).unwrap());
    let other = forget(&midspan, Some("192.0.2.0/24"));
    assert_eq!(other.forgotten.unwrap().asymmetric_routes, 0);
    assert!(!network.is_taken(&listener, SERVER, 0).unwrap());
    let answer = forget(&midspan, Some(CLIENT));
    assert!(answer.ok && answer.notes.is_empty(), "{answer:?}");
    assert_eq!(answer.forgotten.unwrap().asymmetric_routes, 1);
    assert!(network.is_taken(&listener, SERVER, 0).unwrap());
    assert!(learned(&midspan, CLIENT).asymmetric_routes.is_empty());
    let wrong = forget(&midspan, Some("lan"));
    assert!(wrong.error.unwrap().contains("not an address or prefix"));
    midspan.stop();
}

/// A forgotten verdict is neither in the file nor known after a restart; the others are.
#[kernel_test]
fn what_is_forgotten_stays_forgotten_after_a_restart() {
    let network = Network::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("verdicts");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_secs() - 60;
    fs::write(
        &file,
        format!("midspan-verdicts 1\n10.1.0.2 takes {now}\n10.1.9.9 refuses {now}\n"),
    )
    .unwrap();
    let text = format!(
        "[relay]\nstate_directory = \"{}\"\n{TRANSPARENT_LISTENER}",
        directory.path().display()
    );
    let clients = |midspan: &Midspan| {
        let verdicts = learned(midspan, "0.0.0.0/0").verdicts;
        let clients = verdicts.iter().map(|verdict| verdict.client.to_string());
        clients.collect::<Vec<_>>()
    };
    let midspan = Midspan::ready(&network.gateway, &text);
    assert_eq!(clients(&midspan), ["10.1.0.2", "10.1.9.9"]);
    let answer = forget(&midspan, Some("10.1.0.0/24"));
    assert_eq!(answer.forgotten.unwrap().verdicts, 1);
    // The file is replaced before the answer; a crash must not bring the verdict back.
    let kept = fs::read_to_string(&file).unwrap();
    assert!(
        kept.contains("10.1.9.9") && !kept.contains("10.1.0.2"),
        "{kept}"
    );
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    assert_eq!(clients(&midspan), ["10.1.9.9"]);
    assert_eq!(forget(&midspan, None).forgotten.unwrap().verdicts, 1);
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    wait_within(Duration::from_secs(5), "empty", || {
        clients(&midspan).is_empty()
    });
    midspan.stop();
}

/// What is known of paths is kept across a restart, comes from another gateway's file, and can be forgotten.
#[kernel_test]
fn paths_are_kept_and_come_from_another_gateway() {
    let network = Network::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let real = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap().as_secs()
    };
    let file = |peer: &str| {
        let now = real();
        format!("midspan-paths 1 {now}\n{peer}/32 {now} 8000000 600000 random 0 0\n")
    };
    let text = format!(
        "[relay]\nstate_directory = \"{}\"\n{TRANSPARENT_LISTENER}",
        directory.path().display()
    );
    let peers = |midspan: &Midspan| {
        let paths = learned(midspan, "0.0.0.0/0").paths;
        paths
            .iter()
            .map(|path| path.peer.clone())
            .collect::<Vec<_>>()
    };
    fs::write(path("paths"), file("10.1.0.2")).unwrap();
    let midspan = Midspan::ready(&network.gateway, &text);
    wait_until("the paths of before", || peers(&midspan) == ["10.1.0.2/32"]);
    assert!(learned(&midspan, CLIENT).paths[0].lossy);
    // As rsync does.
    fs::write(path("part"), file("10.1.0.7")).unwrap();
    fs::rename(path("part"), path("paths.other")).unwrap();
    wait_until("the paths of another gateway", || {
        peers(&midspan) == ["10.1.0.2/32", "10.1.0.7/32"]
    });
    wait_until("the file is removed", || !path("paths.other").exists());
    let answer = forget(&midspan, Some("10.1.0.2"));
    assert_eq!(answer.forgotten.unwrap().paths, 1);
    let kept = fs::read_to_string(path("paths")).unwrap();
    assert!(
        kept.contains("10.1.0.7") && !kept.contains("10.1.0.2"),
        "{kept}"
    );
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    wait_until("the paths of before", || peers(&midspan) == ["10.1.0.7/32"]);
    assert_eq!(forget(&midspan, None).forgotten.unwrap().paths, 1);
    // What cannot be read changes nothing, and stays.
    fs::write(path("paths.other"), "midspan-paths 2 0\nnonsense\n").unwrap();
    wait_until("the file is removed", || !path("paths.other").exists());
    midspan.stop();
    let midspan = Midspan::ready(&network.gateway, &text);
    assert!(peers(&midspan).is_empty());
    midspan.stop();
}
