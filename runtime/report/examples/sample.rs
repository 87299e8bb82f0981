//! Renders a made-up but realistic recording, for inspection and for the tests.
//!
//! `cargo run -p uruk-report --example sample -- run.html compare.html trace.json` writes the page
//! of a run, the page of a comparison and a trace. With fewer names it writes fewer of them; with
//! none, it prints the tables for a terminal.
//!
//! A seeded generator makes all data, so two runs write the same bytes.

use std::fmt::Write as _;
use std::process::ExitCode;

use uruk_report::compare::{Comparison, Iteration, Output, Row, Side, Times};
use uruk_report::{
    Compile, Drain, Ending, Exchange, FunctionId, Hit, Limits, Link, Lookup, LookupKind, Nanos,
    Place, Recorder, Recording, Run, Sampling, Tier, VersionId,
};

const MS: u64 = 1_000_000;

/// Names with their share of the time, and their size in IR instructions.
const HOT: [(&str, f64, u32); 9] = [
    ("sqlite3VdbeExec", 0.31, 11_204),
    ("sqlite3BtreeTableMoveto", 0.14, 412),
    ("vdbeRecordCompareString", 0.11, 188),
    ("sqlite3VdbeSerialGet", 0.09, 240),
    ("pcache1Fetch", 0.07, 96),
    ("balance_nonroot", 0.06, 2_870),
    ("sqlite3GetVarint", 0.05, 160),
    (
        "std::vector<std::pair<std::string, int>, std::allocator<std::pair<std::string, int> > >::emplace_back<const char (&)[6], int&>",
        0.03,
        310,
    ),
    ("btreeParseCellPtr", 0.02, 140),
];

/// A small generator (xorshift), so that the sample needs no crate.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// A run of 2.4 seconds with 240 functions, of which nine are hot.
pub fn recording() -> Recording {
    let run = Run {
        program: "bitcode/sqlite3-shell.bc".to_owned(),
        args: [
            "-batch",
            ":memory:",
            "select count(*) from t where name like 'a%'",
        ]
        .map(str::to_owned)
        .to_vec(),
        uruk: "0.1.0".to_owned(),
        llvm: "22.1.8".to_owned(),
        processor: "znver4".to_owned(),
        jobs: 2,
        tiers: "auto".to_owned(),
        started_unix_ms: 1_780_000_000_000,
    };
    let recorder = Recorder::new(run, Nanos(0), Limits::default());
    recorder.sampling(&Sampling {
        source: Some("perf (cpu-clock)".to_owned()),
        rejected: vec![(
            "perf (cycles)".to_owned(),
            "this machine has no counters".to_owned(),
        )],
    });
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut versions = first_calls(&recorder, &mut random);
    promotions(&recorder, &mut random, &mut versions);
    exchanges(&recorder);
    samples(&recorder, &mut random, &versions);
    for (function, _) in HOT.iter().enumerate() {
        let calls = 40_000 + random.below(4_000_000);
        recorder.entries(FunctionId(function as u32), calls);
    }
    for (function, of_function) in recorder.hottest(5) {
        for version in of_function {
            recorder.disassembled(version, &listing(&mut random, function, version));
        }
    }
    let ending = Ending {
        time: Nanos(2_412 * MS),
        cpu: Nanos(2_958 * MS),
        exit: Some(0),
        defined: 3_718,
    };
    recorder.finish(ending).unwrap_or_default()
}

/// A version and the stretch of time in which it is called.
struct Live {
    function: usize,
    version: VersionId,
    tier: Tier,
    from: u64,
    until: u64,
}

fn name(function: usize) -> String {
    HOT.get(function).map_or_else(
        || format!("sqlite3_helper_{function}"),
        |hot| hot.0.to_owned(),
    )
}

fn compile(
    recorder: &Recorder,
    (function, version, tier): (usize, VersionId, Tier),
    (worker, waited, start, length): (u32, u64, u64, u64),
    instructions: u32,
) {
    let bytes = [0, 11, 6, 7][tier.rank()] * u64::from(instructions);
    let end = Nanos(start + length);
    let id = FunctionId(function as u32);
    recorder.linked(&Link {
        function: Some(id),
        place: Place::Worker(worker),
        start: Nanos(start + length - length / 8),
        end,
    });
    recorder.compiled(
        &name(function),
        &Compile {
            function: id,
            version,
            tier,
            continues: false,
            place: Place::Worker(worker),
            waited: Nanos(waited),
            start: Nanos(start),
            end,
            instructions,
            code_bytes: bytes,
        },
    );
}

/// Compiles every function at its first call.
fn first_calls(recorder: &Recorder, random: &mut Random) -> Vec<Live> {
    let mut now = 9 * MS;
    let mut live = Vec::new();
    for function in 0..240 {
        let instructions = HOT
            .get(function)
            .map_or_else(|| 20 + random.below(300) as u32, |h| h.2);
        let length = 120_000 + u64::from(instructions) * 900;
        let version = VersionId(function as u64);
        compile(
            recorder,
            (function, version, Tier::Baseline),
            (0, 4_000, now + 4_000, length),
            instructions,
        );
        let end = now + 4_000 + length;
        recorder.published(
            Nanos(end),
            FunctionId(function as u32),
            version,
            Tier::Baseline,
        );
        recorder.looked_up(&Lookup {
            name: name(function),
            kind: LookupKind::FirstCall,
            place: Place::Thread(4_711),
            start: Nanos(now),
            end: Nanos(end + 3_000),
        });
        live.push(Live {
            function,
            version,
            tier: Tier::Baseline,
            from: end,
            until: u64::MAX,
        });
        // Most code is called early, some much later.
        now = end
            + if function < 150 {
                random.below(60_000)
            } else {
                random.below(9 * MS)
            };
    }
    live
}

/// Promotes the hot functions to tier 2, most of them to tier 3; one compile fails, one is late.
fn promotions(recorder: &Recorder, random: &mut Random, live: &mut Vec<Live>) {
    let mut next = VersionId(1000);
    let mut free = [30 * MS, 32 * MS];
    for tier in [Tier::Optimized, Tier::Guided] {
        for (function, (_, _, instructions)) in HOT.into_iter().enumerate() {
            let id = FunctionId(function as u32);
            let worker = usize::from(free[1] < free[0]);
            let start = free[worker] + random.below(2 * MS);
            let length = MS + u64::from(instructions) * 24_000;
            free[worker] = start + length;
            let end = Nanos(start + length);
            if function == 5 && tier == Tier::Guided {
                let reason = "LLVM: cannot select: t12: v8i64 = X86ISD::VPERMV t9, t11";
                recorder.failed(end, &name(function), id, tier, reason);
                continue;
            }
            let waited = random.below(6 * MS);
            let what = (function, next, tier);
            compile(
                recorder,
                what,
                (worker as u32, waited, start, length),
                instructions,
            );
            if function == 8 && tier == Tier::Guided {
                recorder.dropped(end, id, next, "the function was redefined meanwhile");
                continue;
            }
            recorder.published(end, id, next, tier);
            if let Some(old) = live.iter_mut().rfind(|v| v.function == function) {
                old.until = end.0;
            }
            live.push(Live {
                function,
                version: next,
                tier,
                from: end.0,
                until: u64::MAX,
            });
            next = VersionId(next.0 + 1);
        }
        // Guided code is compiled when there is a profile.
        free = [640 * MS, 655 * MS];
    }
    recorder.noted(
        Nanos(33 * MS),
        Some(FunctionId(0)),
        "queued first: 2,140 back edges in 3 ms",
    );
    recorder.noted(
        Nanos(1_200 * MS),
        None,
        "quiet: counters are read every 100 ms from now on",
    );
}

/// Replaces functions by a fix while the program runs, and rolls it back.
fn exchanges(recorder: &Recorder) {
    let fix = Exchange {
        number: 1,
        functions: vec![name(3), name(7)],
        added: vec!["checked_get".to_owned()],
        dependents: vec![name(0)],
        unnamed: 0,
        level: "at once".to_owned(),
        took: Nanos(21 * MS),
        closed: Nanos(3_400),
    };
    recorder.replaced(Nanos(1_300 * MS), &fix);
    recorder.rolled_back(Nanos(1_900 * MS), &fix);
}

/// 1 kHz for 200 ms, then 200 Hz; the program pauses for 150 ms.
fn samples(recorder: &Recorder, random: &mut Random, live: &[Live]) {
    let mut now = 10 * MS;
    while now < 2_412 * MS {
        let burst = now < 200 * MS;
        let (rate_hz, overhead) = if burst {
            (1000.0, 0.014)
        } else {
            (200.0, 0.0028)
        };
        let pause = (1_500 * MS..1_650 * MS).contains(&now);
        let hits: Vec<Hit> = (0..u32::from(!pause))
            .map(|_| Hit {
                time: Nanos(now),
                code: place(random, live, now),
                count: 1,
            })
            .collect();
        recorder.drained(&Drain {
            time: Nanos(now),
            hits: &hits,
            lost: u64::from(random.below(400) == 0),
            uncovered: 0,
            rate_hz,
            overhead,
            queue: if now < 700 * MS { random.below(9) } else { 0 },
        });
        now += if burst { MS } else { 5 * MS };
    }
}

/// The place of a sample: hot functions by their share, else any function, or libraries.
fn place(random: &mut Random, live: &[Live], now: u64) -> Option<(VersionId, Tier)> {
    let mut ticket = random.below(1000) as f64 / 1000.0;
    let hot = HOT.iter().position(|(_, part, _)| {
        ticket -= part;
        ticket < 0.0
    });
    let function = match hot {
        Some(function) => function,
        None if random.below(3) == 0 => 9 + random.below(120) as usize,
        None => return None,
    };
    let running = |v: &&Live| v.function == function && v.from <= now && now < v.until;
    let found = live.iter().find(running)?;
    Some((found.version, found.tier))
}

/// A text that looks like disassembly.
fn listing(random: &mut Random, function: FunctionId, version: VersionId) -> String {
    const LINES: [&str; 10] = [
        "push   %rbp",
        "mov    %rsp,%rbp",
        "mov    -0x18(%rbp),%rax",
        "movzbl (%rax,%rcx,1),%edx",
        "vpcmpeqb (%rdi),%ymm0,%ymm1",
        "call   *slot of sqlite3VdbeSerialGet(%rip)",
        "cmp    $0x7f,%dl",
        "ja     7f3a40012c80",
        "lea    0x1(%rcx),%rcx",
        "ret",
    ];
    let mut text = String::new();
    let mut address = 0x7f3a_4001_0000 + u64::from(function.0) * 0x1000 + version.0 * 0x40;
    let lines = if version.0 < 1000 { 46 } else { 24 };
    for _ in 0..lines {
        let line = LINES[random.below(LINES.len() as u64) as usize];
        let _ = writeln!(text, "{address:x}:\t{line}");
        address += 1 + random.below(7);
    }
    text
}

/// A comparison of eight ways to run; one failed and one was skipped.
pub fn comparison() -> Comparison {
    let mut random = Random(99);
    let ways = [
        ("tier 1", Side::Uruk, 6_900, 0),
        ("tier 2", Side::Uruk, 2_610, 0),
        ("tier 3", Side::Uruk, 2_840, 0),
        ("tiered", Side::Uruk, 2_412, 0),
        ("clang -O0", Side::Peer, 6_300, 470),
        ("clang -O2", Side::Peer, 2_290, 4_400),
    ];
    let mut rows: Vec<Row> = ways
        .into_iter()
        .map(|(name, side, ms, build)| Row {
            name: name.to_owned(),
            side,
            runs: runs(&mut random, ms),
            build: (build > 0).then_some(Nanos(build * MS)),
            output: Output::Same,
            longer: Vec::new(),
            curve: if side == Side::Uruk {
                curve(&mut random, name, ms)
            } else {
                Vec::new()
            },
        })
        .collect();
    let odd = |name: &str, output| Row {
        name: name.to_owned(),
        side: Side::Peer,
        runs: Vec::new(),
        build: None,
        output,
        longer: Vec::new(),
        curve: Vec::new(),
    };
    let reason = "ended by signal 11 after 1.2 s".to_owned();
    rows.push(odd("lli --jit-kind=orc-lazy", Output::Failed { reason }));
    let reason = "clang -O3 was not asked for".to_owned();
    rows.push(odd("clang -O3", Output::Skipped { reason }));
    Comparison {
        program: "bitcode/sqlite3-shell.bc".to_owned(),
        args: vec!["-batch".to_owned()],
        uruk: "0.1.0".to_owned(),
        llvm: "22.1.8".to_owned(),
        processor: "znver4".to_owned(),
        started_unix_ms: 1_780_000_000_000,
        rows,
        reference: Some(5),
    }
}

fn runs(random: &mut Random, ms: u64) -> Vec<Times> {
    let run = |_| {
        let wall = ms * MS + random.below(ms * MS / 8);
        Times {
            wall: Nanos(wall),
            cpu: Nanos(wall + wall / 9),
        }
    };
    (0..5).map(run).collect()
}

fn curve(random: &mut Random, name: &str, ms: u64) -> Vec<Iteration> {
    let steady = ms * MS / 120;
    let mut at = 12 * MS;
    let step = |n: u64| {
        let warm = match name {
            "tiered" if n < 4 => 3,
            "tiered" if n < 14 => 2,
            _ => 1,
        };
        let took = steady * warm + random.below(steady / 10);
        at += took;
        Iteration {
            at: Nanos(at),
            took: Nanos(took),
        }
    };
    (0..110).map(step).collect()
}

/// Writes the files named on the command line.
#[allow(dead_code, reason = "the tests include this file for its data")]
fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let recording = recording();
    if paths.is_empty() {
        print!(
            "{}\n{}",
            uruk_report::text::run(&recording, 12),
            comparison().render()
        );
    }
    let mut trace = Vec::new();
    if let Err(error) = uruk_report::trace::write(&recording, &mut trace) {
        eprintln!("sample: {error}");
        return ExitCode::FAILURE;
    }
    let files = [
        uruk_report::html::run(&recording).into_bytes(),
        uruk_report::html::compare(&comparison()).into_bytes(),
        trace,
    ];
    for (path, bytes) in paths.iter().zip(files) {
        if let Err(error) = std::fs::write(path, bytes) {
            eprintln!("sample: {path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
