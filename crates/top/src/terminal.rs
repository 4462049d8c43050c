//! The loop that joins a terminal, a proxy and the view.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use midspan_proxy::summary::{Query, Summary};
use midspan_relay::observation::SessionReport;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::{Frame, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::draw::draw;
use crate::view::{Action, View};

/// How long the view waits for a key before it looks for an answer.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// Largest text for the clipboard: terminals ignore larger ones.
const CLIPBOARD_LIMIT: usize = 64 << 10;

/// The proxy, as the view uses it. Errors are sentences for the operator.
pub trait Operator: Send + 'static {
    /// The summary.
    ///
    /// # Errors
    /// The proxy does not answer.
    fn summary(&mut self, query: &Query) -> Result<Summary, String>;

    /// The report of a session; `None` if it has ended.
    ///
    /// # Errors
    /// The proxy does not answer.
    fn session(&mut self, id: u64) -> Result<Option<SessionReport>, String>;

    /// Carries an action out; returns what has happened.
    ///
    /// # Errors
    /// It was not carried out.
    fn act(&mut self, action: &Action) -> Result<Acted, String>;
}

/// What an action has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acted {
    /// A sentence for the operator.
    pub said: String,
    /// A text for the clipboard.
    pub copied: Option<String>,
}

impl From<String> for Acted {
    fn from(said: String) -> Self {
        Self { said, copied: None }
    }
}

/// A request of the view.
enum Question {
    Summary(Query, Option<u64>),
    Act(Action),
}

/// What it gets.
enum Answer {
    Summary(Box<Result<(Summary, Option<SessionReport>), String>>, Query),
    Acted(Result<Acted, String>),
}

/// The first signal that came to end the program; 0 for none.
type Signal = Arc<AtomicUsize>;

/// Shows the view on the terminal until a key or a signal ends it. A new summary is requested when `interval`
/// has passed after the last answer, and at once after a key that changes the query. After a signal, the
/// terminal is restored and the process ends as it would without a handler.
///
/// # Errors
/// The terminal cannot be used, a signal cannot be handled, or a thread cannot be started.
pub fn run(operator: impl Operator, mut view: View, interval: Duration) -> io::Result<()> {
    let signal = Signal::default();
    // Before the terminal is changed.
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let value = usize::try_from(number).unwrap_or_default();
        flag::register_usize(number, Arc::clone(&signal), value)?;
    }
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, operator, &mut view, interval, &signal);
    ratatui::restore();
    // This shows the cursor.
    drop(terminal);
    if let Ok(number @ 1..) = i32::try_from(signal.load(Ordering::Relaxed)) {
        low_level::emulate_default_handler(number)?;
    }
    result
}

/// Offers a text to the terminal's clipboard (OSC 52). Terminals that do not permit this ignore it.
fn offer_to_clipboard(text: &str) -> io::Result<()> {
    if text.len() > CLIPBOARD_LIMIT {
        return Ok(());
    }
    let mut output = io::stdout().lock();
    write!(output, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
    output.flush()
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    operator: impl Operator,
    view: &mut View,
    interval: Duration,
    signal: &Signal,
) -> io::Result<()> {
    let (questions, asked) = sync_channel(4);
    let (reply, answers) = sync_channel(4);
    // The proxy may take long to answer; keys must not wait for it.
    std::thread::Builder::new()
        .name("questions".to_owned())
        .spawn(move || answer(operator, &asked, &reply))?;
    let mut next = Instant::now();
    let mut is_waiting = false;
    while signal.load(Ordering::Relaxed) == 0 {
        terminal.draw(|frame| draw(frame, view))?;
        if !is_waiting && Instant::now() >= next {
            let question = Question::Summary(view.query(), view.session);
            is_waiting = questions.try_send(question).is_ok();
        }
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
        {
            match view.handle(key) {
                Some(Action::Quit) => return Ok(()),
                Some(Action::Refresh) => next = Instant::now(),
                Some(action) => {
                    let is_sent = questions.try_send(Question::Act(action)).is_ok();
                    let said = if is_sent {
                        "…"
                    } else {
                        "not done: Midspan is slow to answer"
                    };
                    view.message = Some(said.to_owned());
                }
                None => {}
            }
        }
        loop {
            match answers.try_recv() {
                Ok(Answer::Summary(result, query)) => {
                    is_waiting = false;
                    next = Instant::now() + interval;
                    // An answer to a question of before the last key has other rows.
                    if query != view.query() {
                        next = Instant::now();
                    } else {
                        take(view, *result);
                    }
                }
                Ok(Answer::Acted(Ok(Acted { said, copied }))) => {
                    view.message = Some(said);
                    if let Some(copied) = copied {
                        offer_to_clipboard(&copied)?;
                    }
                }
                Ok(Answer::Acted(Err(said))) => view.message = Some(said),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
    Ok(())
}

fn take(view: &mut View, result: Result<(Summary, Option<SessionReport>), String>) {
    match result {
        Ok((summary, report)) => {
            view.take(summary);
            view.report = report;
        }
        Err(said) => view.failure = Some(said),
    }
}

fn answer(mut operator: impl Operator, asked: &Receiver<Question>, reply: &SyncSender<Answer>) {
    while let Ok(question) = asked.recv() {
        let answer = match question {
            Question::Summary(query, session) => {
                let result = operator.summary(&query).and_then(|summary| {
                    let report = session.map(|id| operator.session(id)).transpose()?;
                    Ok((summary, report.flatten()))
                });
                Answer::Summary(Box::new(result), query)
            }
            Question::Act(action) => Answer::Acted(operator.act(&action)),
        };
        if reply.send(answer).is_err() {
            return;
        }
    }
}

/// The view as text, without a terminal.
///
/// # Errors
/// The picture cannot be made.
pub fn text(view: &View, width: u16, height: u16) -> io::Result<String> {
    text_of(width, height, |frame| draw(frame, view))
}

/// What is drawn, as text.
pub(crate) fn text_of(
    width: u16,
    height: u16,
    draw: impl FnOnce(&mut Frame<'_>),
) -> io::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(io::Error::other)?;
    terminal.draw(draw).map_err(io::Error::other)?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in 0..height {
        let mut cells = String::new();
        for column in 0..width {
            if let Some(cell) = buffer.cell((column, line)) {
                cells.push_str(cell.symbol());
            }
        }
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// The columns of the terminal, if there is one.
#[must_use]
pub fn width() -> Option<u16> {
    ratatui::crossterm::terminal::size()
        .ok()
        .map(|(columns, _)| columns)
}
