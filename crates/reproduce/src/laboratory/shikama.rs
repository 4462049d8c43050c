//! Shikama on the lab: an upload over a lossy wireless link, then a short queue before a narrow one
//! (Fig. 6 and Table 1).

use midspan_path::Path;

use super::LaboratoryError;
use super::hasegawa::read;
use super::plan::{Arm, Extent, LabPlan, Place, Point};
use super::statement::{Metric, Statement};

/// Scheme A.
const PACED: &str = "split, paced";
/// Scheme B.
const UNPACED: &str = "split, not paced";
/// Scheme C.
const DIRECT: &str = "not split";

/// One point.
#[derive(Debug, Clone, Copy)]
struct Setting {
    /// P_L as a power of ten.
    loss: f64,
    /// B_L in packets.
    queue: u32,
    /// B_W in Mbit/s.
    rate: u32,
    /// Of all senders; NewReno is in no kernel.
    sender: &'static str,
}

/// The points.
pub(super) fn plan(extent: Extent) -> Result<LabPlan, LaboratoryError> {
    let setting = |loss, queue, sender| Setting {
        loss,
        queue,
        rate: 10,
        sender,
    };
    // Twice the capacity behind the queue forgives bursts; this does not.
    let tight = |loss, sender| Setting {
        rate: 6,
        ..setting(loss, 10, sender)
    };
    let settings: Vec<Setting> = match extent {
        Extent::Quick => vec![setting(-3.0, 20, "cubic")],
        Extent::Normal => {
            let mut all = [-4.0, -3.0, -2.0, -1.0]
                .map(|loss| setting(loss, 20, "cubic"))
                .to_vec();
            all.extend([-4.0, -2.0].map(|loss| setting(loss, 50, "cubic")));
            all.extend([-3.0, -2.0].map(|loss| setting(loss, 20, "reno")));
            all.extend([-4.0, -3.0].map(|loss| tight(loss, "cubic")));
            all.push(setting(-2.0, 20, "bbr"));
            all
        }
        Extent::Full => {
            let losses = [-4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0];
            let of = |sender| {
                losses.into_iter().flat_map(move |loss| {
                    let wide = [20, 50].map(|queue| setting(loss, queue, sender));
                    [wide[0], wide[1], tight(loss, sender)]
                })
            };
            ["cubic", "reno", "bbr"].into_iter().flat_map(of).collect()
        }
    };
    let points = settings.into_iter().map(|one| one.point(extent));
    Ok(LabPlan {
        points: points.collect::<Result<_, _>>()?,
    })
}

impl Setting {
    fn point(self, extent: Extent) -> Result<Point, LaboratoryError> {
        let Self {
            loss,
            queue,
            rate,
            sender,
        } = self;
        let (seconds, repetitions) = match extent {
            Extent::Quick => (5, 1),
            Extent::Normal => (20, 3),
            Extent::Full => (100, 6),
        };
        let unpaced = self.path("", seconds)?;
        let paced = self.path(
            ", pacing_rate = \"5 Mbit/s\", pacing_by = \"input\"",
            seconds,
        )?;
        let time = f64::from(seconds);
        let best = Statement::new(Metric::Goodput, PACED, &[UNPACED, DIRECT]);
        let drops = Statement::new(Metric::Overflows, PACED, &[]);
        let drops_unpaced = Statement::new(Metric::Overflows, UNPACED, &[]);
        let statements = if extent == Extent::Quick {
            vec![best, drops, drops_unpaced]
        } else {
            vec![best.at_least(0.99), drops.at_most(0.0), drops_unpaced]
        };
        Ok(Point {
            item: if rate == 10 { "figure 10" } else { "tight" },
            name: format!(
                "loss of {}, queue of {queue}, {rate} Mbit/s behind it, {sender}",
                self.probability()
            ),
            place: Some(Place {
                plot: format!("queue of {queue}, {rate} Mbit/s behind it, {sender}"),
                axis: ("loss, as a power of ten", ""),
                at: loss,
            }),
            arms: vec![
                Arm::midspan(PACED, paced, time),
                Arm::midspan(UNPACED, unpaced.clone(), time),
                Arm::direct(DIRECT, unpaced, time),
            ],
            repetitions,
            statements,
        })
    }

    fn probability(self) -> String {
        let probability = libm::pow(10.0, self.loss);
        // One digit more than the first that counts.
        format!("{probability:.5}").trim_end_matches('0').to_owned()
    }

    /// The path of Fig. 6. Windows are half of the buffers: 64 KB over the wireless section, 128 KB
    /// over the wired one and end to end.
    fn path(self, pacing: &str, seconds: u32) -> Result<Path, LaboratoryError> {
        let Self {
            queue,
            rate,
            sender,
            ..
        } = self;
        let loss = self.probability();
        let text = format!(
            r#"
[[host]]
name = "mobile"
congestion_control = "{sender}"
[[proxy]]
name = "proxy"
client_leg = {{ receive_buffer = "128 KiB" }}
server_leg = {{ congestion_control = "{sender}"{pacing} }}
[[router]]
name = "queue"
[[host]]
name = "server"
receive_buffer = "256 KiB"
[[link]]
name = "wireless"
between = ["mobile", "proxy"]
rate = "5 Mbit/s"
delay = "10 ms"
up = {{ loss = "{loss}" }}
[[link]]
name = "wire"
between = ["proxy", "queue"]
rate = "100 Mbit/s"
[[link]]
name = "narrow"
between = ["queue", "server"]
rate = "{rate} Mbit/s"
delay = "30 ms"
queue = "{queue} packets"
[[flow]]
name = "file"
from = "mobile"
to = "server"
workload = "bulk-upload"
duration = "{seconds} s"
"#
        );
        read("shikama", &text)
    }
}
