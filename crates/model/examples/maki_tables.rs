//! Prints Tables I and II of Maki et al. beside the paper's figures.

use midspan_model::ModelError;
use midspan_model::papers::maki;

fn main() -> Result<(), ModelError> {
    println!("Table I: throughput relative to one connection, 32 hops");
    println!("  legs        paper   Eq. (1), single   Eq. (1), double");
    for row in maki::table_1() {
        println!(
            "{:6} {:12.6} {:17.6} {:17.6}",
            row.legs, row.paper, row.single, row.double
        );
    }
    println!();
    println!("Table II: Mbit/s with one proxy; §III with a send buffer of 64 packets");
    println!("  network        at    paper   Eq. (1)   §III printed   §III conserving");
    for cell in maki::table_2()? {
        println!(
            "  {:13} R{} {:8.3} {:9.3} {:14.3} {:17.3}",
            format!("{:?}", cell.network).to_lowercase(),
            cell.router,
            cell.paper,
            cell.expected.megabits_per_second(),
            cell.printed.throughput.megabits_per_second(),
            cell.conserving.throughput.megabits_per_second(),
        );
    }
    println!();
    println!("Fig. 11: share of the expected throughput by send buffer, three equal legs");
    println!("  send buffer   §III printed   §III conserving");
    let path = maki::figure_7_path([maki::figure_10_network(); 3])?;
    for kilobytes in [8, 16, 32, 64, 128, 256, 512, 1024] {
        let size = midspan_units::ByteSize::from_bytes(kilobytes * 1000);
        let share = |reading| {
            maki::split(&path, reading, maki::FIGURE_11_RECEIVE_BUFFER, size)
                .map(|outcome| 1.0 - outcome.coupling_loss())
        };
        println!(
            "{:10} KB {:14.3} {:17.3}",
            kilobytes,
            share(midspan_model::overlay::Reading::Printed)?,
            share(midspan_model::overlay::Reading::Conserving)?,
        );
    }
    Ok(())
}
