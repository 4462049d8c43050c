//! Messages of a relay that hands over its sessions, and of its successor.

use midspan_handover::{
    Batch, BatchWriter, FromPredecessor, FromSuccessor, HeldState, MOST_DESCRIPTORS, OutboundState,
    SessionState,
};

/// A message of either relay.
pub fn handover(input: &[u8]) {
    if let Ok(message) = FromSuccessor::decode(input) {
        let written = message.encode().unwrap_or_default();
        assert_eq!(FromSuccessor::decode(&written).ok(), Some(message));
    }
    let thread = Batch::thread_in(input);
    let Ok(message) = FromPredecessor::decode(input) else {
        return;
    };
    if let FromPredecessor::Sessions(batch) = &message {
        assert_eq!(thread, Some(batch.thread));
        batch_of_sessions(batch);
    }
    // A message with many numbers of another form may be too long when it is written.
    if let Ok(written) = message.encode() {
        assert_eq!(FromPredecessor::decode(&written).ok(), Some(message));
    }
}

fn batch_of_sessions(batch: &Batch) {
    assert!(batch.descriptors() <= MOST_DESCRIPTORS);
    let mut writer = BatchWriter::new(batch.thread);
    for session in &batch.sessions {
        can_be(session);
        if !matches!(writer.push(session), Ok(true)) {
            return;
        }
    }
    assert_eq!(writer.copied(), batch.copied());
    let written = FromPredecessor::decode(&writer.finish()).ok();
    assert_eq!(written, Some(FromPredecessor::Sessions(batch.clone())));
}

fn can_be(session: &SessionState) {
    for transfer in [&session.to_server, &session.to_client] {
        if transfer.held != HeldState::Nothing {
            assert!(transfer.held.bytes() > 0);
            assert_eq!(transfer.direction.outbound, OutboundState::Open);
        }
    }
}
