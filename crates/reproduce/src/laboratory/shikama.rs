//! Shikama on the lab: n0 sends over a wireless link to the proxy n1, which sends over a wire and a
//! short queue to n3.

use midspan_path::Path;

use super::LaboratoryError;
use super::plan::{Arm, Extent, JUDGED, LabPlan, Place, Point, SHOWN, read};
use super::statement::{Metric, Statement};
use super::subscribers;

/// Scheme A, by the input of TCP and by the kernel; B; C.
const PACED: &str = "A: paced";
const PACED_BY_KERNEL: &str = "A: paced by the kernel";
const UNPACED: &str = "B: not paced";
const DIRECT: &str = "C: no proxy";

/// `P_L` in the default grid.
const LOSSES: [&str; 5] = ["0.001", "0.0001", "0.005", "0.02", "0.1"];
/// `P_L` of the paper's figures.
const ALL_LOSSES: [&str; 10] = [
    "0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1",
];
/// Where the rarer settings are measured: bursts are large, and not so rare that a short transfer
/// sees none.
const LOSS: &str = "0.001";

/// What a paced proxy must reach of the better of the other two.
const AS_FAST: f64 = 0.99;
/// Segments in a burst.
const BURST: f64 = 2.0;
/// How near the simulator is asked to be, for Reno.
const NEAR: f64 = 0.15;

/// What sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stack {
    Reno,
    RenoWithoutSack,
    Cubic,
    Bbr,
}

impl Stack {
    const OTHERS: [Self; 3] = [Self::RenoWithoutSack, Self::Cubic, Self::Bbr];

    const fn name(self) -> &'static str {
        match self {
            Self::Reno => "Reno",
            Self::RenoWithoutSack => "Reno without SACK",
            Self::Cubic => "CUBIC",
            Self::Bbr => "BBR",
        }
    }

    const fn kernel_name(self) -> &'static str {
        match self {
            Self::Reno | Self::RenoWithoutSack => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// A figure: `B_L` in packets, `D_W` in ms, `B_W` in Mbit/s.
#[derive(Debug, Clone, Copy)]
struct Condition {
    item: &'static str,
    queue: u32,
    delay: u32,
    rate: u32,
}

const FIGURE_10: Condition = Condition::new("figure 10", 20, 30, 10);
const FIGURE_12: Condition = Condition::new("figure 12", 50, 30, 10);
const FIGURE_14: Condition = Condition::new("figure 14", 20, 40, 10);
const FIGURE_16: Condition = Condition::new("figure 16", 20, 30, 20);
/// Beyond the paper: hardly more than the wireless section behind a queue of half the length.
const TIGHTER: Condition = Condition::new("tighter", 10, 30, 6);

impl Condition {
    const fn new(item: &'static str, queue: u32, delay: u32, rate: u32) -> Self {
        Self {
            item,
            queue,
            delay,
            rate,
        }
    }
}

/// The points.
pub(super) fn plan(extent: Extent) -> Result<LabPlan, LaboratoryError> {
    let settings: Vec<Setting> = match extent {
        Extent::Quick => [FIGURE_10, TIGHTER]
            .map(|condition| Setting::new(condition, LOSS, Stack::Reno, extent))
            .to_vec(),
        Extent::Normal => normal(extent),
        Extent::Full => full(extent),
    };
    let mut points = settings
        .iter()
        .map(Setting::point)
        .collect::<Result<Vec<_>, _>>()?;
    points.extend(subscribers::points(extent)?);
    Ok(LabPlan::of(points))
}

fn normal(extent: Extent) -> Vec<Setting> {
    let of = |condition, loss, stack| Setting::new(condition, loss, stack, extent);
    let mut settings: Vec<_> = LOSSES
        .iter()
        .map(|loss| of(FIGURE_10, loss, Stack::Reno))
        .collect();
    for setting in &mut settings {
        setting.by_kernel = matches!(setting.loss, "0.001" | "0.005");
    }
    settings.push(of(TIGHTER, LOSS, Stack::Reno));
    settings.push(Setting {
        repetitions: SHOWN,
        ..of(FIGURE_12, LOSS, Stack::Reno)
    });
    settings.extend(Stack::OTHERS.map(|stack| Setting {
        repetitions: SHOWN,
        ..of(FIGURE_10, LOSS, stack)
    }));
    settings
}

fn full(extent: Extent) -> Vec<Setting> {
    let all = |condition, stack| {
        ALL_LOSSES.map(|loss| Setting {
            by_kernel: true,
            ..Setting::new(condition, loss, stack, extent)
        })
    };
    let mut settings = Vec::new();
    for stack in [Stack::Reno].into_iter().chain(Stack::OTHERS) {
        for condition in [FIGURE_10, FIGURE_12, TIGHTER] {
            settings.extend(all(condition, stack));
        }
    }
    for condition in [FIGURE_14, FIGURE_16] {
        settings.extend(all(condition, Stack::Reno));
    }
    settings
}

/// What a point is measured at.
#[derive(Debug, Clone, Copy)]
struct Setting {
    condition: Condition,
    loss: &'static str,
    stack: Stack,
    /// Of a transfer.
    seconds: u32,
    repetitions: u32,
    /// Whether kernel pacing is compared as well.
    by_kernel: bool,
}

impl Setting {
    const fn new(condition: Condition, loss: &'static str, stack: Stack, extent: Extent) -> Self {
        let (seconds, repetitions) = match extent {
            Extent::Quick => (8, 1),
            Extent::Normal => (12, JUDGED),
            Extent::Full => (100, JUDGED),
        };
        Self {
            condition,
            loss,
            stack,
            seconds,
            repetitions,
            by_kernel: false,
        }
    }

    fn point(&self) -> Result<Point, LaboratoryError> {
        let Condition {
            item,
            queue,
            delay,
            rate,
        } = self.condition;
        let name = self.stack.name();
        let seconds = f64::from(self.seconds);
        let paced = "pacing = \"inbound\", pacing_by = ";
        let proxy = |name, pacing: &str| {
            let path = self.path(pacing)?;
            Ok::<_, LaboratoryError>(Arm::midspan(name, path, seconds))
        };
        let mut arms = vec![proxy(PACED, &format!("{paced}\"input\""))?];
        if self.by_kernel {
            arms.push(proxy(PACED_BY_KERNEL, &format!("{paced}\"kernel\""))?);
        }
        arms.push(proxy(UNPACED, "pacing = \"fixed\"")?);
        arms.push(Arm::direct(DIRECT, self.path("")?, seconds));
        if self.stack == Stack::Reno {
            arms = arms
                .into_iter()
                .map(|arm| arm.with_simulation_within(NEAR))
                .collect();
        }
        let at = self.loss.parse().unwrap_or_default();
        Ok(Point {
            item,
            name: format!(
                "P_L {}, B_L {queue}, D_W {delay} ms, B_W {rate} Mbit/s, {name}",
                self.loss
            ),
            place: Some(Place::logarithmic(
                format!("B_L {queue}, D_W {delay} ms, B_W {rate} Mbit/s, {name}"),
                ("loss on the wireless link", "share"),
                at,
            )),
            statements: self.statements(),
            arms,
            repetitions: self.repetitions,
        })
    }

    fn statements(&self) -> Vec<Statement> {
        let mut said = Vec::new();
        let paced: &[&'static str] = if self.by_kernel {
            &[PACED, PACED_BY_KERNEL]
        } else {
            &[PACED]
        };
        for &arm in paced {
            let fast = Statement::new(Metric::Goodput, arm, &[UNPACED, DIRECT]);
            let alone = |metric| Statement::new(metric, arm, &[]);
            said.extend([
                fast.at_least(AS_FAST),
                alone(Metric::Burst).at_most(BURST),
                alone(Metric::LongestBurst),
                alone(Metric::Dropped).at_most(0.0),
                alone(Metric::Overflows),
            ]);
        }
        said.push(Statement::new(Metric::Goodput, UNPACED, &[DIRECT]));
        for arm in [UNPACED, DIRECT] {
            said.extend([
                Statement::new(Metric::Burst, arm, &[]),
                Statement::new(Metric::LongestBurst, arm, &[]),
                Statement::new(Metric::Dropped, arm, &[]),
                Statement::new(Metric::Overflows, arm, &[]),
            ]);
        }
        said
    }

    /// Table 1. The windows are those of the paper: a kernel advertises half of a buffer.
    fn path(&self, pacing: &str) -> Result<Path, LaboratoryError> {
        let Condition {
            queue, delay, rate, ..
        } = self.condition;
        let Self { loss, seconds, .. } = self;
        let control = self.stack.kernel_name();
        let sack = self.stack != Stack::RenoWithoutSack;
        let pacing = if pacing.is_empty() {
            String::new()
        } else {
            format!(", {pacing}")
        };
        let text = format!(
            r#"
[[host]]
name = "n0"
congestion_control = "{control}"
sack = {sack}
[[proxy]]
name = "n1"
client_leg = {{ congestion_control = "{control}", receive_buffer = "64 KB" }}
server_leg = {{ congestion_control = "{control}"{pacing} }}
[[router]]
name = "n2"
[[host]]
name = "n3"
congestion_control = "{control}"
receive_buffer = "256 KB"
sack = {sack}
[[link]]
name = "wireless"
between = ["n0", "n1"]
rate = "5 Mbit/s"
delay = "10 ms"
up = {{ loss = "{loss}" }}
[[link]]
name = "wire"
between = ["n1", "n2"]
rate = "100 Mbit/s"
[[link]]
name = "narrow"
between = ["n2", "n3"]
rate = "{rate} Mbit/s"
delay = "{delay} ms"
queue = "{queue} packets"
[[flow]]
name = "file"
from = "n0"
to = "n3"
workload = "bulk-upload"
duration = "{seconds} s"
"#
        );
        read("shikama", &text)
    }
}
