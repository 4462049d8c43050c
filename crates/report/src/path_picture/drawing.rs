//! The layout of a path's picture.

use askama::Template;

use super::{DirectionPicture, LinkPicture, NodeKind, NodePicture, PathPicture};
use crate::plot::palette::{ACCENT_BOX, BOX, Colour, FAINT, GROUND, INK, SERIES};
use crate::plot::{MARGIN, WIDTH};
use crate::text::{clean, fit};

/// A longer path continues in the next row, in the opposite direction.
const NODES_IN_ROW: usize = 4;
const BOX_HEIGHT: i32 = 52;
const LINE: i32 = 15;
const NAME_SIZE: f64 = 14.0;
const TEXT_SIZE: f64 = 12.0;
/// Space between two rows, in pixels, for the link that connects them.
const BETWEEN_ROWS: i32 = 84;

/// The template's data: boxes, lines, arrow heads and texts, in pixels.
#[derive(Template)]
#[template(path = "path_picture.svg")]
pub(super) struct Drawing {
    width: i32,
    height: i32,
    ground: String,
    ink: String,
    box_width: i32,
    box_height: i32,
    boxes: Vec<NodeBox>,
    lines: Vec<Line>,
    texts: Vec<Text>,
}

struct NodeBox {
    x: i32,
    y: i32,
    fill: String,
    stroke: String,
    stroke_width: i32,
    tooltip: String,
}

struct Line {
    from: (i32, i32),
    to: (i32, i32),
    /// The points of the arrow heads, in SVG's format.
    heads: Vec<String>,
}

struct Text {
    at: (i32, i32),
    anchor: &'static str,
    size: f64,
    weight: &'static str,
    fill: String,
    text: String,
    /// The whole text if it had to be cut; otherwise empty.
    tooltip: String,
}

/// The positions of the nodes.
struct Grid {
    nodes: usize,
    in_row: usize,
    box_width: i32,
    /// Heights of the texts above a row's links and below them, at least half a box each.
    above: i32,
    below: i32,
}

impl Grid {
    fn new(picture: &PathPicture) -> Self {
        let drawn = || {
            picture
                .links
                .iter()
                .take(picture.nodes.len().saturating_sub(1))
        };
        let lines = |direction: fn(&LinkPicture) -> usize| {
            let most = drawn().map(direction).max().unwrap_or(0);
            i32::try_from(most.min(12)).unwrap_or(0) * LINE + 10
        };
        Self {
            nodes: picture.nodes.len(),
            in_row: picture.nodes.len().clamp(1, NODES_IN_ROW),
            // A full row leaves its links just enough room for their texts.
            box_width: if picture.nodes.len() < NODES_IN_ROW {
                128
            } else {
                92
            },
            above: lines(|link| 1 + link.forward.lines().len()).max(BOX_HEIGHT / 2 + 4),
            below: lines(|link| link.backward.lines().len()).max(BOX_HEIGHT / 2 + 4),
        }
    }

    fn pitch(&self) -> i32 {
        let gaps = i32::try_from(self.in_row - 1).unwrap_or(0);
        let free = WIDTH - 2 * MARGIN - self.box_width;
        if gaps == 0 { 0 } else { free / gaps }
    }

    /// The centre of node `index`.
    fn middle(&self, index: usize) -> (i32, i32) {
        let (row, column) = (index / self.in_row, index % self.in_row);
        let column = if row.is_multiple_of(2) {
            column
        } else {
            self.in_row - 1 - column
        };
        let column = i32::try_from(column).unwrap_or(0);
        let row = i32::try_from(row).unwrap_or(0);
        let x = if self.in_row == 1 {
            WIDTH / 2
        } else {
            MARGIN + self.box_width / 2 + column * self.pitch()
        };
        let y = MARGIN + self.above + row * (self.above + self.below + BETWEEN_ROWS);
        (x, y)
    }

    fn height(&self) -> i32 {
        let (_, y) = self.middle(self.nodes.saturating_sub(1));
        y + self.below + MARGIN
    }
}

impl Drawing {
    /// Lays out `picture`.
    pub fn new(picture: &PathPicture) -> Self {
        let grid = Grid::new(picture);
        let mut drawing = Self {
            width: WIDTH,
            height: grid.height(),
            ground: GROUND.hex(),
            ink: INK.hex(),
            box_width: grid.box_width,
            box_height: BOX_HEIGHT,
            boxes: Vec::new(),
            lines: Vec::new(),
            texts: Vec::new(),
        };
        for (index, node) in picture.nodes.iter().enumerate() {
            drawing.add_node(grid.middle(index), node);
        }
        let last = picture.nodes.len().saturating_sub(1);
        for (index, link) in picture.links.iter().take(last).enumerate() {
            let (from, to) = (grid.middle(index), grid.middle(index + 1));
            if from.1 == to.1 {
                drawing.add_level_link(from, to, link);
            } else {
                drawing.add_upright_link(from, to, link);
            }
        }
        drawing
    }

    fn add_node(&mut self, (x, y): (i32, i32), node: &NodePicture) {
        let (fill, stroke) = match node.kind {
            NodeKind::Host => (BOX, INK),
            NodeKind::Router => (GROUND, FAINT),
            NodeKind::Proxy => (ACCENT_BOX, SERIES[0]),
        };
        self.boxes.push(NodeBox {
            x: x - self.box_width / 2,
            y: y - BOX_HEIGHT / 2,
            fill: fill.hex(),
            stroke: stroke.hex(),
            stroke_width: if node.kind == NodeKind::Proxy { 2 } else { 1 },
            tooltip: clean(&format!("{} {}", node.name, node.detail)),
        });
        let room = f64::from(self.box_width - 10);
        let name_at = if node.detail.is_empty() { y + 5 } else { y - 3 };
        self.add_text(
            (x, name_at),
            "middle",
            &node.name,
            (NAME_SIZE, "bold", INK),
            room,
        );
        if !node.detail.is_empty() {
            let style = (TEXT_SIZE, "normal", FAINT);
            self.add_text((x, y + 15), "middle", &node.detail, style, room);
        }
    }

    /// A link between two nodes in a row: forward above the line, backward below.
    fn add_level_link(&mut self, from: (i32, i32), to: (i32, i32), link: &LinkPicture) {
        let y = from.1;
        let sign = (to.0 - from.0).signum();
        let start = from.0 + sign * (self.box_width / 2 + 4);
        let end = to.0 - sign * (self.box_width / 2 + 4);
        let middle = i32::midpoint(start, end);
        let room = f64::from((end - start).abs() + 2);
        let same = link.forward == link.backward;
        if same {
            self.add_arrow((start, y), (end, y), true);
        } else {
            self.add_arrow((start, y - 5), (end, y - 5), false);
            self.add_arrow((end, y + 5), (start, y + 5), false);
        }

        let forward = link.forward.lines();
        let count = i32::try_from(forward.len().min(11)).unwrap_or(0);
        let mut at = (middle, y - 13 - count * LINE);
        self.add_text(at, "middle", &link.name, (TEXT_SIZE, "bold", INK), room);
        for line in forward.iter().take(11) {
            at.1 += LINE;
            self.add_text(at, "middle", line, (TEXT_SIZE, "normal", INK), room);
        }
        if !same {
            at.1 = y + 8;
            for line in link.backward.lines().iter().take(12) {
                at.1 += LINE;
                self.add_text(at, "middle", line, (TEXT_SIZE, "normal", INK), room);
            }
        }
    }

    /// The link from a row's end down to the next row, with its texts next to it.
    fn add_upright_link(&mut self, from: (i32, i32), to: (i32, i32), link: &LinkPicture) {
        let (x, start, end) = (
            from.0,
            from.1 + BOX_HEIGHT / 2 + 4,
            to.1 - BOX_HEIGHT / 2 - 4,
        );
        let same = link.forward == link.backward;
        if same {
            self.add_arrow((x, start), (x, end), true);
        } else {
            self.add_arrow((x - 5, start), (x - 5, end), false);
            self.add_arrow((x + 5, end), (x + 5, start), false);
        }
        let (anchor, beside) = if x > WIDTH / 2 {
            ("end", x - 18)
        } else {
            ("start", x + 18)
        };
        let room = f64::from(WIDTH - 2 * MARGIN - self.box_width);
        let mut lines = vec![link.name.clone()];
        let text = |arrow, direction: &DirectionPicture| {
            format!("{arrow} {}", direction.lines().join(" · "))
        };
        if same {
            lines.push(text("↕", &link.forward));
        } else {
            lines.push(text("↓", &link.forward));
            lines.push(text("↑", &link.backward));
        }
        // A little above the middle: the next row's texts begin below.
        let mut y = i32::midpoint(start, end) - LINE;
        for (number, line) in lines.iter().enumerate() {
            let weight = if number == 0 { "bold" } else { "normal" };
            self.add_text((beside, y), anchor, line, (TEXT_SIZE, weight, INK), room);
            y += LINE;
        }
    }

    fn add_arrow(&mut self, from: (i32, i32), to: (i32, i32), both: bool) {
        let mut heads = vec![head(from, to)];
        if both {
            heads.push(head(to, from));
        }
        self.lines.push(Line { from, to, heads });
    }

    fn add_text(
        &mut self,
        at: (i32, i32),
        anchor: &'static str,
        text: &str,
        (size, weight, colour): (f64, &'static str, Colour),
        room: f64,
    ) {
        let whole = clean(text);
        // Bold letters are wider.
        let wide = if weight == "bold" { 1.12 } else { 1.0 };
        let text = fit(&whole, size * wide, room);
        self.texts.push(Text {
            at,
            anchor,
            size,
            weight,
            fill: colour.hex(),
            tooltip: if text == whole { String::new() } else { whole },
            text,
        });
    }
}

/// The points of an arrow head at `to`, coming from `from`.
fn head(from: (i32, i32), to: (i32, i32)) -> String {
    let (right, down) = ((to.0 - from.0).signum(), (to.1 - from.1).signum());
    let back = (to.0 - 8 * right, to.1 - 8 * down);
    let one = (back.0 - 4 * down, back.1 + 4 * right);
    let other = (back.0 + 4 * down, back.1 - 4 * right);
    let points = [to, one, other].map(|(x, y)| format!("{x},{y}"));
    points.join(" ")
}

#[cfg(test)]
mod tests {
    use midspan_units::{Probability, TimeSpan};

    use super::*;

    fn path(nodes: usize, link: &LinkPicture) -> PathPicture {
        let node = |index| NodePicture {
            name: format!("node {index}"),
            detail: String::new(),
            kind: NodeKind::Router,
        };
        PathPicture {
            caption: String::new(),
            nodes: (0..nodes).map(node).collect(),
            links: vec![link.clone(); nodes],
        }
    }

    fn satellite() -> LinkPicture {
        let direction = |rate: &str| DirectionPicture {
            rate: rate.parse().ok(),
            delay: TimeSpan::from_milliseconds(280),
            loss: Probability::from_f64(0.001).unwrap(),
            queue: "1,000 packets".to_owned(),
            notes: Vec::new(),
        };
        LinkPicture {
            name: "satellite".to_owned(),
            forward: direction("2 Mbit/s"),
            backward: direction("20 Mbit/s"),
        }
    }

    #[test]
    fn each_direction_shows_its_properties() {
        let svg = path(3, &satellite()).to_svg().unwrap();
        for text in ["2 Mbit/s", "20 Mbit/s", "280 ms one way", "0.1 % loss"] {
            let count = svg.matches(&format!(">{text}<")).count();
            let times = if text.ends_with("bit/s") { 2 } else { 4 };
            assert_eq!(count, times, "{text} in {svg}");
        }
        let mut equal = satellite();
        equal.backward = equal.forward.clone();
        let svg = path(2, &equal).to_svg().unwrap();
        assert_eq!(svg.matches(">2 Mbit/s<").count(), 1);
    }

    #[test]
    fn any_number_of_nodes_stays_inside() {
        for nodes in [0, 1, 2, 4, 5, 9, 40] {
            let picture = path(nodes, &satellite());
            let drawing = Drawing::new(&picture);
            assert_eq!(drawing.boxes.len(), nodes);
            for node in &drawing.boxes {
                assert!(node.x >= 0 && node.x + drawing.box_width <= drawing.width);
                assert!(node.y >= 0 && node.y + BOX_HEIGHT <= drawing.height);
            }
            let texts = &drawing.texts;
            assert!(
                texts
                    .iter()
                    .all(|text| text.at.1 > 0 && text.at.1 < drawing.height)
            );
        }
    }

    #[test]
    fn missing_links_are_not_drawn() {
        let mut picture = path(3, &satellite());
        picture.links.truncate(1);
        assert_eq!(Drawing::new(&picture).lines.len(), 2);
    }
}
