//! The check that the lab can build a path file. Some keys need the simulator.

use midspan_link::Configuration;
use midspan_path::{Acknowledge, Link, Path};
use midspan_policy::oversized_segments::OversizedStart;

use crate::LabError;

/// Bytes of the largest packet that an interface of the lab carries.
const INTERFACE_MTU: u32 = 1_500;

/// Refuses a path with a key that the lab cannot build. Otherwise the lab would measure a different
/// path than the simulator.
///
/// # Errors
/// [`LabError::Unsupported`], with the reason.
pub fn check(path: &Path) -> Result<(), LabError> {
    match reasons(path).next() {
        Some(reason) => Err(LabError::Unsupported(format!(
            "{reason}: use the simulator (docs/path-file.md)"
        ))),
        None => Ok(()),
    }
}

/// The parts of the path that the lab cannot build, each as a reason.
fn reasons(path: &Path) -> impl Iterator<Item = String> {
    let traffic = path.traffic.iter().map(|traffic| {
        let name = &traffic.name;
        format!("the path has traffic \"{name}\", and the lab has no source of it")
    });
    let cables = path.cables.iter().map(|cable| {
        let name = &cable.name;
        format!("the path has a cable \"{name}\", and in the lab each link has a thread of its own")
    });
    let links = path.links.iter().flat_map(of_link);
    let proxies = path.proxies().filter_map(|(node, settings)| {
        let name = &path.node(node).name;
        let supported = settings.oversized_start == OversizedStart::Probe;
        (!supported).then(|| {
            format!("proxy \"{name}\" has `oversized_start`, and the real proxy starts by a probe")
        })
    });
    let hosts = path.hosts().filter_map(|(node, settings)| {
        let name = &path.node(node).name;
        let supported = settings.acknowledge == Acknowledge::Delayed;
        (!supported).then(|| {
            format!(
                "host \"{name}\" has `acknowledge`, and its kernel decides when it acknowledges \
                 (the case `thin` thins ACKs)"
            )
        })
    });
    traffic
        .chain(cables)
        .chain(links)
        .chain(proxies)
        .chain(hosts)
}

fn of_link(link: &Link) -> impl Iterator<Item = String> {
    let name = &link.name;
    let directions = [&link.up, &link.down];
    let has = |effect: fn(&Configuration) -> bool| directions.into_iter().any(effect);
    let marks = has(|direction| direction.queue_discipline.mark_from.is_some());
    let too_large = has(|direction| direction.mtu.is_some_and(|mtu| mtu > INTERFACE_MTU));
    [
        marks.then(|| {
            format!(
                "link \"{name}\" has `ack_queue = \"marked\"`, and no kernel reacts to a marked ACK"
            )
        }),
        too_large.then(|| {
            format!(
                "link \"{name}\" has an `mtu` above {INTERFACE_MTU} B, and the lab's interfaces \
                 carry no larger packets"
            )
        }),
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use midspan_document::Source;

    use super::*;

    fn checked(host: &str, proxy: &str, link: &str, rest: &str) -> Result<(), String> {
        let text = format!(
            "[[host]]\nname = \"client\"\n{host}\n[[proxy]]\nname = \"proxy\"\n{proxy}\n\
             [[host]]\nname = \"server\"\n[[link]]\nname = \"near\"\n\
             between = [\"client\", \"proxy\"]\n{link}\n\
             [[link]]\nname = \"far\"\nbetween = [\"proxy\", \"server\"]\n{rest}"
        );
        let path = Path::read(&Source::new("test", text)).unwrap();
        check(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn effects_of_links_are_accepted() {
        for link in [
            "mtu = \"1500 B\"",
            "mtu = \"600 B\"\ndrop_fragments = true",
            "up = { ack_queue = \"filtered\" }",
            "ack_queue = \"first\"",
            "header_compression = true",
        ] {
            assert_eq!(checked("", "", link, ""), Ok(()), "{link}");
        }
    }

    #[test]
    fn what_needs_the_simulator_is_refused_with_the_reason() {
        let traffic = "[[traffic]]\nname = \"others\"\nfrom = \"client\"\nto = \"server\"\n\
                       rate = \"1 Mbit/s\"";
        let cable = "[[cable]]\nname = \"plant\"\nlinks = [\"near\"]\nrate = \"1 Mbit/s\"";
        for (host, proxy, link, rest, reason) in [
            ("", "", "", traffic, "no source of it"),
            ("", "", "", cable, "a thread of its own"),
            ("", "", "mtu = \"1501 B\"", "", "above 1500 B"),
            (
                "",
                "",
                "up = { ack_queue = \"marked\" }",
                "",
                "no kernel reacts",
            ),
            ("acknowledge = \"ace\"", "", "", "", "its kernel decides"),
            ("", "oversized_start = \"syn-ack\"", "", "", "by a probe"),
        ] {
            let error = checked(host, proxy, link, rest).unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert!(error.contains("use the simulator"), "{error}");
        }
    }
}
