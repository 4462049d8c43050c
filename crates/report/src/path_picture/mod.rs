//! The picture of a path: nodes in a row, connected by links with their properties.

mod drawing;

use askama::Template;
use midspan_units::{BitRate, Probability, TimeSpan};

use self::drawing::Drawing;
use crate::Error;
use crate::text::clean;

/// A path to be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathPicture {
    /// The text below the picture; may be empty.
    pub caption: String,
    /// The nodes, from the client to the server.
    pub nodes: Vec<NodePicture>,
    /// The links: the first one connects the first two nodes, and so on. Links without a node at
    /// both ends are not drawn.
    pub links: Vec<LinkPicture>,
}

/// A node of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePicture {
    /// Its name, such as "gateway".
    pub name: String,
    /// The text below the name, such as "midspan" or "curl"; may be empty.
    pub detail: String,
    /// The kind of node, which determines how it is drawn.
    pub kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeKind {
    /// An end host.
    #[default]
    Host,
    /// Forwards packets.
    Router,
    /// Splits connections.
    Proxy,
}

/// A link between two neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkPicture {
    /// Its name, such as "satellite".
    pub name: String,
    /// The direction from the first node towards the last.
    pub forward: DirectionPicture,
    /// The direction back. If equal to `forward`, both are printed as one.
    pub backward: DirectionPicture,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectionPicture {
    /// Its rate; `None`: no limit.
    pub rate: Option<BitRate>,
    /// Its one-way propagation delay.
    pub delay: TimeSpan,
    /// The probability that a packet is lost.
    pub loss: Probability,
    /// Room for waiting packets, such as "1,000 packets"; empty if unspecified.
    pub queue: String,
    /// Further properties in a few words each, such as "fades".
    pub notes: Vec<String>,
}

impl DirectionPicture {
    fn lines(&self) -> Vec<String> {
        let rate = self
            .rate
            .map_or("no rate limit".to_owned(), |rate| rate.to_string());
        let mut lines = vec![rate];
        if self.delay != TimeSpan::ZERO {
            lines.push(format!("{} one way", self.delay));
        }
        if self.loss != Probability::ZERO {
            lines.push(format!("{} loss", self.loss));
        }
        if !self.queue.is_empty() {
            lines.push(format!("queue {}", self.queue));
        }
        lines.extend(self.notes.iter().cloned());
        lines.iter().map(|line| clean(line)).collect()
    }
}

impl PathPicture {
    /// The picture as SVG, 800 pixels wide.
    ///
    /// # Errors
    /// If the template fails, which no data should cause.
    pub fn to_svg(&self) -> Result<String, Error> {
        Ok(Drawing::new(self).render()?)
    }

    /// The path in words, for readers who cannot see the picture.
    pub(crate) fn in_words(&self) -> String {
        let names: Vec<String> = self.nodes.iter().map(|node| clean(&node.name)).collect();
        format!("The path: {}", names.join(", "))
    }
}
