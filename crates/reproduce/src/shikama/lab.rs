//! Shikama on the lab: n0 sends over a wireless link to the proxy n1. The proxy sends over a wire
//! and through a short queue to n3.

use midspan_path::Path;

use super::conditions::{Condition, FIGURE_10, FIGURE_12, LOSSES};
use crate::laboratory::point::{JUDGED, SHOWN};
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Place, Point, Statement};

/// Scheme A, paced by the input of TCP and by the kernel; scheme B; scheme C.
const PACED: &str = "A: paced";
const PACED_BY_KERNEL: &str = "A: paced by the kernel";
const UNPACED: &str = "B: not paced";
const DIRECT: &str = "C: no proxy";

/// `P_L` in the default grid.
const SOME_LOSSES: [&str; 5] = ["0.001", "0.0001", "0.005", "0.02", "0.1"];
/// The loss at which the settings that the grid does not vary are measured: bursts are large, and
/// frequent enough that a short transfer has some.
const LOSS: &str = "0.001";

/// The share of the better of the other two cases that a paced proxy must reach.
const AS_FAST: f64 = 0.99;
/// The largest length of a burst with pacing, in segments.
const BURST: f64 = 2.0;
/// How near goodput must be to the simulator's, for Reno.
const NEAR: f64 = 0.15;

/// The TCP of the senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stack {
    Reno,
    RenoWithoutSack,
    Cubic,
    Bbr,
}

impl Stack {
    const ALL: [Self; 4] = [Self::Reno, Self::RenoWithoutSack, Self::Cubic, Self::Bbr];

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

/// Fig. 10: Reno over P_L, the other senders at one P_L.
pub(super) fn figure_10(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let of = |loss, stack| Setting::new(FIGURE_10, loss, stack, extent);
    let settings = match extent {
        Extent::Quick => vec![of(LOSS, Stack::Reno)],
        Extent::Normal => {
            let by_loss = SOME_LOSSES.map(|loss| Setting {
                by_kernel: matches!(loss, "0.001" | "0.005"),
                ..of(loss, Stack::Reno)
            });
            let others = Stack::ALL.into_iter().skip(1);
            let by_stack = others.map(|stack| Setting {
                repetitions: SHOWN,
                ..of(LOSS, stack)
            });
            by_loss.into_iter().chain(by_stack).collect()
        }
        Extent::Full => all(FIGURE_10, &Stack::ALL),
    };
    points(&settings)
}

/// Fig. 12: a longer queue.
pub(super) fn figure_12(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    points(&match extent {
        Extent::Quick => Vec::new(),
        Extent::Normal => vec![Setting {
            repetitions: SHOWN,
            ..Setting::new(FIGURE_12, LOSS, Stack::Reno, extent)
        }],
        Extent::Full => all(FIGURE_12, &Stack::ALL),
    })
}

/// A condition at one P_L; with `--full`, the grid with all senders.
pub(super) fn at_one_loss(
    condition: Condition,
    extent: Extent,
) -> Result<Vec<Point>, LaboratoryError> {
    points(&match extent {
        Extent::Quick | Extent::Normal => vec![Setting::new(condition, LOSS, Stack::Reno, extent)],
        Extent::Full => all(condition, &Stack::ALL),
    })
}

/// The whole grid of a figure, with Reno. Other extents do not measure it.
pub(super) fn whole_grid(
    condition: Condition,
    extent: Extent,
) -> Result<Vec<Point>, LaboratoryError> {
    points(&match extent {
        Extent::Quick | Extent::Normal => Vec::new(),
        Extent::Full => all(condition, &[Stack::Reno]),
    })
}

/// All of the paper's P_L with these senders.
fn all(condition: Condition, stacks: &[Stack]) -> Vec<Setting> {
    let of = |stack: &Stack| {
        LOSSES.map(|loss| Setting {
            by_kernel: true,
            ..Setting::new(condition, loss, *stack, Extent::Full)
        })
    };
    stacks.iter().flat_map(of).collect()
}

fn points(settings: &[Setting]) -> Result<Vec<Point>, LaboratoryError> {
    settings.iter().map(Setting::point).collect()
}

/// The settings of a point.
#[derive(Debug, Clone, Copy)]
struct Setting {
    condition: Condition,
    loss: &'static str,
    stack: Stack,
    /// Seconds of a transfer.
    seconds: u32,
    repetitions: u32,
    /// Whether pacing by the kernel is compared too.
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
            throughput: item,
            queue,
            delay,
            rate,
            ..
        } = self.condition;
        let name = self.stack.name();
        let seconds = f64::from(self.seconds);
        let proxy = |name, pacing: &[&str]| {
            let path = self.path(pacing)?;
            Ok::<_, LaboratoryError>(Case::midspan(name, path, seconds))
        };
        let mut cases = vec![proxy(PACED, &["pacing=inbound", "pacing_by=input"])?];
        if self.by_kernel {
            let by_kernel = ["pacing=inbound", "pacing_by=kernel"];
            cases.push(proxy(PACED_BY_KERNEL, &by_kernel)?);
        }
        cases.push(proxy(UNPACED, &["pacing=fixed"])?);
        cases.push(Case::direct(DIRECT, self.path(&[])?, seconds));
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
            cases,
            repetitions: self.repetitions,
            near_simulation: (self.stack == Stack::Reno).then_some(NEAR),
            ..Point::default()
        })
    }

    fn statements(&self) -> Vec<Statement> {
        let mut said = Vec::new();
        let paced: &[&'static str] = if self.by_kernel {
            &[PACED, PACED_BY_KERNEL]
        } else {
            &[PACED]
        };
        for &case in paced {
            let fast = Statement::new(Metric::Goodput, case, &[UNPACED, DIRECT]);
            let alone = |metric| Statement::new(metric, case, &[]);
            said.extend([
                fast.at_least(AS_FAST),
                alone(Metric::Burst).at_most(BURST),
                alone(Metric::LongestBurst),
                alone(Metric::Dropped).at_most(0.0),
                alone(Metric::Overflows),
            ]);
        }
        said.push(Statement::new(Metric::Goodput, UNPACED, &[DIRECT]));
        for case in [UNPACED, DIRECT] {
            said.extend([
                Statement::new(Metric::Burst, case, &[]),
                Statement::new(Metric::LongestBurst, case, &[]),
                Statement::new(Metric::Dropped, case, &[]),
                Statement::new(Metric::Overflows, case, &[]),
            ]);
        }
        said
    }

    /// The path with these settings of the proxy's server leg.
    fn path(&self, pacing: &[&str]) -> Result<Path, LaboratoryError> {
        let control = self.stack.kernel_name();
        let sack = self.stack != Stack::RenoWithoutSack;
        let mut changes = vec![format!("flow.file.duration={} s", self.seconds)];
        for place in [
            "host.n0",
            "host.n3",
            "proxy.n1.client_leg",
            "proxy.n1.server_leg",
        ] {
            changes.push(format!("{place}.congestion_control={control}"));
        }
        changes.extend(["n0", "n3"].map(|host| format!("host.{host}.sack={sack}")));
        changes.extend(
            pacing
                .iter()
                .map(|set| format!("proxy.n1.server_leg.{set}")),
        );
        Ok(self.condition.path(self.loss, &changes)?)
    }
}
