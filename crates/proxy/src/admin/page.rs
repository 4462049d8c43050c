//! The page for browsers: static files, which are part of the program.
//!
//! The page only reads, from the same listener. Its policy (CSP) permits nothing else: no script
//! or style within the page, nothing of another origin, no frames.

use midspan_service::pages::{Reply, file};

/// Only the page's own files and answers of this listener. Nothing may frame the page, and forms
/// lead nowhere.
const POLICY: &str = "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at a path, if there is one.
pub(super) fn at(path: &str) -> Option<Reply> {
    let (kind, content) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => (
            "text/javascript; charset=utf-8",
            include_str!("page/page.js"),
        ),
        _ => return None,
    };
    Some(file(kind, content, POLICY))
}

#[cfg(test)]
mod tests {
    use midspan_service::pages::StatusCode;

    use super::*;

    const HTML: &str = include_str!("page/index.html");
    const SCRIPT: &str = include_str!("page/page.js");
    const STYLE: &str = include_str!("page/page.css");

    #[test]
    fn each_file_has_its_type_and_the_policy() {
        for (path, kind) in [
            ("/", "text/html; charset=utf-8"),
            ("/page.css", "text/css; charset=utf-8"),
            ("/page.js", "text/javascript; charset=utf-8"),
        ] {
            let reply = at(path).unwrap();
            assert_eq!(reply.status(), StatusCode::OK);
            assert_eq!(reply.headers()["content-type"], kind);
            assert_eq!(reply.headers()["content-security-policy"], POLICY);
            assert_eq!(reply.headers()["x-content-type-options"], "nosniff");
        }
        for other in ["", "/page", "/page.css/", "/page/page.js", "/index.html"] {
            assert!(at(other).is_none(), "{other}");
        }
    }

    /// The policy would stop all of this, and the page would not work.
    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        assert_eq!(HTML.matches("<script").count(), 1);
        assert!(HTML.contains("<script src=\"/page.js\" defer></script>"));
        assert!(!HTML.contains("<style") && !HTML.contains(" style="));
        // No attribute of an event, such as onclick.
        let mut tags = HTML.split('<').filter_map(|tag| tag.split('>').next());
        assert!(tags.all(|tag| !tag.contains(" on")));
        for file in [HTML, SCRIPT, STYLE] {
            assert!(!file.contains("://"), "an address of another origin");
        }
        // Names from the network never become HTML or a script.
        for call in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ] {
            assert!(!SCRIPT.contains(call), "{call}");
        }
    }

    #[test]
    fn each_place_that_the_script_fills_exists() {
        let mut wanted = SCRIPT
            .split("get(\"")
            .skip(1)
            .chain(SCRIPT.split("fill(\"").skip(1));
        assert!(wanted.all(|rest| {
            let id = rest.split('"').next().unwrap_or_default();
            HTML.contains(&format!("id=\"{id}\""))
        }));
    }
}
