//! Work that grows with the square of a program's size is a fault of ours.
//!
//! One module has a function, or a table, for each dimension in which programs get large: blocks
//! with a common target, cases of a switch, inputs of phis, labels, functions, moves at one edge,
//! loops in each other, constants, types of landing pads. It runs under callgrind in three sizes, each the
//! double of the one before. A function of ours whose own instructions grow by more than
//! [`GROWTH`] each time is named. Instructions are counted, not time, so that the machine's load
//! changes nothing; what LLVM does is not looked at. Nothing is compiled ahead, because how much is
//! depends on what the machine does else: `growth` of the package of tiers looks at that.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use uruk_e2e::subject::Subject;
use uruk_guests::toolchain::{self, Toolchain};

/// Growth of one function's instructions when all sizes double: 2 if they are linear, 4 if they
/// are quadratic.
const GROWTH: f64 = 2.9;

/// Instructions in the largest size below which a function is not looked at.
const FLOOR: u64 = 4_000_000;

/// The least size.
const SIZE: usize = 750;

/// One module with everything `n` times.
fn module(n: usize) -> String {
    let mut text = String::new();
    let mut calls = String::new();
    for (name, body) in DIMENSIONS {
        text.push_str(&body(n));
        let _ = writeln!(calls, "  call void @{name}(i32 5)");
    }
    let _ = write!(
        text,
        "declare i32 @__gxx_personality_v0(...)\n\
         define void @nothing(ptr %p) {{\n  ret void\n}}\n\
         define i32 @main() {{\n{calls}  ret i32 0\n}}\n"
    );
    text
}

/// The name of a function `void(i32)`, and the text that defines it.
type Dimension = (&'static str, fn(usize) -> String);

const DIMENSIONS: [Dimension; 15] = [
    ("blocks", blocks),
    ("backward", backward),
    ("nested", nested),
    ("cases", cases),
    ("inputs", inputs),
    ("edges", edges),
    ("labels", labels),
    ("shifted", shifted),
    ("arguments", arguments),
    ("constants", constants),
    ("pads", pads),
    ("variables", variables),
    ("functions", functions),
    ("intrinsics", intrinsics),
    ("globals", globals),
];

/// Each of `n` lines.
fn each(n: usize, line: impl FnMut(usize) -> String) -> String {
    (0..n).map(line).collect()
}

/// Lines with a comma between each two.
fn list(n: usize, item: impl FnMut(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(", ")
}

/// Blocks in a row that may all go to one.
fn blocks(n: usize) -> String {
    let lines = each(n, |i| {
        format!(
            "b{i}:\n  %c{i} = icmp eq i32 %a, {}\n  br i1 %c{i}, label %x, label %b{}\n",
            i + 9,
            i + 1
        )
    });
    format!(
        "define void @blocks(i32 %a) {{\n  br label %b0\n{lines}b{n}:\n  ret void\nx:\n  ret void\n}}\n"
    )
}

/// Blocks against the order of the file, each with a value of the one before.
fn backward(n: usize) -> String {
    let lines = each(n, |i| {
        let value = if i + 1 < n {
            format!("%v{}", i + 1)
        } else {
            "%a".into()
        };
        let to = if i > 0 {
            format!("b{}", i - 1)
        } else {
            "x".into()
        };
        format!(
            "b{i}:\n  %v{i} = add i32 {value}, 1\n  %c{i} = icmp eq i32 %v{i}, 1\n  \
             br i1 %c{i}, label %x, label %{to}\n"
        )
    });
    format!(
        "define void @backward(i32 %a) {{\n  br label %b{}\n{lines}x:\n  ret void\n}}\n",
        n - 1
    )
}

/// Loops in each other.
fn nested(n: usize) -> String {
    let heads = each(n, |i| {
        format!(
            "h{i}:\n  %c{i} = icmp eq i32 %a, {}\n  br i1 %c{i}, label %x, label %h{}\n",
            i + 9,
            i + 1
        )
    });
    let latches = each(n, |i| {
        let (at, to) = (n - 1 - i, n - 2 - i.min(n - 2));
        let to = if i + 1 < n {
            format!("l{to}")
        } else {
            "x".into()
        };
        format!(
            "l{at}:\n  %d{at} = icmp eq i32 %a, -{}\n  br i1 %d{at}, label %h{at}, label %{to}\n",
            at + 1
        )
    });
    format!(
        "define void @nested(i32 %a) {{\n  br label %h0\n{heads}h{n}:\n  br label %l{}\n{latches}\
         x:\n  ret void\n}}\n",
        n - 1
    )
}

/// A switch of cases to as many blocks.
fn cases(n: usize) -> String {
    let cases = list(n, |i| format!("i32 {}, label %l{i}", i * 7)).replace(", i32", " i32");
    let blocks = each(n, |i| {
        format!("l{i}:\n  store i32 {i}, ptr %p\n  ret void\n")
    });
    format!(
        "define void @cases(i32 %a) {{\n  %p = alloca i32\n  switch i32 %a, label %x [{cases}]\n\
         {blocks}x:\n  ret void\n}}\n"
    )
}

/// A phi whose inputs come from as many blocks.
fn inputs(n: usize) -> String {
    let cases = list(n, |i| format!("i32 {}, label %l{i}", i * 7)).replace(", i32", " i32");
    let blocks = each(n, |i| format!("l{i}:\n  br label %j\n"));
    let phi = |other: usize| list(n, |i| format!("[{}, %l{i}]", i + other));
    format!(
        "define void @inputs(i32 %a) {{\n  %p = alloca i32\n  switch i32 %a, label %x [{cases}]\n\
         {blocks}j:\n  %v = phi i32 {}\n  %w = phi i32 {}\n  %s = add i32 %v, %w\n  \
         store volatile i32 %s, ptr %p\n  ret void\nx:\n  ret void\n}}\n",
        phi(0),
        phi(1)
    )
}

/// A switch whose edges each need a move.
fn edges(n: usize) -> String {
    let cases = list(n, |i| format!("i32 {}, label %l{i}", i * 7)).replace(", i32", " i32");
    let blocks = each(n, |i| {
        format!(
            "l{i}:\n  %v{i} = phi i32 [{i}, %e]\n  store volatile i32 %v{i}, ptr %p\n  ret void\n"
        )
    });
    format!(
        "define void @edges(i32 %a) {{\ne:\n  %p = alloca i32\n  \
         switch i32 %a, label %x [{cases}]\n{blocks}x:\n  ret void\n}}\n"
    )
}

/// A jump to labels, each with a phi, by their addresses in a table.
fn labels(n: usize) -> String {
    let table = list(n, |i| format!("ptr blockaddress(@labels, %l{i})"));
    let targets = list(n, |i| format!("label %l{i}"));
    let blocks = each(n, |i| {
        format!(
            "l{i}:\n  %v{i} = phi i32 [{i}, %e]\n  store volatile i32 %v{i}, ptr %p\n  ret void\n"
        )
    });
    format!(
        "@places = internal global [{n} x ptr] [{table}]\n\
         define void @labels(i32 %a) {{\ne:\n  %p = alloca i32\n  \
         %s = getelementptr [{n} x ptr], ptr @places, i32 0, i32 %a\n  \
         %t = load ptr, ptr %s\n  indirectbr ptr %t, [{targets}]\n{blocks}}}\n"
    )
}

/// Phis of a loop that take each other's values.
fn shifted(n: usize) -> String {
    let phis = each(n, |i| {
        format!("  %p{i} = phi i32 [{i}, %e], [%p{}, %h]\n", (i + 1) % n)
    });
    format!(
        "define void @shifted(i32 %a) {{\ne:\n  %q = alloca i32\n  br label %h\nh:\n  \
         %i = phi i32 [0, %e], [%j, %h]\n{phis}  store volatile i32 %p0, ptr %q\n  \
         %j = add i32 %i, 1\n  %c = icmp sgt i32 %j, 3\n  br i1 %c, label %x, label %h\n\
         x:\n  ret void\n}}\n"
    )
}

/// A function of many parameters, which passes them on in another order.
fn arguments(n: usize) -> String {
    let parameters = list(n, |i| format!("i32 %p{i}"));
    let turned = list(n, |i| format!("i32 %p{}", n - 1 - i));
    let given = list(n, |i| format!("i32 {i}"));
    format!(
        "define void @taken({parameters}) {{\n  ret void\n}}\n\
         define void @passed({parameters}) {{\n  call void @taken({turned})\n  ret void\n}}\n\
         define void @arguments(i32 %a) {{\n  call void @passed({given})\n  ret void\n}}\n"
    )
}

/// Floating-point constants.
fn constants(n: usize) -> String {
    let lines = each(n, |i| format!("  %v{} = fadd double %v{i}, {i}.5\n", i + 1));
    format!(
        "define void @constants(i32 %a) {{\n  %p = alloca double\n  \
         %v0 = sitofp i32 %a to double\n{lines}  store volatile double %v{n}, ptr %p\n  \
         ret void\n}}\n"
    )
}

/// Calls with landing pads, each for another type.
fn pads(n: usize) -> String {
    let types = each(n, |i| format!("@type{i} = constant i32 0\n"));
    let blocks = each(n, |i| {
        format!(
            "b{i}:\n  invoke void @nothing(ptr null) to label %b{} unwind label %u{i}\n\
             u{i}:\n  %l{i} = landingpad {{ptr, i32}} catch ptr @type{i}\n  ret void\n",
            i + 1
        )
    });
    format!(
        "{types}define void @pads(i32 %a) personality ptr @__gxx_personality_v0 {{\n  \
         br label %b0\n{blocks}b{n}:\n  ret void\n}}\n"
    )
}

/// Variables of the frame.
fn variables(n: usize) -> String {
    let lines = each(n, |i| {
        format!("  %v{i} = alloca i32\n  call void @nothing(ptr %v{i})\n")
    });
    format!("define void @variables(i32 %a) {{\n{lines}  ret void\n}}\n")
}

/// Functions, each called once.
fn functions(n: usize) -> String {
    let bodies = each(n, |i| format!("define void @f{i}() {{\n  ret void\n}}\n"));
    let calls = each(n, |i| format!("  call void @f{i}()\n"));
    format!("{bodies}define void @functions(i32 %a) {{\n{calls}  ret void\n}}\n")
}

/// Calls that become calls of library functions, among many symbols.
fn intrinsics(n: usize) -> String {
    let symbols = each(n, |i| format!("@symbol{i} = global double 0.0\n"));
    let lines = each(n, |i| {
        format!(
            "  %v{i} = load double, ptr @symbol{i}\n  \
             %w{i} = call double @llvm.pow.f64(double %v{i}, double 2.5)\n  \
             store double %w{i}, ptr @symbol{i}\n"
        )
    });
    format!(
        "declare double @llvm.pow.f64(double, double)\n{symbols}\
         define void @intrinsics(i32 %a) {{\n{lines}  ret void\n}}\n"
    )
}

/// Variables that name each other, and a table of them.
fn globals(n: usize) -> String {
    let variables = each(n, |i| {
        format!(
            "@variable{i} = internal global ptr @variable{}\n",
            (i + 1) % n
        )
    });
    let table = list(n, |i| format!("ptr @variable{i}"));
    format!(
        "{variables}@table = global [{n} x ptr] [{table}]\n\
         define void @globals(i32 %a) {{\n  %v = load volatile ptr, ptr @table\n  ret void\n}}\n"
    )
}

/// Instructions of each function itself, by its name, as callgrind counted them.
fn counted(subject: &Subject, folder: &Path, n: usize) -> HashMap<String, u64> {
    let tools = Toolchain::find().expect("a toolchain");
    let text = folder.join(format!("{n}.ll"));
    let bitcode = folder.join(format!("{n}.bc"));
    fs::write(&text, module(n)).expect("a file");
    toolchain::run(
        Command::new(&tools.clang)
            .args(["-c", "-emit-llvm", "-Wno-override-module", "-O0"])
            .args(["-Xclang", "-disable-llvm-passes", "-o"])
            .args([&bitcode, &text]),
    )
    .expect("bitcode");
    let out = folder.join(format!("{n}.out"));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--smc-check=all-non-file"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(subject.program())
        .args(["run", "--tiers=1", "--no-speculate"])
        .arg(&bitcode)
        .output()
        .expect("valgrind");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    own_instructions(&fs::read_to_string(out).expect("callgrind's output"))
}

/// Adds up the lines of callgrind's format ("Callgrind Format Specification"): after `fn=` come
/// lines of positions and costs; the one after `calls=` is the callee's. Names are given once with
/// their number, as `(7) name`.
fn own_instructions(profile: &str) -> HashMap<String, u64> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut found: HashMap<String, u64> = HashMap::new();
    let mut function = "";
    let mut of_callee = false;
    for line in profile.lines() {
        if let Some((kind @ ("fn" | "cfn"), name)) = line.split_once('=') {
            let (number, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if kind == "fn" {
                function = names.get(number).copied().unwrap_or(number);
            }
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok());
            if !std::mem::take(&mut of_callee) {
                *found.entry(function.to_owned()).or_default() += cost.unwrap_or(0u64);
            }
        }
    }
    found
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uruk-growth-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn no_part_of_ours_takes_steps_by_the_square() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: not tried");
        return;
    }
    let subject = Subject::find().expect("uruk");
    let folder = folder();
    let [small, middle, large] = [1, 2, 4].map(|times| counted(&subject, &folder, times * SIZE));
    fs::remove_dir_all(folder).expect("removed");
    let mut report = String::new();
    for (name, &most) in &large {
        let before = |of: &HashMap<String, u64>| of.get(name).copied().unwrap_or(0).max(1) as f64;
        let (least, mid) = (before(&small), before(&middle));
        if most >= FLOOR && most as f64 / mid > GROWTH && mid / least > GROWTH {
            let _ = writeln!(report, "{name}: {least}, {mid}, {most} instructions");
        }
    }
    assert!(large.values().sum::<u64>() > 100 * FLOOR / 4, "nothing ran");
    assert!(report.is_empty(), "{report}");
}

#[test]
fn a_profile_is_added_up_without_callees() {
    let profile = "fl=(1) a.rs\nfn=(1) one\n3 5\n+1 7\ncfn=(2) two\ncalls=1 0\n+2 100\n4 1\n\nfn=(2)\n9 100\n";
    let found = own_instructions(profile);
    assert_eq!((found["one"], found["two"]), (13, 100));
}
