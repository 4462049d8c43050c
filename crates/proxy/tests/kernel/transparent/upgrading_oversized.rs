//! Upgrades under oversized segments: the device of the fragmenter goes with the former program.

use std::io::{Read, Write};

use super::narrow::{FIXED, download, has_device, reassembled_by, with};
use super::support::*;
use crate::common::assert_upgraded;

/// Other places for the routes that lead to the device.
const OTHER: &str = "[marks]\nmask = 0xf00000\ntable = 7800\npriority = 91\n";
/// Bytes before the first upgrade, between two of them, and after the last one.
const PART: usize = 1_000_000;
const DOWNLOADS: usize = 6;

/// A session with oversized segments continues, and new sessions have oversized segments, too.
#[kernel_test]
fn a_session_with_oversized_segments_continues() {
    for server in [SERVER, SERVER6] {
        if server == SERVER6 && !has_device() {
            continue;
        }
        let network = Network::new();
        let listener = network.listen(PORT);
        let usual = with(FIXED);
        let midspan = Midspan::ready(&network.gateway, &usual);
        let arrived = || reassembled_by(&network.client, server);
        let downloads_are_oversized = || {
            let before = arrived();
            for _ in 0..DOWNLOADS {
                download(&network, &midspan, &listener, server, 2 * PART);
            }
            assert!(arrived() > before, "{}", midspan.log());
        };
        downloads_are_oversized();
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        let data: Vec<u8> = (0..PART).map(|index| ((index * 31) >> 3) as u8).collect();
        let mut received = vec![0; PART];
        for text in [
            None,
            Some(&usual),
            Some(&format!("{OTHER}{usual}")),
            Some(&usual),
        ] {
            if let Some(text) = text {
                midspan.write(text);
                assert_upgraded(&midspan.upgrade(None));
            }
            std::thread::scope(|scope| {
                scope.spawn(|| far.write_all(&data).unwrap());
                near.read_exact(&mut received).unwrap();
            });
            assert!(received == data);
        }
        drop((near, far));
        wait_until("closed", || network.taken(PORT) == 0);
        downloads_are_oversized();
        midspan.stop();
    }
}
