use super::*;
use midspan_proxy::summary::PrefixRow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A view with two answers, two seconds apart.
fn view(text: &str) -> View {
    let mut summary: Summary = serde_json::from_str(text).unwrap();
    let mut view = View::default();
    view.take(summary.clone());
    summary.time_seconds += 2.0;
    summary.totals.opened += 82;
    summary.totals.rate_to_client_bits_per_second = Some(93_000_000);
    *summary
        .totals
        .untouched
        .as_mut()
        .unwrap()
        .get_mut("policy")
        .unwrap() += 8;
    view.take(summary);
    view
}

fn clients() -> View {
    view(include_str!("../../tests/clients.json"))
}

fn sessions() -> View {
    let mut view = view(include_str!("../../tests/sessions.json"));
    view.rows = Rows::Sessions;
    view
}

fn picture(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn clients_on_a_small_terminal() {
    insta::assert_snapshot!(picture(&clients(), 80, 24));
}

#[test]
fn clients_on_a_wide_terminal() {
    insta::assert_snapshot!(picture(&clients(), 120, 14));
}

#[test]
fn sessions_of_one_client() {
    let mut view = sessions();
    view.client = Some("192.168.10.23".parse().unwrap());
    insta::assert_snapshot!(picture(&view, 80, 24));
}

#[test]
fn listeners_with_and_without_sessions() {
    let mut view = view(include_str!("../../tests/listeners.json"));
    view.rows = Rows::Listeners;
    insta::assert_snapshot!("listeners_small", picture(&view, 80, 12));
    insta::assert_snapshot!("listeners", picture(&view, 120, 12));
}

#[test]
fn the_selected_listener_shows_its_servers() {
    let mut view = view(include_str!("../../tests/listeners.json"));
    view.rows = Rows::Listeners;
    let server = |server: &str, state: &str, failed_checks| ServerRow {
        server: server.to_owned(),
        state: state.to_owned(),
        sessions: 12,
        failed_checks,
    };
    let mut summary = view.summary.clone().unwrap();
    summary.listeners[0].servers = vec![
        server("a.example:80", "up", 0),
        server("192.0.2.1:80", "down", 3),
    ];
    view.take(summary);
    let shown = "2 listeners   servers: a.example:80 up 12, 192.0.2.1:80 down 12 (3 checks failed)";
    assert!(picture(&view, 120, 12).contains(shown));
}

#[test]
fn sessions_that_have_ended() {
    let mut view = view(include_str!("../../tests/ended.json"));
    view.rows = Rows::Ended;
    insta::assert_snapshot!("ended_small", picture(&view, 80, 12));
    insta::assert_snapshot!("ended", picture(&view, 120, 12));
}

#[test]
fn one_session() {
    let mut view = sessions();
    view.session = Some(88121);
    let report = include_str!("../../tests/session.json");
    view.report = Some(serde_json::from_str(report).unwrap());
    insta::assert_snapshot!("one_session_small", picture(&view, 80, 24));
    insta::assert_snapshot!("one_session", picture(&view, 120, 24));
    insta::assert_snapshot!("one_session_wide", picture(&view, 150, 24));
}

/// Old numbers must not look like those of now.
#[test]
fn no_answer_is_seen_until_there_is_one() {
    let mut view = clients();
    view.failure = Some("no Midspan answers".to_owned());
    let last = |view: &View| {
        picture(view, 80, 24)
            .trim_end()
            .lines()
            .last()
            .unwrap()
            .to_owned()
    };
    assert!(last(&view).contains("no Midspan answers"));
    view.take(view.summary.clone().unwrap());
    assert!(last(&view).contains("[q]"));
}

#[test]
fn what_is_left_alone() {
    let mut view = clients();
    view.rows = Rows::Untouched;
    insta::assert_snapshot!(picture(&view, 80, 12));
}

#[test]
fn the_state_is_seen() {
    let mut view = clients();
    let state = &mut view.summary.as_mut().unwrap().state;
    state.state = "passing".to_owned();
    state.passing = vec!["firewall".to_owned(), "bypass".to_owned()];
    state.bypassed_prefixes = 2;
    let first = picture(&view, 100, 24).lines().next().unwrap().to_owned();
    assert!(
        first.contains("PASSING") && first.contains("firewall, bypass"),
        "{first}"
    );
}

#[test]
fn drained_clients_are_seen_with_the_sessions_that_are_left() {
    let mut view = clients();
    let row = |clients: &str, sessions| DrainedClients {
        listener: "web".to_owned(),
        clients: clients.to_owned(),
        sessions: Some(sessions),
    };
    let mut first = |rows| {
        view.summary.as_mut().unwrap().drained_clients = rows;
        picture(&view, 140, 24).lines().next().unwrap().to_owned()
    };
    assert!(!first(Vec::new()).contains("drained"));
    let one = first(vec![row("192.0.2.0/24", 17)]);
    assert!(
        one.contains("drained at web: 192.0.2.0/24 (17 left)"),
        "{one}"
    );
    let two = first(vec![row("192.0.2.0/24", 17), row("198.51.100.0/24", 3)]);
    assert!(two.contains("drained: 2 prefixes (20 left)"), "{two}");
}

#[test]
fn client_prefixes_with_their_rates() {
    let mut view = clients();
    view.rows = Rows::Prefixes;
    let lines = |view: &View| picture(view, 80, 12);
    assert!(lines(&view).contains("no rate of clients is limited"));
    view.summary.as_mut().unwrap().prefixes = vec![PrefixRow {
        prefix: "2001:db8:1234:5678::/64".to_owned(),
        connections_per_second: 1234,
        rate_bits_per_second: 16_000_000,
        refused: 77,
        unused_seconds: 3.0,
    }];
    let text = lines(&view);
    for part in [
        "2001:db8:1234:5678::/64",
        "1,234",
        "77",
        "REFUSED",
        "1 client prefixes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn no_size_is_too_small() {
    for view in [View::default(), clients(), sessions()] {
        for (width, height) in [(1, 1), (10, 3), (80, 6), (300, 100)] {
            picture(&view, width, height);
        }
    }
    let mut help = View::default();
    help.handle(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    let text = picture(&help, 80, 24);
    assert!(
        text.contains("client's window") && text.contains("any key"),
        "{text}"
    );
}

/// Without colours, no cell has one.
#[test]
fn colours_can_be_left_out() {
    let coloured = |has_colour| {
        let mut view = clients();
        view.has_colour = has_colour;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        let cells = terminal.backend().buffer().content().to_vec();
        cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true));
    assert!(!coloured(false));
}

/// 50,000 rows: only those that fit are made. Prints its time (`--nocapture`).
#[test]
fn many_rows() {
    let mut view = clients();
    let summary = view.summary.as_mut().unwrap();
    let row = summary.clients[0].clone();
    let rows = (0..50_000_u32).map(|number| {
        let mut row = row.clone();
        row.client = std::net::Ipv4Addr::from(0x0a00_0000 + number).into();
        row
    });
    summary.clients = rows.collect();
    view.handle(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let summary = view.summary.clone().unwrap();
    let start = std::time::Instant::now();
    view.take(summary);
    let text = picture(&view, 80, 24);
    println!("50,000 rows: {:?}", start.elapsed());
    assert!(text.contains("10.0.195.79"), "{text}");
}
