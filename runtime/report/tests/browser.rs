//! Tests of pages in a real browser: they fit the screen, in light and in dark.
//!
//! Chromium lays out the page in a frame of the wanted width (it refuses windows narrower than
//! about 500 px). A script that only the test adds reports its measurements, and the test reads the
//! DOM back. Without Chromium the test prints a message and passes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use uruk_report::{Comparison, Recording, html};

#[path = "../examples/sample.rs"]
mod sample;

/// A small phone, a usual one, a desktop.
const WIDTHS: [u32; 3] = [320, 390, 1280];

/// Measures the page it is in and tells the document around it.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const root = document.documentElement;
  const asked = new URLSearchParams(location.search);
  const open = asked.has("open");
  if (open)
    for (const part of document.querySelectorAll("details")) part.open = true;
  const width = root.clientWidth;
  const scrolls = (element) => {
    for (let e = element; e; e = e.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)) return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    return (box.right > width + 1 || box.left < -1) && !scrolls(e);
  });
  const small = [...document.querySelectorAll("summary")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.height > 0 && box.height < 24;
  });
  parent.postMessage({
    asked: Number(asked.get("width")), open, width, scroll: root.scrollWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    back: getComputedStyle(document.body).backgroundColor,
    wide: wide.slice(0, 5).map((e) => e.tagName + "." + e.getAttribute("class")).join(" "),
    small: small.length,
  }, "*");
});
</script>"#;

/// The browser, if there is one.
fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome", "chrome"]
        .into_iter()
        .find(|name| {
            let mut version = Command::new(name);
            version
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        })
}

/// Lays out `page` in frames of all widths, folded and unfolded; returns the probe's results.
fn measure(browser: &str, folder: &Path, page: &str, dark: bool) -> Vec<serde_json::Value> {
    let probed = page.replacen("</head>", &format!("{PROBE}</head>"), 1);
    assert_ne!(probed, page, "the page has a head");
    let mut around = "<!doctype html><body><script>const found = []; \
         addEventListener('message', (event) => { found.push(event.data); \
         document.body.setAttribute('data-found', JSON.stringify(found)); })</script>"
        .to_owned();
    for width in WIDTHS {
        for open in ["", "&open"] {
            let _ = write!(
                around,
                "<iframe src='page.html?width={width}{open}' width='{width}' height='900' \
                 style='border:0'></iframe>"
            );
        }
    }
    std::fs::write(folder.join("page.html"), probed).expect("a writable folder");
    let outer = folder.join("around.html");
    std::fs::write(&outer, around).expect("a writable folder");
    let scheme = u8::from(!dark); // Blink's numbers: 0 is dark, 1 is light.
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=10000"])
        .args(["--window-size=1400,1000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", outer.display()))
        .output()
        .expect("a browser that starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom
        .split_once("data-found=\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    let (found, _) = found.unwrap_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        panic!("the page told nothing:\n{dom}\n{complaint}")
    });
    serde_json::from_str(&found.replace("&quot;", "\"")).expect("what the probe wrote")
}

fn check(browser: &str, folder: &Path, name: &str, page: &str) {
    for dark in [false, true] {
        let frames = measure(browser, folder, page, dark);
        assert_eq!(frames.len(), 2 * WIDTHS.len(), "{name}: {frames:?}");
        for found in frames {
            let case = format!("{name}, dark {dark}: {found}");
            let of = |key: &str| found[key].as_u64().unwrap_or_default();
            // A scroll bar may take some of the width.
            let scroll_bar = of("asked").saturating_sub(of("width"));
            assert!(of("width") <= of("asked") && scroll_bar <= 20, "{case}");
            assert_eq!(of("scroll"), of("width"), "scrolls sideways: {case}");
            assert_eq!(found["wide"], "", "sticks out: {case}");
            assert_eq!(found["small"], 0, "too small to touch: {case}");
            assert_eq!(found["dark"], dark, "{case}");
            let back = if dark {
                "rgb(20, 23, 27)"
            } else {
                "rgb(251, 251, 250)"
            };
            assert_eq!(found["back"], back, "{case}");
        }
    }
}

/// Checks that the probe detects a page that is too wide; else the tests would prove nothing.
fn check_probe(browser: &str, folder: &Path) {
    let wide = "<!doctype html><html><head></head><body>\
                <p style='width:3000px'>wide</p><details><summary style='height:9px'>\
                </summary></details></body></html>";
    for found in measure(browser, folder, wide, false) {
        assert_eq!(
            (&found["wide"], &found["small"]),
            (&"P.null".into(), &1.into())
        );
        assert!(found["scroll"].as_u64() > Some(2900), "{found}");
    }
}

#[test]
fn pages_fit_the_screen() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium to lay out the pages with");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    check_probe(browser, path);
    check(browser, path, "run", &html::run(&sample::recording()));
    check(
        browser,
        path,
        "comparison",
        &html::compare(&sample::comparison()),
    );
    check(
        browser,
        path,
        "empty run",
        &html::run(&Recording::default()),
    );
    check(
        browser,
        path,
        "empty comparison",
        &html::compare(&Comparison::default()),
    );
}
