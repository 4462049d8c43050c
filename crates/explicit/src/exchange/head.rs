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
        let begin = self.seen.min(input.len());
        let (_, new) = input.split_at(begin);
        // In local variables, which the compiler keeps in registers.
        let (mut line, mut after_return) = (self.line, self.after_return);
        for (place, byte) in new.iter().enumerate() {
            match byte {
                b'\t' | b' '.. => {
                    line += 1 + usize::from(after_return);
                    after_return = false;
                }
                b'\n' if line == 0 => return Found::End(begin + place + 1),
                b'\n' => (line, after_return) = (0, false),
                // An empty line consists of a carriage return and a line feed.
                b'\r' if !after_return => after_return = true,
                _ => return Found::Wrong,
            }
        }
        *self = Self {
            seen: input.len(),
            line,
            after_return,
        };
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
