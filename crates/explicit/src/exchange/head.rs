//! Where the head of a message ends, found without reading anything twice.

/// How far a head has been read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeadEnd {
    /// Bytes that were looked at.
    seen: usize,
    /// Bytes of the present line, without its end.
    line: usize,
    /// The last byte was a carriage return.
    after_return: bool,
}

/// What has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No end yet.
    Nothing,
    /// The head is so long, the empty line at its end included.
    End(usize),
    /// A byte that no head has.
    Wrong,
}

impl HeadEnd {
    /// Looks at what has come since; `input` begins where it began before.
    pub fn search(&mut self, input: &[u8]) -> Found {
        for (place, byte) in input.iter().enumerate().skip(self.seen) {
            self.seen = place + 1;
            match byte {
                b'\n' if self.line == 0 => return Found::End(place + 1),
                b'\n' => (self.line, self.after_return) = (0, false),
                // A line may be nothing but a carriage return and a line feed.
                b'\r' if !self.after_return => self.after_return = true,
                b'\t' | b' '.. => {
                    self.line += 1 + usize::from(self.after_return);
                    self.after_return = false;
                }
                _ => return Found::Wrong,
            }
        }
        Found::Nothing
    }
}

/// How many bytes of empty lines stand before a head; they mean nothing (RFC 9112 §2.2).
pub(crate) fn empty_lines(input: &[u8]) -> usize {
    let mut rest = input;
    while let [b'\r', b'\n', after @ ..] | [b'\n', after @ ..] = rest {
        rest = after;
    }
    input.len() - rest.len()
}
