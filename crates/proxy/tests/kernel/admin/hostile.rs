//! Hostile clients of the admin listener, and a log without a reader.

use midspan_testbed::program::Launch;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::support::*;

#[kernel_test]
fn requests_disturb_nothing() {
    let _proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let (mut client, mut server) = session(&listener);
    let mut hostile: Vec<TcpStream> = Vec::new();
    let huge = [
        b"GET /metrics HTTP/1.1\r\nX: ".as_slice(),
        &vec![b'x'; 1 << 20],
    ]
    .concat();
    let many = format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(10_000));
    for number in 0..500 {
        let Ok(mut stream) = TcpStream::connect(ADMIN) else {
            continue;
        };
        stream.set_nonblocking(true).unwrap();
        // Data that does not fit into the kernel's buffers is not sent; the rest is hostile enough.
        let _ = match number % 6 {
            0 => stream.write(&[0xff; 4096]),
            1 => stream.write(b"GET /sessions?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            2 => stream.write(&huge),
            3 => stream.write(many.as_bytes()),
            4 => stream.write(b"GET /met"),
            _ => stream.write(b""),
        };
        hostile.push(stream);
        if number % 10 == 0 {
            echoes(&mut client, &mut server);
            let (other_client, other_server) = session(&listener);
            close(other_client, other_server);
        }
    }
    // Sessions work while most of the hostile clients are still connected.
    for _ in 0..100 {
        echoes(&mut client, &mut server);
    }
    // The admin listener closes idle clients after a short time; then it answers others again.
    let answers = || {
        let mut stream = connect(ADMIN);
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200")
    };
    drop(hostile);
    wait_until("answering again", answers);
    echoes(&mut client, &mut server);
    close(client, server);
}

/// The proxy's log has no reader.
#[kernel_test]
fn a_stuck_log_stops_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    let _proxy = Midspan::of(
        Launch::this_program("run")
            .configuration(CONFIGURATION)
            .log_to(writer),
    );
    let listener = TcpListener::bind(SERVER).unwrap();
    // A line has about 600 bytes, the pipe holds 64 KiB, the queue 4096 lines.
    for _ in 0..400 {
        let (client, server) = session(&listener);
        close(client, server);
    }
    let ended = "midspan_sessions_ended_total{listener=\"web\",how=\"closed\"}";
    wait_until("all counted", || metric(ended) == 400.0);
    assert_eq!(metric("midspan_session_lines_lost_total"), 0.0);
    drop(reader);
}
