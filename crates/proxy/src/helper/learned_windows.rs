//! The initial windows from which learned starts may choose; each needs a mark.

use std::collections::BTreeSet;

use midspan_gateway::interception::Marks;
use midspan_policy::learned_start::SERVER_WINDOWS;

use crate::configuration::{Configuration, Listener};

/// Marks that stay free for transparent listeners that a reload adds.
const FOR_RELOADS: usize = 2;

/// The windows of transparent listeners, limited by the number of marks that `others` leave.
pub(super) fn granted(configuration: &Configuration, others: usize) -> BTreeSet<u32> {
    let transparent = configuration.transparent().map(|(of, _)| &of.relay);
    let wanted: BTreeSet<u32> = transparent
        .flat_map(|of| of.learned_windows.iter().copied())
        .collect();
    spread(&wanted, room(configuration, others))
}

/// The windows towards servers, limited in the same way: windows towards clients come first.
pub(super) fn granted_to_servers(configuration: &Configuration, others: usize) -> BTreeSet<u32> {
    let mut listeners = configuration.transparent().map(|(of, _)| of);
    if !listeners.any(learns_of_servers) {
        return BTreeSet::new();
    }
    let room = room(configuration, others).saturating_sub(FOR_RELOADS);
    SERVER_WINDOWS.into_iter().take(room).collect()
}

/// Whether the gate chooses initial windows towards the servers of a transparent listener.
pub(super) fn learns_of_servers(listener: &Listener) -> bool {
    let session = &listener.relay.session;
    let is_transparent = listener.transparent().is_some();
    is_transparent && session.policy.learns() && session.server.initial_window.is_none()
}

/// The number of marks that transparent listeners and `others` leave.
fn room(configuration: &Configuration, others: usize) -> usize {
    let marks = usize::try_from(configuration.marks.marks.count()).unwrap_or(usize::MAX);
    let listeners = configuration.transparent().count();
    marks.saturating_sub(Marks::BESIDES_LISTENERS + listeners + others)
}

/// At most `room` of the windows: the largest, and others at even distances below it.
fn spread(wanted: &BTreeSet<u32>, room: usize) -> BTreeSet<u32> {
    let count = room.min(wanted.len());
    let places: BTreeSet<usize> = (1..=count).map(|k| k * wanted.len() / count - 1).collect();
    let wanted = wanted.iter().enumerate();
    wanted
        .filter(|(place, _)| places.contains(place))
        .map(|(_, window)| *window)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_get_the_marks_that_clients_and_reloads_leave() {
        let of = |count: usize, more: &str| {
            let listener = |number| {
                format!(
                    "[[listener]]\nname = \"l{number}\"\nmode = \"transparent\"\n\
                     interfaces = [\"eth1\"]\n{more}"
                )
            };
            let text: String = (0..count).map(listener).collect();
            let source = midspan_document::Source::new("test", text);
            let configuration = Configuration::read(&source).unwrap();
            let clients = granted(&configuration, 0).len();
            let servers = granted_to_servers(&configuration, clients);
            (clients, servers.into_iter().collect::<Vec<_>>())
        };
        let auto = "policy = \"auto\"\n";
        assert_eq!(of(1, auto), (6, vec![40, 320]));
        assert_eq!(of(2, auto), (6, vec![40]));
        assert_eq!(of(5, auto), (6, vec![]));
        assert_eq!(of(1, ""), (0, vec![]));
        let fixed = format!("{auto}server_leg = {{ initial_window = 100 }}\n");
        assert_eq!(of(1, &fixed), (6, vec![]));
    }

    #[test]
    fn where_marks_are_few_the_windows_lie_further_apart() {
        let wanted = BTreeSet::from([20, 40, 80, 160, 320]);
        let of = |room| spread(&wanted, room).into_iter().collect::<Vec<_>>();
        assert_eq!(of(9), [20, 40, 80, 160, 320]);
        assert_eq!(of(3), [20, 80, 320]);
        assert_eq!(of(2), [40, 320]);
        assert_eq!(of(1), [320]);
        assert!(of(0).is_empty());
    }
}
