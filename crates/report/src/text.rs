//! Untrusted text: sanitised, measured and cut.

/// `text` on one line, without anything that controls a terminal or changes the reading direction.
///
/// White space other than a plain space becomes a space. Other control characters, direction
/// overrides and characters that XML forbids become the replacement character.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => ' ',
            '\u{200e}' | '\u{200f}' | '\u{061c}' => '\u{fffd}',
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Estimated width of `text` in a sans-serif font of `size` pixels. SVG cannot measure text; the
/// estimate is rather too wide, except for bold text.
pub(crate) fn estimated_width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| relative_width(c) * size).sum()
}

fn relative_width(c: char) -> f64 {
    match c {
        ' ' | '.' | ',' | ':' | ';' | '!' | '|' | '\'' | 'i' | 'j' | 'l' | 'I' | 'f' | 't'
        | 'r' | '(' | ')' | '/' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '→' | '←' | '↑' | '↓' | '↔' => 0.95,
        'A'..='Z' => 0.72,
        '\u{1100}'.. if !('\u{2000}'..='\u{206f}').contains(&c) => 1.05,
        _ => 0.58,
    }
}

/// Estimated number of terminal columns of `text`: wide characters take two.
pub(crate) fn columns_taken(text: &str) -> usize {
    let wide = text.chars().filter(|c| relative_width(*c) > 1.0).count();
    text.chars().count() + wide
}

/// `text`, cut with an ellipsis if it would be wider than `width` pixels.
pub(crate) fn fit(text: &str, size: f64, width: f64) -> String {
    if estimated_width(text, size) <= width {
        return text.to_owned();
    }
    let room = width - estimated_width("…", size);
    let mut used = 0.0;
    let mut cut = String::new();
    for c in text.chars() {
        used += relative_width(c) * size;
        if used > room {
            break;
        }
        cut.push(c);
    }
    format!("{}…", cut.trim_end())
}

/// `text` in lines of at most `width` columns, broken between words; a longer word stays whole.
/// Lines after the first begin with `indent` spaces.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    let mut line_is_empty = true;
    for word in text.split_whitespace() {
        let length = columns_taken(word);
        if !line_is_empty && used + 1 + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = indent;
        } else if !line_is_empty {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
        line_is_empty = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            clean("a\u{1b}[31mb\nc\td\u{202e}e"),
            "a\u{fffd}[31mb c d\u{fffd}e"
        );
        assert_eq!(clean("500 µs – 1 ms"), "500 µs – 1 ms");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(fit("short", 12.0, 200.0), "short");
        let cut = fit("a name that goes on and on", 12.0, 60.0);
        assert!(
            cut.ends_with('…') && estimated_width(&cut, 12.0) <= 60.0,
            "{cut}"
        );
        assert_eq!(fit("abc", 12.0, 0.0), "…");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrap("unbreakable word", 4, 0), "unbreakable\nword");
        assert_eq!(wrap("10 MB direct", 40, 2), "10 MB direct");
        assert_eq!(wrap("", 10, 2), "");
    }
}
