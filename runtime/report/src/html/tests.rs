//! Tests of pages as text; `tests/browser.rs` tests their layout.

use super::*;
use crate::compare::{Output, Row, Side};
use crate::recording::{
    Event, EventKind, Exchange, Function, FunctionId, Nanos, Period, Run, Sampling, State, Variant,
    Version, VersionId,
};

const ODD: &str = "<script>alert(\"&'\")</script>";
const ODD_ESCAPED: &str = "&lt;script&gt;alert(&quot;&amp;'&quot;)&lt;/script&gt;";

/// A recording with hostile input in every external text.
fn hostile() -> Recording {
    let odd = ODD.to_owned();
    let id = FunctionId(0);
    let tier = Tier::Guided;
    let version = Version {
        id: VersionId(0),
        tier,
        state: State::Published { at: Nanos(5) },
        compile: Nanos(7_000_000),
        instructions: 3,
        code_bytes: 9,
        samples: 0,
        disassembly: Some(format!("401000: {ODD}")),
    };
    let reason = odd.clone();
    let failed = EventKind::Failed {
        function: id,
        tier,
        reason,
    };
    let (function, text) = (Some(id), odd.clone());
    let exchange = Exchange {
        functions: vec![odd.clone()],
        added: vec![odd.clone()],
        dependents: vec![odd.clone()],
        level: odd.clone(),
        ..Exchange::default()
    };
    let kinds = [
        failed,
        EventKind::Policy { function, text },
        EventKind::Replaced(exchange),
    ];
    Recording {
        run: Run {
            program: odd.clone(),
            args: vec![odd.clone()],
            uruk: odd.clone(),
            llvm: odd.clone(),
            processor: odd.clone(),
            tiers: odd.clone(),
            ..Run::default()
        },
        sampling: Sampling {
            source: None,
            rejected: vec![(odd.clone(), odd.clone())],
        },
        functions: vec![Function {
            id,
            name: odd,
            entries: None,
            samples: 0,
            failures: 1,
            continues: false,
            versions: vec![version],
            variants: vec![Variant {
                tier,
                words: ODD.to_owned(),
                verdict: ODD.to_owned(),
                ratio: [0.9, 1.25, 9.0],
                pairs: 7,
                stays: true,
            }],
        }],
        events: kinds
            .map(|kind| Event {
                time: Nanos(1),
                kind,
            })
            .to_vec(),
        ..Recording::default()
    }
}

/// Checks that elements are closed in order. The only raw text with `<` in a page is the style
/// sheet, which is skipped.
fn check_nesting(page: &str) {
    const VOID: [&str; 4] = ["meta", "br", "!DOCTYPE", "hr"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("every tag ends");
        let tag = &rest[..end];
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{open:?}"),
            None if VOID.contains(&name) => {}
            None => open.push(name),
        }
        if name == "style" {
            rest = &rest[rest.find("</style").expect("the style sheet ends")..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Checks that the page is self-contained.
fn check_alone(page: &str) {
    for needle in [
        "<script", "<link", "<img", "src=", "href=", "url(", "@import", "http:", "https:",
    ] {
        assert!(!page.contains(needle), "{needle}");
    }
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let page = run(&hostile());
    check_nesting(&page);
    check_alone(&page);
    // Program, arguments, versions, processor, tiers, reasons, names, listing, a variant's words,
    // an exchange's.
    assert!(page.matches(ODD_ESCAPED).count() >= 18, "{page}");
}

#[test]
fn an_empty_run_says_why_there_is_nothing() {
    let page = run(&Recording::default());
    check_nesting(&page);
    check_alone(&page);
    for text in [
        "Sampling did not begin",
        "Nothing was compiled.",
        "Nothing of note happened.",
        "not known: no samples",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");

    let mut short = Recording::default();
    short.sampling.source = Some("timers".to_owned());
    assert!(run(&short).contains("too short, or slept too much"));
    let refused = ("perf".to_owned(), "not permitted".to_owned());
    let mut none = Recording::default();
    none.sampling.rejected.push(refused);
    let page = run(&none);
    assert!(page.contains("perf could not be used for sampling: not permitted."));
}

#[test]
fn what_was_replaced_is_listed_with_its_times_and_whether_it_went_back() {
    let fix = Exchange {
        number: 7,
        functions: vec!["answer".to_owned()],
        dependents: vec!["serve".to_owned()],
        level: "at once".to_owned(),
        took: Nanos(3_000_000),
        closed: Nanos(4_000),
        ..Exchange::default()
    };
    let event = |ms: u64, kind| Event {
        time: Nanos(ms * 1_000_000),
        kind,
    };
    let mut recording = Recording {
        wall: Nanos(100_000_000),
        events: vec![
            event(20, EventKind::Replaced(fix.clone())),
            event(
                70,
                EventKind::RolledBack(Exchange {
                    closed: Nanos(0),
                    ..fix
                }),
            ),
        ],
        periods: vec![Period {
            end: Nanos(100_000_000),
            samples: [1; Tier::RANKS],
            ..Period::default()
        }],
        ..Recording::default()
    };
    recording.totals.samples = [1; Tier::RANKS];
    let page = run(&recording);
    check_nesting(&page);
    check_alone(&page);
    for text in [
        "Functions replaced</h2>",
        "20.0\u{a0}ms</span><span><b>replaced</b> (no. 7): <code>answer; compiled again: serve</code>",
        "70.0\u{a0}ms</span><span><b>rolled back</b> (no. 7): <code>answer;",
        "at once; took 3.00\u{a0}ms, calls were held for 4.00\u{a0}µs",
        "at once; took 3.00\u{a0}ms, no call was held",
        "<path class=\"mark swapped\" d=\"M200 0V1000\">",
        "<path class=\"mark back\" d=\"M700 0V1000\">",
    ] {
        assert!(page.contains(text), "{text}");
    }
    recording.events.clear();
    let page = run(&recording);
    assert!(!page.contains("Functions replaced") && !page.contains("class=\"mark"));
}

#[test]
fn an_empty_comparison_is_a_page() {
    let page = compare(&Comparison::default());
    check_nesting(&page);
    check_alone(&page);
    assert!(page.contains("No way of running the program came to its end."));
    let row = Row {
        name: ODD.to_owned(),
        side: Side::Peer,
        runs: Vec::new(),
        build: None,
        output: Output::Failed {
            reason: ODD.to_owned(),
        },
        longer: Vec::new(),
        curve: Vec::new(),
    };
    let page = compare(&Comparison {
        rows: vec![row],
        reference: Some(7),
        ..Comparison::default()
    });
    check_nesting(&page);
    assert!(page.contains(ODD_ESCAPED));
}

#[test]
fn commands_are_quoted_for_a_shell() {
    let args = ["-x", "a b", "it's", ""].map(str::to_owned);
    assert_eq!(command_line("p.bc", &args), "p.bc -x 'a b' 'it'\\''s' ''");
    assert_eq!(
        (base_name("a/b/c.bc"), base_name("")),
        ("c.bc", "a program")
    );
}

#[test]
fn dates_out_of_range_are_left_out() {
    assert_eq!(
        date(1_780_000_000_000).as_deref(),
        Some("2026-05-28 20:26:40 UTC")
    );
    assert_eq!(date(0), None);
    assert_eq!(date(u64::MAX), None);
}

/// The value of `--name` in a part of the style sheet.
fn colour(part: &str, name: &str) -> [f64; 3] {
    let (_, rest) = part.split_once(&format!("--{name}: #")).expect(name);
    let channel = |at: usize| u32::from_str_radix(&rest[at..at + 2], 16).expect("hex");
    [0, 2, 4].map(|at| f64::from(channel(at)) / 255.0)
}

/// Contrast as WCAG 2 defines it.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let linear = |c: f64| {
        if c <= 0.04045 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    };
    let luminance =
        |c: [f64; 3]| 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_can_be_told_apart() {
    let (light, rest) = STYLE
        .split_once("@media (prefers-color-scheme: dark)")
        .expect("both");
    for part in [light, rest] {
        let of = |name| colour(part, name);
        for ground in ["back", "raised"] {
            for text in ["text", "soft", "accent"] {
                let found = contrast(of(text), of(ground));
                assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
            }
            for shape in ["t0", "t1", "t2", "t3"] {
                let found = contrast(of(shape), of(ground));
                assert!(found >= 3.0, "{shape} on {ground}: {found:.2}");
            }
        }
        // Optimized and guided differ by lightness alone; the others by hue as well.
        let found = contrast(of("t2"), of("t3"));
        assert!(found >= 2.0, "t2, t3: {found:.2}");
    }
}
