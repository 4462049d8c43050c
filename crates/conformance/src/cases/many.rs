//! Many sessions, and more than the proxy has descriptors for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Error, Played, Stop};
use crate::network::Target;
use crate::proxies::Conditions;
use crate::stage::{Listener, Stage};
use crate::transcript::{Event, Log};

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("slow readers, then close: downloads", |stage| {
        slow_readers(stage, false)
    })
    .heavy(),
    Case::new("slow readers, then close: uploads", |stage| {
        slow_readers(stage, true)
    })
    .heavy(),
    Case::new("five thousand sessions at once", five_thousand).heavy(),
    Case::new("out of descriptors", out_of_descriptors)
        .under(Conditions {
            few_descriptors: true,
            few_pipes: false,
            keepalive: false,
        })
        .heavy(),
    Case::new("out of pipes", |stage| slow_readers(stage, false))
        .under(Conditions {
            few_descriptors: false,
            few_pipes: true,
            keepalive: false,
        })
        .heavy(),
];

const FILE: u64 = 3_000_000;

/// The receiver reads in at least this many steps, with a pause after each.
const STEPS: u64 = 8;

/// Sixty transfers at a time. Each sender closes its socket as soon as the kernel has all data;
/// each receiver reads in small steps.
fn slow_readers(stage: &mut Stage<'_>, upload: bool) -> Played {
    let count = stage.amount(60, 16);
    let listener = stage.listen(Target::Open)?;
    let mut pairs = Vec::new();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (client, server) = (Log::default(), Log::default());
        pairs.push(stage.pair_with(&listener, &client, &server)?);
        near.push(client);
        far.push(server);
    }
    let all_there = Barrier::new(count);
    std::thread::scope(|scope| {
        for (client, server) in pairs {
            let (sends, receives) = if upload {
                (client, server)
            } else {
                (server, client)
            };
            scope.spawn(|| send_and_close(sends));
            scope.spawn(|| {
                all_there.wait();
                std::thread::sleep(WHILE);
                // The receiver's log contains any failure.
                let _ = receive_slowly(receives);
            });
        }
    });
    stage.client_log().add_many(&near);
    stage.server_log().add_many(&far);
    Ok(())
}

fn send_and_close(mut end: End) {
    if end.send(FILE).is_ok() {
        end.close();
    }
}

fn receive_slowly(mut end: End) -> Played {
    for _ in 0..STEPS {
        end.receive(FILE / STEPS)?;
        std::thread::sleep(WHILE / 10);
    }
    end.receive_to_end()
}

/// All connections are open before the first is used, and all are used before the first is closed.
fn five_thousand(stage: &mut Stage<'_>) -> Played {
    let count = stage.amount(5000, 500);
    let listener = stage.listen(Target::Open)?;
    let mut pairs = Vec::new();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (client, server) = (Log::default(), Log::default());
        pairs.push(stage.pair_with(&listener, &client, &server)?);
        near.push(client);
        far.push(server);
    }
    let played = pairs.iter_mut().try_for_each(exchange_small);
    if played.is_ok() {
        for (client, mut server) in pairs {
            client.close();
            server.receive_to_end()?;
        }
    }
    stage.client_log().add_many(&near);
    stage.server_log().add_many(&far);
    played
}

fn exchange_small((client, server): &mut (End, End)) -> Played {
    client.send(100)?;
    server.receive(100)?;
    server.send(100)?;
    client.receive(100)
}

/// Sessions for which the proxy has enough descriptors, and attempts to open more.
const LIVE: usize = 10;
const BEYOND: usize = 100;

/// New sessions may have to wait, or fail. Existing sessions continue, and new ones are served
/// again when there are free descriptors.
fn out_of_descriptors(stage: &mut Stage<'_>) -> Played {
    let listener = stage.listen(Target::Open)?;
    let mut live = Vec::new();
    for _ in 0..LIVE {
        live.push(stage.pair_with(&listener, &Log::default(), &Log::default())?);
    }
    live.iter_mut().try_for_each(exchange_small)?;
    let beyond = crowd(stage, &listener)?;
    let old = live.iter_mut().try_for_each(exchange_small).is_ok();
    stage.client_log().add(Event::Other(if old {
        "old sessions live"
    } else {
        "OLD SESSIONS FAIL"
    }));
    drop(beyond);
    drop(live);
    let again = is_served_again(stage, &listener)?;
    let words = if again {
        "new sessions are served"
    } else {
        "NEW SESSIONS ARE NOT SERVED"
    };
    stage.client_log().add(Event::Other(words));
    Ok(())
}

/// Tries to open many sessions, from several clients at a time, and keeps those that open.
fn crowd(stage: &Stage<'_>, listener: &Listener) -> Result<Vec<End>, Stop> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut accepted = Vec::new();
            while !done.load(Ordering::Relaxed) {
                match stage.try_accept(listener, Duration::from_millis(20)) {
                    Ok(end) => accepted.extend(end),
                    Err(stop) => return Err(stop),
                }
            }
            Ok(accepted)
        });
        let clients: Vec<_> = (0..BEYOND)
            .map(|_| {
                scope.spawn(|| {
                    let socket = stage.client_socket()?;
                    let limit = socket.set_write_timeout(Some(3 * WHILE));
                    limit.map_err(Error::system("set a time limit"))?;
                    stage.try_connect(socket)
                })
            })
            .collect();
        let panicked = |_| Stop::Failed(Error::Unknown("a thread panicked".to_owned()));
        let mut ends = Vec::new();
        for client in clients {
            ends.extend(client.join().map_err(panicked)??);
        }
        std::thread::sleep(2 * WHILE);
        done.store(true, Ordering::Relaxed);
        ends.extend(accepting.join().map_err(panicked)??);
        Ok(ends)
    })
}

/// Whether a new session transfers data within the time limit. Sessions that had to wait may be
/// accepted before it.
fn is_served_again(stage: &Stage<'_>, listener: &Listener) -> Result<bool, Stop> {
    let begin = Instant::now();
    while begin.elapsed() < stage.limit {
        let socket = stage.client_socket()?;
        let limit = socket.set_write_timeout(Some(Duration::from_secs(2)));
        limit.map_err(Error::system("set a time limit"))?;
        let Some(mut client) = stage.try_connect(socket)? else {
            continue;
        };
        if client.send(100).is_err() {
            continue;
        }
        while let Some(mut server) = stage.try_accept(listener, Duration::from_secs(1))? {
            // A session that had to wait sends no data, only an end or a failure.
            if server.has_data_within(Duration::from_secs(1))? && server.receive(100).is_ok() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
