//! The colours of all pictures, for light and for dark pages.
//!
//! On light pages, six of the seven series have colours of Okabe and Ito ("Color Universal Design",
//! 2008), which people with any common colour blindness can distinguish. Their yellow is left out,
//! because it is too pale on white, and grey replaces their black. Dark pages have lighter
//! variants of the same colours.

/// A colour as red, green, blue.
pub(crate) type Rgb = (u8, u8, u8);

/// A colour on a light page, and its replacement on a dark one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Colour {
    pub light: Rgb,
    dark: Rgb,
}

const fn colour(light: Rgb, dark: Rgb) -> Colour {
    Colour { light, dark }
}

/// The background of every picture.
pub(crate) const GROUND: Colour = colour((0xff, 0xff, 0xff), (0x1b, 0x20, 0x27));
/// Text and axes.
pub(crate) const INK: Colour = colour((0x1f, 0x29, 0x33), (0xe6, 0xea, 0xef));
/// Less prominent text.
pub(crate) const FAINT: Colour = colour((0x5b, 0x67, 0x73), (0xa5, 0xaf, 0xba));
/// Grid lines.
pub(crate) const GRID: Colour = colour((0xdc, 0xe1, 0xe6), (0x3a, 0x42, 0x4c));
/// The inside of a box.
pub(crate) const BOX: Colour = colour((0xf3, 0xf5, 0xf8), (0x27, 0x2e, 0x37));
/// The inside of the highlighted box.
pub(crate) const ACCENT_BOX: Colour = colour((0xe1, 0xee, 0xf7), (0x1d, 0x3a, 0x52));

/// One colour for each series of a plot.
pub(crate) const SERIES: [Colour; 7] = [
    colour((0x00, 0x72, 0xb2), (0x58, 0xa6, 0xe8)),
    colour((0xd5, 0x5e, 0x00), (0xf0, 0x8a, 0x3c)),
    colour((0x00, 0x9e, 0x73), (0x35, 0xc6, 0x9b)),
    colour((0xcc, 0x79, 0xa7), (0xde, 0x9c, 0xc3)),
    colour((0xe6, 0x9f, 0x00), (0xf2, 0xc1, 0x4e)),
    colour((0x56, 0xb4, 0xe9), (0xa8, 0xdc, 0xf8)),
    colour((0x55, 0x5d, 0x66), (0x9a, 0xa3, 0xad)),
];

/// The shades of a heat map, from the least to the largest value; text is readable on each of them.
pub(crate) const SHADES: [Colour; 7] = [
    colour((0xf1, 0xf6, 0xfb), (0x20, 0x28, 0x31)),
    colour((0xdf, 0xec, 0xf6), (0x20, 0x31, 0x40)),
    colour((0xcc, 0xe1, 0xf1), (0x20, 0x3a, 0x50)),
    colour((0xb8, 0xd6, 0xec), (0x20, 0x43, 0x60)),
    colour((0xa3, 0xca, 0xe7), (0x1f, 0x4c, 0x70)),
    colour((0x8d, 0xbe, 0xe2), (0x1e, 0x55, 0x80)),
    colour((0x76, 0xb2, 0xdd), (0x1d, 0x5e, 0x91)),
];

/// The colour of series `index`, counted from 0; the colours repeat after seven.
pub(crate) fn series(index: usize) -> Colour {
    SERIES[index % SERIES.len()]
}

impl Colour {
    /// "#RRGGBB" on a light page, as written in the SVG.
    pub fn hex(self) -> String {
        hex(self.light)
    }
}

fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Style rules with the pictures' colours for dark pages. The SVG itself has the light colours, so
/// that it can be used alone.
pub(crate) fn dark_rules() -> String {
    let drawing = [GROUND, INK, FAINT, GRID, BOX, ACCENT_BOX];
    let mut rules = String::new();
    for Colour { light, dark } in drawing.into_iter().chain(SERIES).chain(SHADES) {
        let (light, dark) = (hex(light), hex(dark));
        for attribute in ["fill", "stroke"] {
            let rule = format!("figure svg [{attribute}=\"{light}\"]{{{attribute}:{dark}}}\n");
            rules.push_str(&rule);
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance contrast, WCAG 2.2.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let linear = |channel: u8| {
            let share = f64::from(channel) / 255.0;
            if share <= 0.04045 {
                share / 12.92
            } else {
                libm::pow((share + 0.055) / 1.055, 2.4)
            }
        };
        let luminance = |(red, green, blue): Rgb| {
            0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_on_both_grounds() {
        for text in [INK, FAINT] {
            for ground in [GROUND, BOX, ACCENT_BOX] {
                assert!(contrast(text.light, ground.light) >= 4.5);
                assert!(contrast(text.dark, ground.dark) >= 4.5);
            }
        }
        for shade in SHADES {
            assert!(contrast(INK.light, shade.light) >= 4.5, "{shade:?}");
            assert!(contrast(INK.dark, shade.dark) >= 4.5, "{shade:?}");
        }
    }

    #[test]
    fn lines_stand_out_on_both_grounds() {
        for series in SERIES {
            assert!(contrast(series.light, GROUND.light) >= 2.0, "{series:?}");
            assert!(contrast(series.dark, GROUND.dark) >= 3.0, "{series:?}");
        }
    }
}
