//! Whole programs from bitcode to exit, cold: each run is a process of its own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use uruk_guests::compile::Source;
use uruk_guests::{Flavor, Guest, Level, Program};

use crate::bench::Bench;
use crate::contest::{self, Contender, Side};
use crate::row::{Figure, Row, Target, Unit};

/// The modes of `lli`, the one that starts programs soonest first.
pub const LLI_MODES: [(&str, &[&str]); 4] = [
    ("lli mcjit -O0", &["--jit-kind=mcjit", "-O0"]),
    ("lli mcjit", &["--jit-kind=mcjit"]),
    ("lli orc", &["--jit-kind=orc"]),
    ("lli orc-lazy", &["--jit-kind=orc-lazy"]),
];

/// A program to run whole.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// A guest and the name of one of its runs.
    Guest(Guest, &'static str),
    /// One `puts`.
    Hello,
}

impl Subject {
    /// Every program of the table.
    pub const ALL: [Subject; 10] = [
        Subject::Hello,
        Subject::Guest(Guest::Lua, "hello"),
        Subject::Guest(Guest::Lua, "fib"),
        Subject::Guest(Guest::Lua, "nbody"),
        Subject::Guest(Guest::Sqlite, "trivial"),
        Subject::Guest(Guest::Sqlite, "work"),
        Subject::Guest(Guest::Zstd, "round-trip"),
        Subject::Guest(Guest::Bzip2, "round-trip"),
        Subject::Guest(Guest::QuickJs, "hello"),
        Subject::Guest(Guest::QuickJs, "bench"),
    ];

    /// Its name in the table.
    pub fn name(self) -> String {
        match self {
            Subject::Hello => "hello world".to_owned(),
            Subject::Guest(guest, run) => format!("{guest} {run}"),
        }
    }

    fn target(self) -> Target {
        Target::RatioAtMost(match self {
            Subject::Hello => 0.7,
            Subject::Guest(Guest::Sqlite, "trivial") => 0.10,
            Subject::Guest(Guest::QuickJs, "hello") => 0.12,
            Subject::Guest(Guest::Lua, "hello") => 0.20,
            Subject::Guest(Guest::Zstd, _) => 0.35,
            Subject::Guest(Guest::Lua, "fib") => 0.4,
            Subject::Guest(..) => 0.5,
        })
    }

    fn build(self, bench: &Bench, level: Level) -> Result<(PathBuf, PathBuf, Vec<String>)> {
        let (built, args) = match self {
            Subject::Guest(guest, run) => (bench.guest(guest, level)?, guest.run_named(run)?.args),
            Subject::Hello => {
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/hello.c");
                let sources = vec![Source::new(source)];
                let program = Program {
                    name: "hello".to_owned(),
                    sources,
                    ..Program::default()
                };
                let flavor = Flavor::plain(level);
                (
                    program.build(&bench.tools, &bench.cache, flavor, 1, &|_, _| {})?,
                    Vec::new(),
                )
            }
        };
        Ok((built.bitcode, built.native, args))
    }
}

/// The rows of one program: the comparison, then what is for information.
///
/// # Errors
/// It cannot be built, or a command cannot be started.
pub fn measure(bench: &Bench, subject: Subject) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &level in bench.levels() {
        let (bitcode, native, args) = subject.build(bench, level)?;
        let mut command = vec![native.into()];
        command.extend(args.iter().map(Into::into));
        let executable = format!("clang -{level} executable", level = level.name());
        let mut contenders = vec![Contender::new(executable, Side::Reference, command)];
        contenders.extend(ours_and_peers(bench, &bitcode, &args, &LLI_MODES));
        let title = format!("{} {}", subject.name(), level.name());
        let contenders = contest::hold(bench, &title, None, contenders)?;
        let compared = compare(&subject.name(), subject.target(), &contenders);
        rows.extend(compared.into_iter().map(|row| row.level(level.name())));
    }
    Ok(rows)
}

/// A generated module of which little is called.
///
/// # Errors
/// A command cannot be started.
pub fn measure_sparse(bench: &Bench) -> Result<Vec<Row>> {
    const FUNCTIONS: usize = 5_000;
    const CALLED: usize = 10;
    let path = crate::generated::bitcode_file(bench, FUNCTIONS, CALLED)?;
    let name = format!("{FUNCTIONS} functions, {CALLED} called");
    let mut modes = LLI_MODES;
    // The peer of this row is compile on demand; it is timed to its end.
    modes.rotate_right(1);
    let contenders = ours_and_peers(bench, &path, &[], &modes);
    let contenders = contest::hold(bench, &name, Some("lli orc-lazy"), contenders)?;
    let mut rows = compare(&name, Target::Information, &contenders);
    let lazy = contenders.iter().find(|one| one.name == "lli orc-lazy");
    if let (Some(ours), Some(lazy)) = (contenders.iter().find(|one| one.side == Side::Ours), lazy) {
        let again = |row: &Row| row.peer.as_ref().is_some_and(|peer| peer.name == lazy.name);
        rows.retain(|row| row.name.contains("eager") || !again(row));
        rows.insert(0, pair(&name, ours, lazy).target(Target::RatioAtMost(0.5)));
    }
    Ok(rows.into_iter().map(|row| row.level("O0")).collect())
}

/// The same command against itself: what a ratio is worth on this machine now.
///
/// # Errors
/// It cannot be built, or a command cannot be started.
pub fn measure_noise(bench: &Bench) -> Result<Vec<Row>> {
    let (bitcode, _, args) = Subject::Guest(Guest::Lua, "hello").build(bench, Level::O0)?;
    let command = || bench.uruk_run("--lazy", &bitcode, &args);
    let contenders = vec![
        Contender::new("uruk", Side::Ours, command()),
        Contender::new("the same again", Side::Peer, command()),
    ];
    let contenders = contest::hold(bench, "noise", None, contenders)?;
    let row = pair("noise: lua hello, A and A", &contenders[0], &contenders[1]);
    Ok(vec![row.level("O0").note(
        "the ratio's distance from 1 is the machine's noise",
    )])
}

fn ours_and_peers(
    bench: &Bench,
    bitcode: &Path,
    args: &[String],
    modes: &[(&str, &[&str])],
) -> Vec<Contender> {
    let ours = |name: &str, mode: &str| {
        Contender::new(name, Side::Ours, bench.uruk_run(mode, bitcode, args))
    };
    let mut all = vec![ours("uruk lazy", "--lazy"), ours("uruk eager", "--eager")];
    for (name, flags) in modes {
        let command = bench.lli(flags, bitcode, args);
        all.extend(command.map(|command| Contender::new(*name, Side::Peer, command)));
    }
    all
}

/// Lazy against the fastest peer, which has the target, then the others.
fn compare(name: &str, target: Target, contenders: &[Contender]) -> Vec<Row> {
    let ours: Vec<&Contender> = contenders
        .iter()
        .filter(|one| one.side == Side::Ours)
        .collect();
    let Some((lazy, others)) = ours.split_first() else {
        return Vec::new();
    };
    let best = contest::fastest(contenders, Side::Peer);
    let Some(best) = best else {
        let figure = lazy.figure();
        let row = Row::new(name, Unit::CpuMs, figure).target(target);
        return vec![row.peer("lli", Figure::Failed("no mode runs it".to_owned()))];
    };
    let mut rows = vec![pair(name, lazy, best).target(target)];
    for other in others {
        let name = format!("  {name}, {}", other.name.trim_start_matches("uruk "));
        rows.push(pair(&name, other, best));
    }
    let rest = contenders
        .iter()
        .filter(|one| one.side != Side::Ours && one.name != best.name);
    rows.extend(rest.map(|one| pair(&format!("  {name}"), lazy, one)));
    rows
}

/// A row of one of ours and one peer.
pub fn pair(name: &str, ours: &Contender, peer: &Contender) -> Row {
    let mut row = Row::new(name, Unit::CpuMs, ours.figure()).peer(&*peer.name, peer.figure());
    row.wall = ours.wall_ms().zip(peer.wall_ms());
    row
}
