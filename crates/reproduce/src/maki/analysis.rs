//! Maki: Tables I and II and Figs 8 to 11 by the paper's equations.

use midspan_model::ModelError;
use midspan_model::overlay::Reading;
use midspan_model::papers::maki;
use midspan_model::papers::maki_figures::{figure_8_border, figure_9, figure_10, figure_11};
use midspan_records::{By, Record};

/// The throughput of the homogeneous path without splitting that §IV prints.
const SECTION_4_PRINTED: f64 = 800e3;

/// Table I.
pub(super) fn table_1() -> Vec<Record> {
    let mut records = Vec::new();
    for row in maki::table_1() {
        let gain = |value, precision: &str| {
            let case = format!("{} legs, {precision} precision", row.legs);
            let record = Record::new("table 1", &case, "gain", "", By::Analysis, value);
            with_paper(record, row.paper)
        };
        let single = gain(f64::from(row.single), "single");
        records.push(single.with_note("as the paper computed"));
        records.push(gain(row.double, "double"));
    }
    records
}

/// Table II.
pub(super) fn table_2() -> Result<Vec<Record>, ModelError> {
    let mut records = Vec::new();
    for cell in maki::table_2()? {
        let network = format!("{:?}", cell.network).to_lowercase();
        let throughput = |value, reading: &str| {
            let case = format!("{network}, R{}, {reading}", cell.router);
            let record = Record::new("table 2", &case, "throughput", "bit/s", By::Analysis, value);
            with_paper(record, cell.paper * 1e6)
        };
        // First the slower of the two legs. Then, with a send buffer of 64 packets, the coupling of
        // §III as it is printed, and with each stall counted once.
        let readings = [
            (cell.expected, "Eq. (1)"),
            (cell.printed.throughput, "coupling as printed"),
            (cell.conserving.throughput, "coupling conserving"),
        ];
        records.extend(readings.map(|(value, name)| throughput(value.bits_per_second(), name)));
    }
    Ok(records)
}

/// The value for the homogeneous path that §IV prints.
pub(super) fn section_4() -> Vec<Record> {
    let expected = maki::expected_throughput().bits_per_second();
    let record = Record::new(
        "section 4",
        "homogeneous path",
        "expected throughput",
        "bit/s",
        By::Analysis,
        expected,
    );
    vec![with_paper(record, SECTION_4_PRINTED).with_note("the paper: \"about\"")]
}

/// The values for Fig. 8 in the paper's text.
pub(super) fn figure_8() -> Result<Vec<Record>, ModelError> {
    let mut records = Vec::new();
    for (delay, paper) in [(5, 0.01), (50, 0.01), (500, 0.0001)] {
        let (case, border) = (format!("WAN {delay} ms"), figure_8_border(delay)?);
        let quantity = "loss from which the WAN limits";
        let record = Record::new("figure 8", &case, quantity, "share", By::Analysis, border);
        records.push(with_paper(record, paper).with_note("read off the figure, in powers of ten"));
    }
    Ok(records)
}

/// The values for Figs 9 to 11 in the paper's text, in both readings.
pub(super) fn figures_9_to_11() -> Result<Vec<Record>, ModelError> {
    let mut records = Vec::new();
    for (reading, name) in [
        (Reading::Printed, "as printed"),
        (Reading::Conserving, "packets conserved"),
    ] {
        let mut push = |item, case: &str, quantity, unit, value, paper, note| {
            let case = format!("{case}, {name}");
            let record = Record::new(item, &case, quantity, unit, By::Analysis, value);
            records.push(with_paper(record, paper).with_note(note));
        };
        // Only where LAN2 has at least the loss and the delay of the others, as section III C
        // assumes.
        let gains = figure_9(reading)?;
        let most = gains
            .iter()
            .skip(1)
            .flat_map(|line| &line.points)
            .filter(|(loss, _)| *loss >= 0.01)
            .map(|(_, gain)| *gain)
            .fold(0.0, f64::max);
        push(
            "figure 9",
            "LAN2 the worst",
            "greatest gain",
            "",
            most,
            3.0,
            "the paper: \"about\"",
        );
        let least = gains
            .iter()
            .flat_map(|line| &line.points)
            .map(|(_, gain)| *gain)
            .fold(f64::MAX, f64::min);
        push(
            "figure 9",
            "everywhere",
            "least gain",
            "",
            least,
            1.0,
            "the paper: \"always larger than 1\"",
        );
        let shares = figure_10(reading)?;
        let worst = shares
            .iter()
            .flat_map(|line| &line.points)
            .map(|(_, share)| 1.0 - share)
            .fold(0.0, f64::max);
        push(
            "figure 10",
            "send buffer 10 KB",
            "greatest coupling loss",
            "share",
            worst,
            0.4,
            "the paper: \"up to about\"; its send buffer is not printed",
        );
        for line in figure_11(reading)? {
            let at = line
                .points
                .iter()
                .find(|(size, _)| *size >= 512e3)
                .map_or(0.0, |(_, share)| *share);
            push(
                "figure 11",
                &line.name,
                "share of the expected throughput at 512 KB",
                "share",
                at,
                1.0,
                "the paper: \"more than about 512 Kbytes\"",
            );
        }
    }
    Ok(records)
}

fn with_paper(mut record: Record, paper: f64) -> Record {
    record.paper = Some(paper);
    record
}
