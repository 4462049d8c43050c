//! The nodes of a session.

use smallvec::SmallVec;

use super::{MOST_HOPS, NodeName};

/// The nodes of a session after the ingress, the exit last: 1 to [`MOST_HOPS`], each once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route(SmallVec<[NodeName; MOST_HOPS]>);

impl Route {
    /// A route by these nodes; `None` if there are none, too many, or one of them twice.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeName>) -> Option<Self> {
        // One more than fits is already too many.
        let nodes: SmallVec<[NodeName; MOST_HOPS]> =
            nodes.into_iter().take(MOST_HOPS + 1).collect();
        let is_first = |(place, node): (usize, &NodeName)| !nodes[..place].contains(node);
        let fits = (1..=MOST_HOPS).contains(&nodes.len());
        (fits && nodes.iter().enumerate().all(is_first)).then_some(Self(nodes))
    }

    /// The nodes, the exit last.
    #[must_use]
    pub fn nodes(&self) -> &[NodeName] {
        &self.0
    }

    /// The nodes before the exit.
    #[must_use]
    pub fn transit(&self) -> &[NodeName] {
        self.0.split_last().map_or(&[], |(_, transit)| transit)
    }

    /// The legs of a session that enters at `own`, without the one from the exit to the server.
    pub fn hops<'a>(
        &'a self,
        own: &'a NodeName,
    ) -> impl Iterator<Item = (&'a NodeName, &'a NodeName)> {
        std::iter::once(own).chain(&self.0).zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<NodeName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_route_has_few_nodes_each_once() {
        assert!(Route::new(Vec::new()).is_none());
        assert!(Route::new(names(&["a", "b", "a"])).is_none());
        assert!(Route::new(names(&["a", "b", "c", "d", "e"])).is_none());
        let four = Route::new(names(&["a", "b", "c", "d"])).unwrap();
        assert_eq!(four.nodes().last(), Some(&"d".parse().unwrap()));
    }

    #[test]
    fn hops_begin_at_the_ingress() {
        let route = Route::new(names(&["fra", "sin"])).unwrap();
        let own = "ams".parse().unwrap();
        let hops: Vec<_> = route
            .hops(&own)
            .map(|(from, to)| (from.as_str(), to.as_str()))
            .collect();
        assert_eq!(hops, [("ams", "fra"), ("fra", "sin")]);
        assert_eq!(route.transit(), names(&["fra"]));
    }
}
