//! Plain HTTP requests: each request goes to its own server, and no data behind it reaches this
//! server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use midspan_linux::tcp;
use rustix::process::Signal;
use socket2::SockRef;

use super::support::*;

const OTHER_SERVER: &str = "127.0.0.1:9093";

/// A server that gets a new connection for each request.
struct Server(TcpListener);

impl Server {
    fn at(address: &str) -> Self {
        Self(TcpListener::bind(address).unwrap())
    }

    /// Accepts the next connection; returns the connection and the head of its request.
    fn request(&self) -> (BufReader<TcpStream>, String) {
        let mut reader = BufReader::new(bounded(self.0.accept().unwrap().0));
        let head = head(&mut reader);
        (reader, head)
    }

    /// Answers the next request and leaves its connection open.
    fn answer(&self, answer: &[u8]) -> (BufReader<TcpStream>, String) {
        let (reader, head) = self.request();
        reader.get_ref().write_all(answer).unwrap();
        (reader, head)
    }
}

fn head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let count = reader.read_line(&mut head).unwrap();
        assert_ne!(count, 0, "an end after {head:?}");
    }
    head
}

/// A client with its connection to the proxy.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new() -> Self {
        Self(BufReader::new(connect(HTTP)))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_ref().write_all(bytes.as_ref()).unwrap();
    }

    fn get(&mut self, server: &str, path: &str) {
        self.send(format!("GET http://{server}{path} HTTP/1.1\r\n\r\n"));
    }

    fn head(&mut self) -> String {
        head(&mut self.0)
    }

    /// The head and the body of an answer with a `Content-Length`.
    fn answer(&mut self) -> (String, Vec<u8>) {
        let head = self.head();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.unwrap_or_else(|| panic!("{head}")).parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head, body)
    }

    fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn is_reset(&mut self) -> bool {
        let end = self.0.read_to_end(&mut Vec::new());
        end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }
}

/// Checks that a server receives no data behind its request, only a FIN or a reset.
fn nothing_follows(mut server: BufReader<TcpStream>) {
    let mut bytes = Vec::new();
    let _ = server.read_to_end(&mut bytes);
    assert_eq!(String::from_utf8_lossy(&bytes), "");
}

fn with_length(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[kernel_test]
fn each_request_goes_to_its_server() {
    let _proxy = Midspan::here(&each_mode("users = { alice = \"secret\" }"));
    let (server, other) = (Server::at(SERVER), Server::at(OTHER_SERVER));
    let mut client = Client::new();
    let ask = |client: &mut Client, to: &str, token: &str| {
        client.send(format!(
            "GET http://{to}/ HTTP/1.1\r\nCookie: of-{to}\r\nProxy-Authorization: Basic {token}\r\n\r\n"
        ));
    };
    // alice:secret
    let right = "YWxpY2U6c2VjcmV0";
    ask(&mut client, SERVER, right);
    // This server also sends an answer to a request that it never received.
    let two = [with_length("first"), with_length("forged")].concat();
    let (first, head) = server.answer(&two);
    assert!(head.contains(&format!("Cookie: of-{SERVER}\r\n")));
    assert!(!head.contains("Proxy-") && !head.contains(right), "{head}");
    assert_eq!(client.answer().1, b"first");
    ask(&mut client, OTHER_SERVER, right);
    let (second, head) = other.answer(&with_length("second"));
    assert!(head.contains(&format!("Cookie: of-{OTHER_SERVER}\r\n")));
    assert!(!head.contains("Proxy-") && !head.contains(right), "{head}");
    assert_eq!(client.answer().1, b"second");
    nothing_follows(first);
    // Each request is authenticated.
    ask(&mut client, SERVER, "YWxpY2U6d3Jvbmc=");
    assert!(client.head().starts_with("HTTP/1.1 407 "));
    nothing_follows(second);
    assert_refusals("unauthenticated", 1.0);
}

#[kernel_test]
fn pipelined_requests_are_answered_in_turn() {
    let proxy = Midspan::here(&each_mode(""));
    let (server, other) = (Server::at(SERVER), Server::at(OTHER_SERVER));
    let mut client = Client::new();
    client.send(format!(
        "GET http://{SERVER}/1 HTTP/1.1\r\n\r\n\
         POST http://{OTHER_SERVER}/2 HTTP/1.1\r\nContent-Length: 7\r\n\r\nGET / H\
         POST http://{SERVER}/3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
         6;x=y\r\nGET / \r\n0\r\n\r\n\
         GET http://{OTHER_SERVER}/4 HTTP/1.1\r\nConnection: close\r\n\r\n"
    ));
    let (first, head) = server.answer(&with_length("one"));
    assert!(head.starts_with("GET /1 "));
    assert_eq!(client.answer().1, b"one");
    let (mut second, head) = other.answer(&with_length("two"));
    assert!(head.starts_with("POST /2 "));
    assert_eq!(exactly_of::<7>(&mut second), *b"GET / H");
    assert_eq!(client.answer().1, b"two");
    let (mut third, head) = server.request();
    assert!(head.starts_with("POST /3 "));
    assert_eq!(
        exactly_of::<20>(&mut third),
        *b"6;x=y\r\nGET / \r\n0\r\n\r\n"
    );
    third.get_ref().write_all(&with_length("three")).unwrap();
    assert_eq!(client.answer().1, b"three");
    let (fourth, head) = other.answer(&with_length("four"));
    assert!(head.starts_with("GET /4 "));
    let (head, body) = client.answer();
    assert!(head.contains("Connection: close\r\n"));
    assert_eq!(body, b"four");
    assert_eq!(client.rest(), b"");
    for server in [first, second, third, fourth] {
        nothing_follows(server);
    }
    drop(client);
    wait_until("logged", || proxy.ended_sessions().len() == 4);
    wait_until("forgotten", || metric("midspan_negotiations") == 0.0);
    let closed = "midspan_sessions_ended_total{listener=\"http\",how=\"closed\"}";
    assert_eq!(metric(closed), 4.0);
}

fn exactly_of<const N: usize>(reader: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).unwrap();
    bytes
}

/// Bytes that depend on their position.
fn pattern(length: usize) -> Vec<u8> {
    let number = |place: usize| place as u64;
    (0..length)
        .map(|place| (number(place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn in_chunks(body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut rest, mut chunks) = (body, Vec::new());
    for size in sizes.iter().cycle() {
        let (chunk, after) = rest.split_at(rest.len().min(*size));
        chunks.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        chunks.extend(chunk);
        chunks.extend(b"\r\n");
        rest = after;
        if chunk.is_empty() {
            return chunks;
        }
    }
    chunks
}

#[kernel_test]
fn large_bodies_pass_both_ways() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let body = pattern(5 << 20);
    let spliced = || metric("midspan_moved_bytes_total{method=\"spliced\"}");
    let chunked: [&[usize]; 3] = [&[1, 70, 4096], &[100_000], &[3 << 20, 17]];
    let framings = chunked
        .iter()
        .map(|sizes| ("Transfer-Encoding: chunked", in_chunks(&body, sizes)));
    let length = format!("Content-Length: {}", body.len());
    let mut client = Client::new();
    for (field, sent) in framings.chain([(&*length, body.clone())]) {
        // The body in both directions: as a request, and as an answer.
        client.send(format!("PUT http://{SERVER}/ HTTP/1.1\r\n{field}\r\n\r\n"));
        std::thread::scope(|scope| {
            let sender = client.0.get_ref().try_clone().unwrap();
            let next = format!("GET http://{SERVER}/next HTTP/1.1\r\n\r\n");
            let upload = scope.spawn({
                let sent = &sent;
                move || {
                    (&sender).write_all(sent).unwrap();
                    // The client sends the next request without waiting for the answer.
                    (&sender).write_all(next.as_bytes()).unwrap();
                }
            });
            let (mut first, head) = server.request();
            assert!(head.contains(&format!("{field}\r\n")), "{head}");
            let mut received = vec![0; sent.len()];
            first.read_exact(&mut received).unwrap();
            assert!(received == sent, "the server got other bytes");
            upload.join().unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
            let download = scope.spawn({
                let sent = &sent;
                move || {
                    first.get_ref().write_all(answer.as_bytes()).unwrap();
                    first.get_ref().write_all(sent).unwrap();
                    nothing_follows(first);
                }
            });
            assert!(client.head().contains(&format!("{field}\r\n")));
            let mut received = vec![0; sent.len()];
            client.0.read_exact(&mut received).unwrap();
            assert!(received == sent, "the client got other bytes");
            download.join().unwrap();
        });
        let (_, head) = server.answer(&with_length("next"));
        assert!(head.starts_with("GET /next "));
        assert_eq!(client.answer().1, b"next");
    }
    // Bodies with a length and large chunks are spliced; if there is no pipe, fewer bytes are.
    assert!(spliced() > 10_000_000.0, "{} bytes spliced", spliced());
}

#[kernel_test]
fn interim_answers_pass() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let mut client = Client::new();
    client.send(format!(
        "POST http://{SERVER}/ HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    ));
    let (mut asked, head) = server.request();
    assert!(head.contains("Expect: 100-continue\r\n"));
    for _ in 0..2 {
        asked
            .get_ref()
            .write_all(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
            .unwrap();
        assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n");
    }
    client.send("body");
    assert_eq!(exactly_of::<4>(&mut asked), *b"body");
    asked.get_ref().write_all(&with_length("yes")).unwrap();
    assert_eq!(client.answer().1, b"yes");
    client.get(SERVER, "/next");
    server.answer(&with_length("next"));
    assert_eq!(client.answer().1, b"next");
}

/// The server answers before the end of the request: the connection cannot be reused.
#[kernel_test]
fn an_early_answer_ends_the_connection() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    for with_reset in [false, true] {
        let mut client = Client::new();
        client.send(format!(
            "POST http://{SERVER}/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nbegin"
        ));
        let (asked, _) = server.answer(b"HTTP/1.1 413 Large\r\nContent-Length: 2\r\n\r\nno");
        let (head, body) = client.answer();
        assert!(head.contains("Connection: close\r\n"), "{head}");
        assert_eq!(body, b"no");
        // The server's FIN or reset does not remove the answer.
        if with_reset {
            tcp::set_reset_on_close(asked.get_ref(), true).unwrap();
        }
        drop(asked);
        assert_eq!(client.rest(), b"");
    }
}

#[kernel_test]
fn answers_without_a_body_have_none() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let mut client = Client::new();
    for (method, status) in [("HEAD", "200 OK"), ("GET", "304 Same"), ("GET", "204 None")] {
        client.send(format!("{method} http://{SERVER}/ HTTP/1.1\r\n\r\n"));
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 50\r\n\r\n");
        let forged = [answer.into_bytes(), with_length("forged")].concat();
        server.answer(&forged);
        assert!(client.head().starts_with(&format!("HTTP/1.1 {status}\r\n")));
    }
    client.get(SERVER, "/");
    server.answer(&with_length("true"));
    assert_eq!(client.answer().1, b"true");
}

/// However the server's connection ends, an incomplete answer does not look complete.
#[kernel_test]
fn a_server_that_ends_early_is_noticed() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let until_end = "HTTP/1.1 200 OK\r\n\r\nabc";
    let too_short = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
    let half_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc";
    for (answer, with_reset, ends) in [
        (until_end, false, "abc"),
        (until_end, true, "reset"),
        (too_short, false, "abc"),
        (too_short, true, "reset"),
        (half_chunk, false, "5\r\nabc"),
        (half_chunk, true, "reset"),
        ("", false, "502"),
        ("", true, "502"),
        ("HTTP/1.1 200 OK\r\nCont", false, "502"),
        ("220 ftp.example ready\r\n\r\n", false, "502"),
        (
            "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n",
            false,
            "502",
        ),
    ] {
        let mut client = Client::new();
        client.get(SERVER, "/");
        let (asked, _) = server.answer(answer.as_bytes());
        let head = match ends {
            "502" => None,
            _ => Some(client.head()),
        };
        if with_reset {
            tcp::set_reset_on_close(asked.get_ref(), true).unwrap();
        }
        drop(asked);
        match head {
            None => {
                let (head, body) = client.answer();
                assert!(head.starts_with("HTTP/1.1 502 "), "{answer}: {head}");
                assert!(head.contains("Connection: close\r\n"));
                assert!(!body.is_empty());
                assert_eq!(client.rest(), b"");
            }
            Some(_) if ends == "reset" => assert!(client.is_reset(), "{answer}"),
            Some(_) => assert_eq!(client.rest(), ends.as_bytes(), "{answer}"),
        }
    }
}

#[kernel_test]
fn broken_chunks_are_refused() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let head = format!("POST http://{SERVER}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    // Refused at once: the proxy does not connect to the server.
    let mut client = Client::new();
    client.send(format!("{head}5\nhello\r\n0\r\n\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 400 "));
    assert_refusals("malformed", 1.0);
    // Refused later: the server's connection is reset, so that the server does not treat the
    // incomplete data as a request.
    let mut client = Client::new();
    client.send(&head);
    let (asked, _) = server.request();
    client.send("5\r\nhello\r\n0\r\nX: y\n\nGET / HTTP/1.1\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 400 "));
    is_reset_after(asked.into_inner(), b"5\r\nhello\r\n0\r\n");
}

#[kernel_test]
fn a_web_socket_becomes_a_tunnel() {
    let _proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    let mut client = Client::new();
    client.send(format!(
        "GET http://{SERVER}/chat HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ));
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let (mut asked, head) = server.answer(format!("{switch}hello").as_bytes());
    assert!(
        head.contains("Upgrade: websocket\r\nConnection: Upgrade\r\n"),
        "{head}"
    );
    assert_eq!(client.head(), switch);
    assert_eq!(exactly_of::<5>(&mut client.0), *b"hello");
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(exactly_of::<18>(&mut asked), *b"GET / HTTP/1.1\r\n\r\n");
    // From here on, the connection ends like any session.
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(asked.read(&mut [0]).unwrap(), 0);
    asked.get_ref().write_all(b"last").unwrap();
    drop(asked);
    assert_eq!(client.rest(), b"last");
}

#[kernel_test]
fn clients_that_end() {
    let proxy = Midspan::here(&each_mode(""));
    let server = Server::at(SERVER);
    // The client ends its data after the request. The server sees the FIN, and the client gets its
    // answer.
    let mut client = Client::new();
    client.get(SERVER, "/");
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let (mut asked, _) = server.request();
    assert_eq!(asked.read(&mut [0]).unwrap(), 0);
    asked.get_ref().write_all(&with_length("yes")).unwrap();
    assert_eq!(client.answer().1, b"yes");
    assert_eq!(client.rest(), b"");
    drop(asked);
    // The client ends its data in the middle of the request's body.
    let mut client = Client::new();
    client.send(format!(
        "POST http://{SERVER}/ HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"
    ));
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let (mut asked, _) = server.request();
    let mut body = Vec::new();
    asked.read_to_end(&mut body).unwrap();
    assert_eq!(body, b"abc");
    asked
        .get_ref()
        .write_all(b"HTTP/1.1 400 Short\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert!(client.head().starts_with("HTTP/1.1 400 "));
    assert_eq!(client.rest(), b"");
    drop(asked);
    // The client resets its connection in the middle of the answer.
    let mut client = Client::new();
    client.get(SERVER, "/");
    let (asked, _) = server.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc");
    client.head();
    tcp::set_reset_on_close(client.0.get_ref(), true).unwrap();
    drop(client);
    is_reset_after(asked.into_inner(), b"");
    wait_until("logged", || proxy.ended_sessions().len() == 3);
    let how: Vec<_> = proxy
        .ended_sessions()
        .iter()
        .map(|line| line["ended"].clone())
        .collect();
    assert_eq!(how, ["closed", "closed", "reset_by_client"]);
}

#[kernel_test]
fn idle_clients_are_closed_in_order() {
    let settings = |more: &str| each_mode(&format!("negotiation_timeout = \"2 s\"\n{more}"));
    let proxy = Midspan::here(&settings(""));
    let server = Server::at(SERVER);
    let idle = || {
        let mut client = Client::new();
        client.get(SERVER, "/");
        server.answer(&with_length("yes"));
        assert_eq!(client.answer().1, b"yes");
        client
    };
    // Idle clients are closed after a time, which starts again with each request.
    let mut client = idle();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1200));
        client.get(SERVER, "/");
        server.answer(&with_length("again"));
        assert_eq!(client.answer().1, b"again");
    }
    assert_eq!(client.rest(), b"");
    // Idle clients close their connections themselves.
    drop(idle());
    wait_until("forgotten", || metric("midspan_negotiations") == 0.0);
    // Idle clients are closed when their listener changes, because its access rules may have
    // changed.
    let mut client = idle();
    proxy.reload_by_signal(&settings("users = { alice = \"secret\" }"));
    assert_eq!(client.rest(), b"");
    for reason in ["silent", "gone", "malformed"] {
        assert_eq!(refusals(reason), 0.0, "{reason}");
    }
}

/// A proxy that ends closes idle clients at once. Other clients learn it from a header of their
/// answer.
#[kernel_test]
fn draining_closes_idle_clients() {
    // With one thread, both clients meet the end at the same time.
    let text = each_mode("")
        .replace("drain_timeout = \"0 s\"", "drain_timeout = \"20 s\"")
        .replace("threads = 2", "threads = 1");
    let proxy = Midspan::here(&text);
    let server = Server::at(SERVER);
    let (mut idle, mut busy) = (Client::new(), Client::new());
    idle.get(SERVER, "/");
    server.answer(&with_length("yes"));
    assert_eq!(idle.answer().1, b"yes");
    busy.get(SERVER, "/");
    let (asked, _) = server.request();
    proxy.signal(Signal::TERM);
    assert_eq!(idle.rest(), b"");
    asked.get_ref().write_all(&with_length("last")).unwrap();
    let (head, body) = busy.answer();
    assert!(head.contains("Connection: close\r\n"), "{head}");
    assert_eq!(body, b"last");
    assert_eq!(busy.rest(), b"");
}

/// Data that the server cannot yet receive is not lost, however long this lasts.
#[kernel_test]
fn a_slow_server_gets_all() {
    let more = "negotiation_timeout = \"1 s\"\nserver_leg = { send_buffer = \"4 KiB\" }";
    let _proxy = Midspan::here(&each_mode(more));
    let server = Server::at(SERVER);
    SockRef::from(&server.0).set_recv_buffer_size(2048).unwrap();
    let fields: String = (0..110)
        .map(|number| format!("X-{number}: {}\r\n", "y".repeat(120)))
        .collect();
    let body = "0123456\n".repeat(2000);
    let mut client = Client::new();
    client.send(format!(
        "POST http://{SERVER}/ HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    ));
    let asked = server.0.accept().unwrap().0;
    std::thread::sleep(Duration::from_millis(2500));
    client.send(&body);
    let mut asked = BufReader::new(bounded(asked));
    let head = head(&mut asked);
    assert!(head.contains(&fields), "fields are lost");
    let mut received = vec![0; body.len()];
    asked.read_exact(&mut received).unwrap();
    assert!(received == body.as_bytes());
    asked.get_ref().write_all(&with_length("yes")).unwrap();
    assert_eq!(client.answer().1, b"yes");
}

#[kernel_test]
fn curl_uses_its_connection_again() {
    if !has("curl") {
        return skip("there is no curl");
    }
    super::serving::web();
    let _proxy = Midspan::here(&each_mode("users = { alice = \"secret\" }"));
    let proxy = format!("http://alice:secret@{HTTP}");
    let (code, text) = curl(&[
        "--proxy",
        &proxy,
        "-w",
        " %{num_connects}\n",
        "http://127.0.0.1:9091/1",
        "http://[::1]:9091/2",
        "http://127.0.0.1:9092/3",
    ]);
    let expected = "GET /1 HTTP/1.1 1\nGET /2 HTTP/1.1 0\nGET /3 HTTP/1.1 0\n";
    assert_eq!((code, text.as_str()), (0, expected));
    // A request that waits for "100 Continue", and parallel requests.
    let body = "x".repeat(2_000_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &body).unwrap();
    let data = format!("@{}", file.path().display());
    let url = "http://127.0.0.1:9091/";
    let expect = [
        "--proxy",
        &proxy,
        "-H",
        "Expect: 100-continue",
        "--data-binary",
        &data,
        url,
    ];
    assert_eq!(curl(&expect), (0, "POST / HTTP/1.1".to_owned()));
    let (code, text) = curl(&["-Z", "--proxy", &proxy, "http://127.0.0.1:9091/[1-30]"]);
    assert_eq!((code, text.matches("GET /").count()), (0, 30));
}
