//! A chart of bars made of characters, for a terminal.

use crate::text::{clean, columns_taken};

/// Width in characters if the width is not limited.
const PIPE_WIDTH: usize = 72;
/// The longest bar in characters.
const LONGEST: usize = 50;
/// The longest bar on a terminal that is too narrow for more.
const LEAST: usize = 8;
/// Parts of a character by eighths, from one to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One bar with its label and its value as text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextBar {
    /// The label before the bar.
    pub label: String,
    /// The length. A value that is not positive and finite has no bar.
    pub value: f64,
    /// The text behind the bar, such as "4.9 s".
    pub shown: String,
}

/// Groups of bars below each other. Each group has a scale of its own: its longest bar has the full
/// width.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextBars {
    /// The name of each group with its bars.
    pub groups: Vec<(String, Vec<TextBar>)>,
}

impl TextBars {
    /// The chart as text, with a line for each bar and a final line break. `width` is that of the
    /// terminal in characters, if it is known.
    #[must_use]
    pub fn to_text(&self, width: Option<u16>) -> String {
        let width = width.map_or(PIPE_WIDTH, usize::from);
        let names = widest(self.groups.iter().map(|(name, _)| name));
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let labels = widest(bars().map(|bar| &bar.label));
        let shown = widest(bars().map(|bar| &bar.shown));
        let room = width.saturating_sub(names + labels + shown + 5);
        let longest = room.clamp(LEAST, LONGEST);
        let mut text = String::new();
        for (name, bars) in &self.groups {
            let greatest = bars.iter().map(TextBar::length).fold(0.0, f64::max);
            for (position, bar) in bars.iter().enumerate() {
                let name = if position == 0 {
                    clean(name)
                } else {
                    String::new()
                };
                let share = if greatest > 0.0 {
                    bar.length() / greatest
                } else {
                    0.0
                };
                let line = format!(
                    "{}  {}  {} {}",
                    padded(&name, names),
                    padded(&clean(&bar.label), labels),
                    drawn(share, longest),
                    clean(&bar.shown)
                );
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text
    }
}

impl TextBar {
    fn length(&self) -> f64 {
        if self.value.is_finite() {
            self.value.max(0.0)
        } else {
            0.0
        }
    }
}

/// A bar that is `share` (0 to 1) of `longest` characters long; a share above 0 is visible.
fn drawn(share: f64, longest: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * longest as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    bar.extend((eighths % 8).checked_sub(1).map(|part| EIGHTHS[part]));
    bar
}

fn widest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts
        .map(|text| columns_taken(&clean(text)))
        .max()
        .unwrap_or(0)
}

fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns_taken(text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64) -> TextBar {
        TextBar {
            label: label.to_owned(),
            value,
            shown: format!("{value} s"),
        }
    }

    fn chart() -> TextBars {
        TextBars {
            groups: vec![
                (
                    "100 KB".into(),
                    vec![bar("without", 3.0), bar("Midspan", 1.8)],
                ),
                (
                    "1 MB".into(),
                    vec![bar("without", 4.9), bar("Midspan", 3.5)],
                ),
            ],
        }
    }

    #[test]
    fn the_longest_bar_of_each_group_has_the_full_width() {
        let expected = "\
100 KB  without  ██████████ 3 s
        Midspan  ██████ 1.8 s
1 MB    without  ██████████ 4.9 s
        Midspan  ███████▏ 3.5 s
";
        assert_eq!(chart().to_text(Some(33)), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [33, 40, 80, 500] {
            let text = chart().to_text(Some(width));
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(width)), "{text}");
        }
        assert_eq!(chart().to_text(Some(0)).lines().count(), 4);
        assert_eq!(TextBars::default().to_text(None), "");
    }

    #[test]
    fn a_value_without_a_length_has_no_bar_and_a_small_one_is_visible() {
        let chart = TextBars {
            groups: vec![(
                "x".into(),
                vec![
                    bar("a", f64::NAN),
                    bar("b", -1.0),
                    bar("c", 1e-9),
                    bar("d", 1.0),
                    bar("e", f64::INFINITY),
                ],
            )],
        };
        let text = chart.to_text(None);
        let lengths: Vec<usize> = text
            .lines()
            .map(|line| {
                line.chars()
                    .filter(|c| *c == '█' || EIGHTHS.contains(c))
                    .count()
            })
            .collect();
        assert_eq!(lengths, [0, 0, 1, 50, 0], "{text}");
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let mut chart = chart();
        chart.groups[0].0 = "\u{1b}[31m".into();
        chart.groups[0].1[0].shown = "\u{1b}c".into();
        assert!(!chart.to_text(None).contains('\u{1b}'));
    }
}
