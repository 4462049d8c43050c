//! Overlay nodes of a path, and the overlay routes over them.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::{OVERLAY_ROUTE_LIMIT, OverlayRole, OverlayRoute, OverlayRouteError, Path};

fn path(name: &str) -> Path {
    Path::load(name).unwrap()
}

fn routes(path: &Path, most_transit: usize) -> Vec<String> {
    let routes = path.overlay_routes(&path.flows[0], most_transit).unwrap();
    let texts = routes.iter().map(|route| path.overlay_route_text(route));
    texts.collect()
}

/// A path whose proxies are on one router: client and server on both sides of `a`.
fn star(proxies: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for name in ["client", "server"] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
    }
    for (name, overlay) in proxies {
        text += &format!("[[proxy]]\nname = \"{name}\"\n{overlay}\n");
    }
    let first = proxies[0].0;
    let others = proxies[1..].iter().map(|(name, _)| *name);
    for other in ["client", "server"].into_iter().chain(others) {
        text += &format!("[[link]]\nname = \"to-{other}\"\nbetween = [\"{other}\", \"{first}\"]\n");
    }
    text + "[[flow]]\nname = \"file\"\nfrom = \"client\"\nto = \"server\"\n\
            workload = \"download\"\nsize = \"1 MB\"\n"
}

fn read(text: &str) -> Result<Path, String> {
    Path::read(&Source::new("star.toml", text)).map_err(|error| error.to_string())
}

#[test]
fn the_routes_of_a_triangle() {
    let path = path("triangle");
    assert_eq!(routes(&path, 0), ["here", "sin"]);
    assert_eq!(routes(&path, 3), ["here", "sin", "fra/sin"]);
    let ingress = path.ingress(&path.flows[0]).unwrap();
    assert_eq!(path.node(ingress).name, "ams");
    assert_eq!(path.overlay_nodes().count(), 3);
}

#[test]
fn the_routes_of_five_sites_have_each_transit_node_once() {
    let path = path("mesh5");
    for (most_transit, count) in [(0, 2), (1, 5), (2, 11), (3, 17), (4, 17)] {
        let mut found = routes(&path, most_transit);
        assert_eq!(found.len(), count);
        found.dedup();
        assert_eq!(found.len(), count);
    }
    let all = routes(&path, 3);
    assert_eq!(all[..5], ["here", "syd", "bom/syd", "sin/syd", "bah/syd"]);
    assert_eq!(all[16], "bah/sin/bom/syd");
    for text in &all {
        let route = path.find_overlay_route(text).unwrap();
        assert_eq!(path.overlay_route_text(&route), *text);
        let stops = path.overlay_stops(&path.flows[0], &route).unwrap();
        assert_eq!(stops[1..], *route.nodes());
    }
}

#[test]
fn a_route_that_the_overlay_does_not_have_is_refused() {
    let path = path("mesh5");
    let refusal = |text: &str| {
        let route = path.find_overlay_route(text)?;
        path.overlay_stops(&path.flows[0], &route)
    };
    let message = |text: &str| refusal(text).unwrap_err().to_string();
    assert_eq!(
        message("lhr/syd"),
        "no node is called \"lhr\"; overlay nodes are cpt, bom, sin, bah, syd"
    );
    assert_eq!(
        message("bom"),
        "\"bom\" is no exit of the overlay: see the key `overlay` of a proxy"
    );
    assert_eq!(
        message("syd/syd"),
        "\"syd\" is no transit node of the overlay: see the key `overlay` of a proxy"
    );
    assert_eq!(
        message("client").split(':').next().unwrap(),
        "\"client\" is no exit of the overlay"
    );
    assert_eq!(message("bom/sin/bom/syd"), "the route passes \"bom\" twice");
    assert_eq!(message("cpt/syd"), "the route passes \"cpt\" twice");
    let long = OverlayRoute::new(vec![path.find_node("bom").unwrap(); 5]);
    let error = path.overlay_stops(&path.flows[0], &long).unwrap_err();
    assert_eq!(error, OverlayRouteError::TooLong { nodes: 5 });
}

#[test]
fn a_flow_enters_the_overlay_on_its_path() {
    let path = path("geo");
    let flow = path.flows[0].name.clone();
    let error = path.ingress(&path.flows[0]).unwrap_err();
    assert_eq!(error, OverlayRouteError::NoIngress { flow });
    // An overlay node off the path is none.
    let aside = read(&star(&[("a", ""), ("b", "overlay = { exit = true }")])).unwrap();
    assert!(aside.ingress(&aside.flows[0]).is_err());
}

#[test]
fn there_are_not_too_many_routes() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let role = "overlay = { transit = true, exit = true }";
    let proxies: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), role)).collect();
    let path = read(&star(&proxies)).unwrap();
    let flow = &path.flows[0];
    let few = path.overlay_routes(flow, 1).unwrap();
    assert_eq!(few.len(), 1 + 19 + 19 * 18);
    assert!(few.len() <= OVERLAY_ROUTE_LIMIT);
    let error = path.overlay_routes(flow, 2).unwrap_err();
    assert!(
        matches!(error, OverlayRouteError::TooMany { .. }),
        "{error}"
    );
}

#[test]
fn the_key_of_an_overlay_node_is_read_and_written() {
    let path = read(&star(&[
        ("a", "overlay = {}"),
        ("b-2", "overlay = { transit = true, exit = true }"),
        ("C", ""),
    ]))
    .unwrap();
    let roles: Vec<Option<OverlayRole>> = path.proxies().map(|(_, proxy)| proxy.overlay).collect();
    let both = OverlayRole {
        transit: true,
        exit: true,
    };
    assert_eq!(roles, [Some(OverlayRole::default()), Some(both), None]);
    let again = read(&path.to_text().unwrap()).unwrap();
    assert_eq!(again, path);
    for (name, reason) in [
        ("C", "`C` is no name of an overlay node"),
        ("b.2", "`b.2` is no name of an overlay node"),
        ("here", "`here` is no name of an overlay node"),
        ("all", "`all` is no name of an overlay node"),
    ] {
        let error = read(&star(&[("a", ""), (name, "overlay = {}")])).unwrap_err();
        assert!(error.starts_with("star.toml:9:8: "), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}
