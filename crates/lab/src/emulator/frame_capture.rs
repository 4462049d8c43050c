//! Captures by the emulator: the packets that enter and leave a link at each of its ends.
//!
//! The link's thread copies the first 128 bytes of each packet into a chunk of memory, without a system
//! call, and hands full chunks to a thread that writes them. During a run, the link's thread never waits for
//! the disk: if too many chunks wait already, a chunk is discarded and its packets are counted as missing.
//! Only the last chunk, after the run, waits for the disk.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use midspan_wire::capture::{PcapWriter, RECORD_HEADER};

use super::frame::ETHERNET_HEADER;

/// Bytes kept of each packet: the headers of IPv6 and TCP with all options, and some data.
const SNAP_LENGTH: usize = 128;
/// Bytes of a chunk.
const CHUNK: usize = 1 << 16;
/// Chunks that may wait for the disk: 16 MiB for each end.
const CHUNKS: usize = 256;
/// Most packets of one capture: about 1.4 GB.
const PACKET_LIMIT: u64 = 10_000_000;

/// Part of a capture.
type Chunk = Vec<u8>;

/// The side of a capture that the link's thread uses.
#[derive(Debug)]
pub struct EndCapture {
    chunk: PcapWriter<Chunk>,
    /// Packets in the chunk.
    in_chunk: u64,
    output: SyncSender<Chunk>,
    counts: CaptureCounts,
}

/// The packets of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureCounts {
    /// Packets in the capture.
    pub packets: u64,
    /// Packets that are missing, because the disk was too slow or the capture too long.
    pub missing: u64,
}

/// The side of a capture that writes it.
#[derive(Debug)]
pub struct CaptureWriter(JoinHandle<io::Result<()>>);

/// A capture that is written to `output`.
///
/// # Errors
/// The thread cannot be started.
pub fn begin(output: Box<dyn Write + Send>) -> io::Result<(EndCapture, CaptureWriter)> {
    let (sender, chunks) = sync_channel(CHUNKS);
    let thread = std::thread::Builder::new()
        .name("capture writer".into())
        .spawn(move || write(&chunks, output))?;
    let capture = EndCapture {
        chunk: PcapWriter::begin(Vec::with_capacity(CHUNK))?,
        in_chunk: 0,
        output: sender,
        counts: CaptureCounts::default(),
    };
    Ok((capture, CaptureWriter(thread)))
}

impl CaptureWriter {
    /// Waits until everything is written. The capture must have been finished.
    ///
    /// # Errors
    /// The output has failed.
    pub fn finish(self) -> io::Result<()> {
        self.0
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn write(chunks: &Receiver<Chunk>, mut output: Box<dyn Write + Send>) -> io::Result<()> {
    let mut result = Ok(());
    // After an error, further chunks are discarded.
    for chunk in chunks {
        if result.is_ok() {
            result = output.write_all(&chunk);
        }
    }
    result.and_then(|()| output.flush())
}

impl EndCapture {
    /// A frame passes this end at `at`, since 1970.
    pub(super) fn frame(&mut self, at: Duration, frame: &[u8]) {
        if self.counts.packets >= PACKET_LIMIT {
            self.counts.missing += 1;
            return;
        }
        let packet = frame.get(ETHERNET_HEADER..).unwrap_or_default();
        let kept = packet.get(..SNAP_LENGTH).unwrap_or(packet);
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        // A vector takes everything.
        let _ = self.chunk.write(at, length, kept);
        self.counts.packets += 1;
        self.in_chunk += 1;
        if self.chunk.output_mut().len() > CHUNK - SNAP_LENGTH - RECORD_HEADER {
            let full = self.take_chunk(Vec::with_capacity(CHUNK));
            let sent = self.output.try_send(full).is_ok();
            self.handed_over(sent);
        }
    }

    /// Hands the last chunk over, after the run: waits for the disk. The packets of the capture.
    pub(super) fn finish(mut self) -> CaptureCounts {
        let last = self.take_chunk(Vec::new());
        let sent = self.output.send(last).is_ok();
        self.handed_over(sent);
        self.counts
    }

    fn take_chunk(&mut self, next: Chunk) -> Chunk {
        std::mem::replace(self.chunk.output_mut(), next)
    }

    fn handed_over(&mut self, sent: bool) {
        let packets = std::mem::take(&mut self.in_chunk);
        if !sent {
            self.counts.packets -= packets;
            self.counts.missing += packets;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use midspan_wire::capture;

    use super::*;

    /// An output that can be read later.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_HEADER + length];
        frame[ETHERNET_HEADER] = 0x45;
        frame
    }

    #[test]
    fn all_packets_of_many_chunks_are_written_with_their_length() {
        let output = Shared::default();
        let (mut end, writer) = begin(Box::new(output.clone())).unwrap();
        for number in 0..2_000 {
            end.frame(Duration::new(1_000_000 + number, 7), &frame(1_500));
        }
        let counts = end.finish();
        writer.finish().unwrap();
        assert_eq!((counts.packets, counts.missing), (2_000, 0));
        let bytes = output.0.lock().unwrap().clone();
        assert_eq!(bytes.len(), 24 + 2_000 * (RECORD_HEADER + SNAP_LENGTH));
        let mut packets = Vec::new();
        capture::read(bytes.as_slice(), |packet| {
            packets.push((packet.time, packet.length));
        })
        .unwrap();
        assert_eq!(packets.len(), 2_000);
        assert!((packets[1_999].0 - 1_001_999.0).abs() < 1e-3);
        assert!(packets.iter().all(|packet| packet.1 == 1_500));
    }

    #[test]
    fn an_output_that_fails_is_an_error_and_stops_nothing() {
        let (mut end, writer) = begin(Box::new(Full)).unwrap();
        for _ in 0..1_000 {
            end.frame(Duration::ZERO, &frame(40));
        }
        end.finish();
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
