//! Sessions while the proxy is reloaded, drained, stopped or killed. A run without a proxy does
//! nothing at these points.

use rustix::io::Errno;

use super::transfer;
use crate::case::Case;
use crate::end::{End, WHILE};
use crate::error::{Played, Stop};
use crate::stage::Stage;
use crate::transcript::Event;

/// A session that the proxy cuts off must end with a reset: a FIN would look like the end of a
/// complete transfer or request.
const CUT_OFF: (&[Event], &[Event]) = (
    &[
        Event::Connected,
        Event::Received(100_000),
        Event::Sends(100),
        Event::Failed(Errno::CONNRESET),
    ],
    &[
        Event::Accepted,
        Event::Sends(100_000),
        Event::Received(100),
        Event::Failed(Errno::CONNRESET),
    ],
);

/// The cases.
pub const CASES: &[Case] = &[
    Case::new("proxy killed in the middle of a download", |stage| {
        cut_off(stage, |stage| stage.with_proxy(|proxy| proxy.kill()))
    })
    .expecting(CUT_OFF.0, CUT_OFF.1),
    Case::new("proxy ends at once after a signal", |stage| {
        cut_off(stage, |stage| {
            stage.with_proxy(|proxy| {
                proxy.drain();
                // The second signal must not arrive before the proxy has handled the first.
                std::thread::sleep(WHILE);
                proxy.stop();
            });
        })
    })
    .expecting(CUT_OFF.0, CUT_OFF.1),
    Case::new("proxy ends with its last session", proxy_drains),
    Case::new("proxy reloads with live sessions", proxy_reloads),
    Case::new("new session after a reload", new_session_after_reload),
];

fn cut_off(stage: &mut Stage<'_>, end_proxy: impl FnOnce(&mut Stage<'_>)) -> Played {
    let (mut client, mut server) = stage.pair()?;
    // The client reads to the last byte: if a socket is closed with unread data, the kernel sends a
    // reset.
    server.send(100_000)?;
    client.receive(100_000)?;
    client.send(100)?;
    server.receive(100)?;
    end_proxy(stage);
    client.receive_to_end()?;
    server.receive_to_end()
}

fn proxy_drains(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = live(stage)?;
    stage.with_proxy(|proxy| proxy.drain());
    std::thread::sleep(WHILE);
    goes_on(&mut client, &mut server)?;
    client.close();
    server.receive_to_end()?;
    server.close();
    stage.expect_proxy_to_end();
    Ok(())
}

fn proxy_reloads(stage: &mut Stage<'_>) -> Played {
    let (mut client, mut server) = live(stage)?;
    stage.with_proxy(|proxy| proxy.reload());
    std::thread::sleep(2 * WHILE);
    goes_on(&mut client, &mut server)?;
    client.close();
    server.receive_to_end()
}

fn new_session_after_reload(stage: &mut Stage<'_>) -> Played {
    let (client, mut server) = live(stage)?;
    stage.with_proxy(|proxy| proxy.reload());
    std::thread::sleep(2 * WHILE);
    let (mut second, mut its_server) = live(stage)?;
    goes_on(&mut second, &mut its_server)?;
    client.close();
    server.receive_to_end()?;
    second.close();
    its_server.receive_to_end()
}

fn live(stage: &mut Stage<'_>) -> Result<(End, End), Stop> {
    let (mut client, mut server) = stage.pair()?;
    client.send(100)?;
    server.receive(100)?;
    Ok((client, server))
}

/// Small data and bulk data, in both directions.
fn goes_on(client: &mut End, server: &mut End) -> Played {
    client.send(100)?;
    server.receive(100)?;
    transfer(server, client, 1_000_000)?;
    transfer(client, server, 1_000_000)
}
