//! Fields with lists of nodes: `Midspan-Route`, and `Via` (RFC 9110 §7.6.3).

use httparse::Header;
use midspan_policy::overlay::NodeName;

use crate::exchange::fields;

/// Most nodes in one list. A session that has passed more is refused in any case.
const MOST_NODES: usize = 8;

/// The nodes in all fields of this name, in their order; `None` if an element is none, or there are
/// too many.
pub(super) fn nodes(fields: &[Header<'_>], name: &str) -> Option<Vec<NodeName>> {
    list(fields, name, |element| element.parse().ok())
}

/// The nodes in the field `Via`, each after the version of its protocol.
pub(super) fn via(fields: &[Header<'_>]) -> Option<Vec<NodeName>> {
    list(fields, "via", |element| {
        let (protocol, node) = element.split_once([' ', '\t'])?;
        let is_version = |byte: u8| byte.is_ascii_graphic();
        let node = protocol.bytes().all(is_version).then_some(node)?;
        node.trim().parse().ok()
    })
}

fn list(
    fields: &[Header<'_>],
    name: &str,
    read: impl Fn(&str) -> Option<NodeName>,
) -> Option<Vec<NodeName>> {
    let mut nodes = Vec::new();
    for value in fields::values(fields, name) {
        for element in std::str::from_utf8(value).ok()?.split(',') {
            let element = element.trim_matches([' ', '\t']);
            // Empty elements have no meaning (RFC 9110 §5.6.1.2).
            if element.is_empty() {
                continue;
            }
            if nodes.len() == MOST_NODES {
                return None;
            }
            nodes.push(read(element)?);
        }
    }
    Some(nodes)
}

/// Writes a field with this list, each element after `before`; nothing if the list is empty.
pub(super) fn write(head: &mut String, name: &str, before: &str, nodes: &[NodeName]) {
    if nodes.is_empty() {
        return;
    }
    let elements: Vec<String> = nodes.iter().map(|node| format!("{before}{node}")).collect();
    head.push_str(name);
    head.push_str(": ");
    head.push_str(&elements.join(", "));
    head.push_str("\r\n");
}
