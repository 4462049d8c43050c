//! Lines that the writer's own thread makes: they do not pass through the queue again.

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

/// Calls `make` and returns the lines that it logs; they are not queued.
pub fn capture<T>(make: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    CAPTURED.replace(Some(Vec::new()));
    let result = make();
    (result, CAPTURED.take().unwrap_or_default())
}

/// Captures a line if this thread captures lines; otherwise returns it.
pub fn take(line: Vec<u8>) -> Option<Vec<u8>> {
    CAPTURED.with_borrow_mut(|captured| match captured {
        Some(lines) => {
            lines.push(line);
            None
        }
        None => Some(line),
    })
}
