//! Finds the end of a message's head without reading any byte twice.

/// The part of a head that has been read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeadEnd {
    /// Bytes that were read.
    seen: usize,
    /// Bytes of the current line, without its end.
    line: usize,
    /// The last byte was a carriage return.
    after_return: bool,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No end yet.
    Nothing,
    /// The length of the head, including the empty line at its end.
    End(usize),
    /// A byte that no head has.
    Wrong,
}

impl HeadEnd {
    /// Reads the bytes that have arrived since; `input` begins at the same position as before.
    pub fn search(&mut self, input: &[u8]) -> Found {
        for (place, byte) in input.iter().enumerate().skip(self.seen) {
            self.seen = place + 1;
            match byte {
                b'\n' if self.line == 0 => return Found::End(place + 1),
                b'\n' => (self.line, self.after_return) = (0, false),
                // An empty line consists of a carriage return and a line feed.
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

/// The number of bytes of empty lines before a head; they have no meaning (RFC 9112 §2.2).
pub(crate) fn empty_lines(input: &[u8]) -> usize {
    let mut rest = input;
    while let [b'\r', b'\n', after @ ..] | [b'\n', after @ ..] = rest {
        rest = after;
    }
    input.len() - rest.len()
}
