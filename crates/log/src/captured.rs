//! Lines that the writer's own thread makes: they do not go through the queue once more.

use std::cell::{Cell, RefCell};

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
    static CAPTURED: RefCell<Option<Vec<Vec<u8>>>> = const { RefCell::new(None) };
}

/// The calling thread writes a log.
pub fn mark_writer() {
    IS_WRITER.set(true);
}

/// Whether the calling thread writes a log.
pub fn is_writer() -> bool {
    IS_WRITER.get()
}

/// Calls `make`; the lines that it logs come back instead of being queued.
pub fn capture<T>(make: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    CAPTURED.replace(Some(Vec::new()));
    let result = make();
    (result, CAPTURED.take().unwrap_or_default())
}

/// Takes a line where lines are captured; else it comes back.
pub fn take(line: Vec<u8>) -> Option<Vec<u8>> {
    CAPTURED.with_borrow_mut(|captured| match captured {
        Some(lines) => {
            lines.push(line);
            None
        }
        None => Some(line),
    })
}
