//! The loop that joins a terminal, reports and the view.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use midspan_thin::Status;
use ratatui::crossterm::event::{self, Event};

use super::draw::draw;
use super::view::ThinView;
use crate::terminal::text_of;

/// How long the view waits for a key before it looks for a report.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Shows the view on the terminal until a key ends thinning, or until there are no more reports. Returns
/// whether a key has ended it.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(reports: &Receiver<Status>, mut view: ThinView) -> io::Result<bool> {
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, reports, &mut view);
    ratatui::restore();
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    reports: &Receiver<Status>,
    view: &mut ThinView,
) -> io::Result<bool> {
    loop {
        terminal.draw(|frame| draw(frame, view))?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
            && view.handle(key)
        {
            return Ok(true);
        }
        loop {
            match reports.try_recv() {
                Ok(status) => view.take(status),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }
}

/// The view as text, without a terminal.
///
/// # Errors
/// The picture cannot be made.
pub fn text(view: &ThinView, width: u16, height: u16) -> io::Result<String> {
    text_of(width, height, |frame| draw(frame, view))
}
