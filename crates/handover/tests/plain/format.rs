//! Which messages are read, and which are refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_handover::{
    Batch, BatchWriter, DirectionState, FormatError, FromPredecessor, FromSuccessor, HeldState,
    LARGEST_MESSAGE, MOST_COPIED, MOST_DESCRIPTORS, OutboundState, PacingState, PhaseState,
    ReadingState, RecordState, SessionState, ThrottleState, TransferState, WRITTEN, Wrong,
    newest_common,
};

pub fn session(id: u64) -> SessionState {
    SessionState {
        listener: 0,
        phase: PhaseState::Relaying,
        record: RecordState {
            id,
            client: "192.0.2.1:1024".parse().unwrap(),
            server: "[2001:db8::1]:443".parse().unwrap(),
            is_early: false,
            began: 0,
            setup: None,
            bytes_to_client: 0,
            bytes_to_server: 0,
            start: None,
            failure: None,
            read: [ReadingState::default(); 2],
            largest_forward_data: [0; 2],
            largest_burst: [0; 2],
        },
        to_server: TransferState::default(),
        to_client: TransferState::default(),
        failed: [false; 2],
        end_seen: [false; 2],
        moved_at: 0,
        has_place: false,
        destination: None,
        long_leg: None,
    }
}

fn of(sessions: Vec<SessionState>) -> FromPredecessor {
    FromPredecessor::Sessions(Batch {
        thread: 0,
        sessions,
    })
}

fn holding(held: HeldState) -> SessionState {
    let mut session = session(7);
    session.to_client.held = held;
    session
}

#[test]
fn an_idle_session_takes_little_room() {
    let mut writer = BatchWriter::new(3);
    let empty = BatchWriter::new(3).finish().len();
    assert!(writer.push(&session(1)).unwrap());
    let text = writer.finish();
    let size = text.len() - empty;
    assert!(
        size <= 180,
        "{size} bytes: {}",
        String::from_utf8_lossy(&text)
    );
}

/// The text of version 2. A change of this test needs a new version, unless only new fields were added.
#[test]
fn version_2_is_read() {
    let text = r#"{"Sessions":{"thread":2,"sessions":[{
        "listener": 4,
        "phase": {"Settling": {"until": 5000000000}},
        "record": {
            "id": 77, "client": "192.0.2.1:1024", "server": "[2001:db8::1]:443", "is_early": true,
            "began": 17, "setup": 18, "bytes_to_client": 19, "bytes_to_server": 20, "start": [10, true],
            "failure": "reset_by_server",
            "read": [{"retransmitted_segments": 21}, {"retransmitted_bytes": 22, "timeouts": 23, "busy": 24,
                "receive_window_limited": 25, "send_buffer_limited": 26}],
            "largest_forward_data": [27, 28], "largest_burst": [29, 30]
        },
        "to_server": {
            "direction": {"inbound": "Ended", "outbound": "Finished", "thorough": true, "no_end": true}
        },
        "to_client": {
            "direction": {"inbound": "Broken", "outbound": "Open", "bulk": true, "urgent": true},
            "held": {"Piped": 4096}, "is_bounded": true, "is_kept_alive": true, "has_spliced": true,
            "throttle": {"pacing": {"rate": 1000, "segment_size": 1448, "header_size": 52}, "cap": 31, "look": 32}
        },
        "failed": [false, true], "end_seen": [true, false], "moved_at": 33, "has_place": true,
        "destination": "www.example.net",
        "a field of a newer program": [1, 2, 3]
    }]}}"#;
    let FromPredecessor::Sessions(batch) = FromPredecessor::decode(text.as_bytes()).unwrap() else {
        panic!("sessions");
    };
    let mut expected = SessionState {
        listener: 4,
        phase: PhaseState::Settling {
            until: 5_000_000_000,
        },
        failed: [false, true],
        end_seen: [true, false],
        moved_at: 33,
        has_place: true,
        destination: Some("www.example.net".to_owned()),
        ..session(77)
    };
    expected.record = RecordState {
        is_early: true,
        began: 17,
        setup: Some(18),
        bytes_to_client: 19,
        bytes_to_server: 20,
        start: Some((10, true)),
        failure: Some("reset_by_server".to_owned()),
        read: [
            ReadingState {
                retransmitted_segments: 21,
                ..ReadingState::default()
            },
            ReadingState {
                retransmitted_segments: 0,
                retransmitted_bytes: 22,
                timeouts: 23,
                busy: 24,
                receive_window_limited: 25,
                send_buffer_limited: 26,
            },
        ],
        largest_forward_data: [27, 28],
        largest_burst: [29, 30],
        ..expected.record
    };
    expected.to_server.direction = DirectionState {
        inbound: midspan_handover::InboundState::Ended,
        outbound: OutboundState::Finished,
        thorough: true,
        no_end: true,
        ..DirectionState::default()
    };
    expected.to_client = TransferState {
        direction: DirectionState {
            inbound: midspan_handover::InboundState::Broken,
            bulk: true,
            urgent: true,
            ..DirectionState::default()
        },
        held: HeldState::Piped(4096),
        is_bounded: true,
        is_kept_alive: true,
        has_spliced: true,
        throttle: ThrottleState {
            pacing: Some(PacingState {
                rate: 1000,
                segment_size: 1448,
                header_size: 52,
            }),
            cap: Some(31),
            look: 32,
        },
    };
    assert_eq!(batch.thread, 2);
    assert_eq!(batch.descriptors(), 4);
    assert_eq!(batch.sessions, [expected]);
}

#[test]
fn a_batch_has_as_many_sessions_as_fit() {
    let mut writer = BatchWriter::new(1);
    let mut next = 0;
    while writer.push(&session(next)).unwrap() {
        next += 1;
    }
    // Two descriptors each, and room for the file in memory.
    assert_eq!(next as usize, (MOST_DESCRIPTORS - 1) / 2);
    assert_eq!(writer.sessions(), next);
    let message = FromPredecessor::decode(&writer.finish()).unwrap();
    let sessions = (0..next).map(session).collect();
    let batch = Batch {
        thread: 1,
        sessions,
    };
    assert_eq!(message, FromPredecessor::Sessions(batch));
    // Long texts fill the message first.
    let mut writer = BatchWriter::new(u32::MAX);
    let mut long = session(u64::MAX);
    // A character of one byte that takes six in JSON.
    long.destination = Some("\u{1}".repeat(255));
    let mut count = 0;
    while writer.push(&long).unwrap() {
        count += 1;
    }
    let bytes = writer.finish();
    assert!((30..100).contains(&count) && bytes.len() <= LARGEST_MESSAGE);
    assert!(bytes.len() > LARGEST_MESSAGE - 2_000);
    FromPredecessor::decode(&bytes).unwrap();
}

#[test]
fn data_in_memory_is_counted() {
    let mut session = holding(HeldState::Copied(100));
    session.to_server.held = HeldState::Copied(7);
    let mut writer = BatchWriter::new(0);
    assert!(writer.push(&session).unwrap());
    assert!(writer.push(&holding(HeldState::Piped(50))).unwrap());
    assert_eq!(writer.copied(), 107);
    let message = FromPredecessor::decode(&writer.finish()).unwrap();
    let FromPredecessor::Sessions(batch) = message else {
        panic!("sessions");
    };
    assert_eq!((batch.copied(), batch.descriptors()), (107, 1 + 2 + 4));
}

#[test]
fn impossible_states_are_neither_written_nor_read() {
    let mut ended = holding(HeldState::Copied(1));
    ended.to_client.direction.outbound = OutboundState::Broken;
    let mut unpaced = session(7);
    unpaced.to_server.throttle.pacing = Some(PacingState {
        rate: 0,
        segment_size: 1,
        header_size: 1,
    });
    let mut named = session(7);
    named.destination = Some("n".repeat(256));
    for (session, expected) in [
        (holding(HeldState::Copied(0)), Wrong::Held(0)),
        (holding(HeldState::Piped(0)), Wrong::Held(0)),
        (
            holding(HeldState::Copied(MOST_COPIED + 1)),
            Wrong::Held(MOST_COPIED + 1),
        ),
        (holding(HeldState::Piped(u32::MAX)), Wrong::Held(u32::MAX)),
        (ended, Wrong::HeldForNothing),
        (unpaced, Wrong::Rate),
        (named, Wrong::Name(256)),
    ] {
        assert_eq!(session.check(), Err(expected));
        assert!(BatchWriter::new(0).push(&session).is_err());
        let message = of(vec![session]);
        let is_refused = |error: &FormatError| matches!(error, FormatError::Session { id: 7, wrong } if *wrong == expected);
        assert!(is_refused(&message.encode().unwrap_err()));
        let bytes = serde_json::to_vec(&message).unwrap();
        assert!(is_refused(&FromPredecessor::decode(&bytes).unwrap_err()));
    }
}

#[test]
fn more_than_the_bounds_is_refused() {
    let many = of((0..126).map(session).collect());
    assert!(matches!(many.encode(), Err(FormatError::Descriptors(252))));
    let bytes = serde_json::to_vec(&many).unwrap();
    assert!(matches!(
        FromPredecessor::decode(&bytes),
        Err(FormatError::Descriptors(252))
    ));
    let mut long = FromSuccessor::Ready.encode().unwrap();
    long.resize(LARGEST_MESSAGE, b' ');
    assert!(FromSuccessor::decode(&long).is_ok());
    long.push(b' ');
    assert!(matches!(
        FromSuccessor::decode(&long),
        Err(FormatError::Long(_))
    ));
    let hello = FromPredecessor::Hello {
        versions: vec![1; 33],
        now: 0,
    };
    assert!(matches!(hello.encode(), Err(FormatError::List)));
    let settings = "x".repeat(LARGEST_MESSAGE);
    let listener = FromPredecessor::Listener {
        thread: 0,
        index: 0,
        settings,
    };
    assert!(matches!(listener.encode(), Err(FormatError::Long(_))));
}

#[test]
fn a_reason_is_cut_at_its_limit() {
    let reason = "ä".repeat(400);
    let not_taken = FromSuccessor::not_taken(3, &reason).encode().unwrap();
    assert!(FromSuccessor::decode(&not_taken).is_ok());
    let refused = FromSuccessor::refused(&reason);
    let bytes = refused.encode().unwrap();
    assert_eq!(FromSuccessor::decode(&bytes).unwrap(), refused);
    let FromSuccessor::Refused { reason } = refused else {
        panic!("a refusal");
    };
    assert_eq!(reason, "ä".repeat(256));
}

#[test]
fn an_unknown_version_has_nothing_in_common() {
    assert_eq!(newest_common(WRITTEN), WRITTEN.last().copied());
    assert_eq!(newest_common(&[1, 2, u32::MAX]), Some(2));
    assert_eq!(newest_common(&[0, u32::MAX]), None);
    assert_eq!(newest_common(&[]), None);
    assert!(WRITTEN.is_sorted());
    // The first message can be read whatever its version is.
    let hello = br#"{"Hello":{"versions":[900],"now":5,"new":{"a":1}}}"#;
    let expected = FromPredecessor::Hello {
        versions: vec![900],
        now: 5,
    };
    assert_eq!(FromPredecessor::decode(hello).unwrap(), expected);
}

/// A message whose sessions cannot be read can be answered.
#[test]
fn the_thread_is_known_without_the_sessions() {
    let text = br#"{"Sessions":{"thread":5,"sessions":[{"listener":"no number"}]}}"#;
    assert!(FromPredecessor::decode(text).is_err());
    assert_eq!(Batch::thread_in(text), Some(5));
    assert_eq!(Batch::thread_in(br#"{"Sessions":{"thread":5"#), None);
    let written = BatchWriter::new(7).finish();
    assert_eq!(Batch::thread_in(&written), Some(7));
}
