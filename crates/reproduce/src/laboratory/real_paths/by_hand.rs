//! Values of HAProxy as an operator sets them by hand.

use midspan_policy::LegSettings;

use super::Transfer;

/// The congestion control of both legs, and the initial windows towards the client and towards the server in segments;
/// `None` for the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByHand {
    pub(super) control: &'static str,
    pub(super) windows: [Option<u32>; 2],
}

/// A value of the grid: its name, the congestion control and the initial window of the leg towards the receiver.
pub(super) type Value = (&'static str, &'static str, u32);

/// The grid from which the best values are taken.
pub(super) const GRID: [Value; 12] = [
    ("CUBIC × 10", "cubic", 10),
    ("CUBIC × 50", "cubic", 50),
    ("CUBIC × 100", "cubic", 100),
    ("CUBIC × 200", "cubic", 200),
    ("CUBIC × 400", "cubic", 400),
    ("CUBIC × 1000", "cubic", 1000),
    ("BBR × 10", "bbr", 10),
    ("BBR × 50", "bbr", 50),
    ("BBR × 100", "bbr", 100),
    ("BBR × 200", "bbr", 200),
    ("BBR × 400", "bbr", 400),
    ("BBR × 1000", "bbr", 1000),
];

impl ByHand {
    pub(super) const fn new(
        control: &'static str,
        client: Option<u32>,
        server: Option<u32>,
    ) -> Self {
        let windows = [client, server];
        Self { control, windows }
    }

    /// The values for this transfer.
    pub(super) const fn of((_, control, window): Value, transfer: &Transfer) -> Self {
        match transfer.is_upload() {
            true => Self::new(control, None, Some(window)),
            false => Self::new(control, Some(window), None),
        }
    }

    /// The settings of the legs towards the client and towards the server.
    pub(super) fn legs(&self) -> [LegSettings; 2] {
        self.windows.map(|initial_window| LegSettings {
            congestion_control: Some(self.control.to_owned()),
            initial_window,
            ..LegSettings::default()
        })
    }
}
