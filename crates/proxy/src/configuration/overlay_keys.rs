//! The keys of an overlay's nodes.

use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use midspan_document::{Located, Source, Spanned};
use midspan_policy::Network;
use midspan_policy::overlay::{Node, NodeKey, NodeKind, NodeName, NodeSecret, Overlay};

/// Most bytes of the file with the private key.
const KEY_FILE_LIMIT: usize = 1024;

/// Permissions that no user but the owner may have; the group may read the file.
const FORBIDDEN: u32 = 0o037;

/// The key of a node of the list; `None` if its legs are plain.
pub(super) fn of_node(
    source: &Source,
    (node, place): (&NodeName, &Spanned<String>),
    key: Option<&Spanned<String>>,
    is_plain: bool,
) -> Result<Option<NodeKey>, Located> {
    match (key, is_plain) {
        (Some(key), false) => match key.get_ref().parse() {
            Ok(key) => Ok(Some(key)),
            Err(error) => Err(Located::new(source, key.span(), error)),
        },
        (None, true) => Ok(None),
        (Some(key), true) => {
            let message = "with security = \"network\", nothing is encrypted, and a key has no use";
            Err(Located::new(source, key.span(), message).with_help("remove one of the two"))
        }
        (None, false) => {
            let message = format!("node \"{node}\" has no key");
            Err(Located::new(source, place.span(), message).with_help(
                "at this node, `midspan overlay key --generate FILE` writes its private key and prints the \
                 line `key = \"…\"` for the list of members; on a private link, security = \"network\" does \
                 without encryption",
            ))
        }
    }
}

/// The private key of this node; `None` if it has no key in the list of members.
pub(super) fn secret(
    source: &Source,
    file: Option<&Spanned<String>>,
    name: &Spanned<String>,
    overlay: &Overlay,
) -> Result<Option<NodeSecret>, Located> {
    let key = overlay.own_node().and_then(|own| own.key);
    let (file, key) = match (file, key) {
        (None, None) => return Ok(None),
        (Some(file), Some(key)) => (file, key),
        (Some(file), None) => {
            let message = format!("node \"{}\" has no key in the list of members", overlay.own);
            return Err(Located::new(source, file.span(), message)
                .with_help("`midspan overlay key FILE` prints its line"));
        }
        (None, Some(_)) => {
            let message = format!(
                "node \"{}\" has a key in the list of members, and no private key here",
                overlay.own
            );
            return Err(Located::new(source, name.span(), message)
                .with_help("write private_key = \"/etc/midspan/overlay.key\""));
        }
    };
    let wrong = |message: String| Located::new(source, file.span(), message);
    let read = source
        .load_other(file.get_ref(), KEY_FILE_LIMIT)
        .map_err(|error| Located::new(source, file.span(), error))?;
    let mode = std::fs::metadata(read.name()).map(|metadata| metadata.mode());
    let mode = mode.map_err(|error| wrong(error.to_string()))?;
    if mode & FORBIDDEN != 0 {
        let message = format!("other users can use the private key in {}", read.name());
        return Err(wrong(message).with_help(format!("chmod 600 {}", read.name())));
    }
    let secret: NodeSecret = read
        .text()
        .trim()
        .parse()
        .map_err(|error| wrong(format!("{} is no private key: {error}", read.name())))?;
    match midspan_tls::public_key(secret.bytes()) {
        Ok(public) if NodeKey::new(public) == key => Ok(Some(secret)),
        Ok(public) => {
            let message = format!(
                "the list of members has another key for node \"{}\" than the one in {}, which is {}",
                overlay.own,
                read.name(),
                NodeKey::new(public)
            );
            Err(wrong(message))
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// By its address, a node is one whose connections are encrypted, or one whose connections are not. Otherwise a node
/// that has a key could be replaced by one without.
pub(super) fn check_senders(
    source: &Source,
    members: Range<usize>,
    overlay: &Overlay,
) -> Result<(), Located> {
    let senders = |is_encrypted: bool| {
        let nodes = overlay.nodes.iter();
        nodes.filter(move |node| {
            let has_keys = overlay.keys_to(&node.name).is_some();
            node.name != overlay.own && node.kind == NodeKind::Midspan && has_keys == is_encrypted
        })
    };
    for encrypted in senders(true) {
        for plain in senders(false) {
            if overlap(encrypted, plain) {
                let message = format!(
                    "nodes \"{}\" and \"{}\" have a common address, and only one of them is encrypted",
                    encrypted.name, plain.name
                );
                return Err(Located::new(source, members, message));
            }
        }
    }
    Ok(())
}

fn overlap(one: &Node, other: &Node) -> bool {
    let [one, other] = [one, other].map(networks);
    let within = |one: &Network, other: &Network| one.contains(other.address);
    one.iter().any(|one| {
        let mut others = other.iter();
        others.any(|other| within(one, other) || within(other, one))
    })
}

/// All addresses of a node.
fn networks(node: &Node) -> Vec<Network> {
    let own = node
        .address
        .map(|address| host(address.ip().to_canonical()));
    own.into_iter().chain(node.from.iter().copied()).collect()
}

const fn host(address: IpAddr) -> Network {
    Network {
        address,
        length: if address.is_ipv4() { 32 } else { 128 },
    }
}
