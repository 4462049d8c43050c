//! Lines that wait to be written: bounded, in order, with marks where lines are missing.

use std::collections::VecDeque;

/// Most waiting lines.
pub const LINES: usize = 4096;
/// Most bytes of waiting lines.
pub const BYTES: usize = 4 << 20;
/// Size that counts for a line whose text the writer makes.
const LATER_BYTES: usize = 1 << 10;

/// Makes lines on the writer's thread.
pub type Later = Box<dyn FnOnce() + Send>;

/// What the writer has to do next.
pub enum Entry {
    /// Write this line.
    Line(Vec<u8>),
    /// Write the lines that this function makes.
    Later(Later),
    /// The number of lines that found no room at this position.
    Lost(u64),
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Line(bytes) => bytes.len(),
            Self::Later(_) => LATER_BYTES,
            Self::Lost(_) => 0,
        }
    }
}

/// The queue. Marks take no room: there is at most one for each line, and one more.
#[derive(Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    lines: usize,
    bytes: usize,
}

impl Queue {
    /// Puts a line at the end.
    ///
    /// # Errors
    /// There is no room for the line, which is returned.
    pub fn put(&mut self, entry: Entry) -> Result<(), Entry> {
        let bytes = self.bytes.saturating_add(entry.bytes());
        if self.lines >= LINES || bytes > BYTES {
            return Err(entry);
        }
        self.lines += 1;
        self.bytes = bytes;
        self.entries.push_back(entry);
        Ok(())
    }

    /// Marks that a line is missing here.
    pub fn mark_lost(&mut self) {
        match self.entries.back_mut() {
            Some(Entry::Lost(count)) => *count = count.saturating_add(1),
            _ => self.entries.push_back(Entry::Lost(1)),
        }
    }

    /// Removes and returns the first entry.
    pub fn take(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        if !matches!(entry, Entry::Lost(_)) {
            self.lines = self.lines.saturating_sub(1);
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes());
        Some(entry)
    }

    /// Whether the queue is full to a quarter.
    pub const fn is_quarter_full(&self) -> bool {
        self.lines >= LINES / 4 || self.bytes >= BYTES / 4
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Entry {
        Entry::Line(text.as_bytes().to_vec())
    }

    fn fill(queue: &mut Queue) {
        for _ in 0..LINES {
            assert!(queue.put(line("x")).is_ok());
        }
    }

    #[test]
    fn what_finds_no_room_is_marked_in_its_place() {
        let mut queue = Queue::default();
        fill(&mut queue);
        for _ in 0..3 {
            assert!(queue.put(line("lost")).is_err());
            queue.mark_lost();
        }
        assert!(matches!(queue.take(), Some(Entry::Line(_))));
        assert!(queue.put(line("after")).is_ok());
        for _ in 1..LINES {
            assert!(matches!(queue.take(), Some(Entry::Line(text)) if text == b"x"));
        }
        assert!(matches!(queue.take(), Some(Entry::Lost(3))));
        assert!(matches!(queue.take(), Some(Entry::Line(text)) if text == b"after"));
        assert!(queue.take().is_none() && queue.is_empty());
    }

    #[test]
    fn marks_do_not_grow_without_bound() {
        let mut queue = Queue::default();
        fill(&mut queue);
        for _ in 0..5 * LINES {
            queue.mark_lost();
            if queue.put(line("x")).is_err() {
                queue.take();
            }
        }
        assert!(queue.entries.len() <= 2 * LINES + 1);
    }

    #[test]
    fn bytes_are_bounded_and_given_back() {
        let mut queue = Queue::default();
        for _ in 0..4 {
            assert!(queue.put(Entry::Line(vec![0; BYTES / 4])).is_ok());
        }
        assert!(queue.put(line("x")).is_err());
        assert!(queue.put(Entry::Later(Box::new(|| {}))).is_err());
        queue.take();
        assert!(queue.put(Entry::Later(Box::new(|| {}))).is_ok());
        while queue.take().is_some() {}
        assert_eq!((queue.lines, queue.bytes), (0, 0));
    }
}
