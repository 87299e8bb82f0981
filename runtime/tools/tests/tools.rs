//! Tests of gdb and perf on code of ours. The test `guest` is the program under inspection: run
//! with a role in the environment, it writes machine code into memory, reports it to the outputs
//! and runs it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use uruk_tools::symfile::{self, Frames, Symbol};
use uruk_tools::{Code, JitDump, Line, PERF_MAP_FOLDER, PerfMap, gdb};

const ROLE: &str = "URUK_TOOLS_GUEST";

/// `lea rax, [rdi]; l: dec rax; jnz l; ret`: takes about a nanosecond for each count.
const LOOP: &[u8] = &[0x48, 0x8d, 0x07, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3];

/// Counts, in all about a second of the CPU.
const COUNTS: u64 = 1_000_000_000;

/// Two functions, one calling the other. Lines matter to the tests.
const SOURCE: &str = "\
int jit_leaf(int x) {
    int square = x * x;
    return square + 1;
}
int jit_outer(int (*leaf)(int), int x) {
    int inner = leaf(x);
    return inner + 2;
}
";

/// Writable and executable memory.
fn memory(bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    base.cast()
}

/// Copies code to memory.
fn put(at: *mut u8, code: &[u8]) {
    // SAFETY: callers ensure that there is room.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
}

fn run_loop(at: *const u8, counts: u64) {
    // SAFETY: `LOOP` is at `at`.
    let function: extern "C" fn(u64) = unsafe { std::mem::transmute(at) };
    function(counts);
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uruk-profiler-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(output: std::process::Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// The command line of the guest.
fn guest_command() -> [String; 4] {
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().unwrap().to_owned();
    [exe, "guest".into(), "--exact".into(), "--nocapture".into()]
}

/// Runs in the folder that the role names, if there is one.
#[test]
fn guest() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let (role, place) = role.split_once(' ').unwrap_or((&role, ""));
    match role {
        "dump" => dump_guest(Path::new(place)),
        "map" => map_guest(),
        "symbols" => symbols_guest(),
        "frames" => frames_guest(),
        "object" => object_guest(Path::new(place)),
        _ => {
            // Runs the common part of all roles, as a test of its own.
            let at = memory(4096);
            put(at, LOOP);
            run_loop(at, 1_000);
        }
    }
}

fn dump_guest(folder: &Path) {
    let mut dump = JitDump::create(folder).unwrap();
    let base = memory(2 << 12);
    put(base, LOOP);
    let address = base as u64;
    let code = Code {
        name: "jit_before_move",
        address,
        bytes: LOOP,
    };
    let line = |offset, line| Line {
        address: address + offset,
        file: "made_up.c",
        line,
        discriminator: 0,
    };
    let index = dump.load(&code, &[line(0, 10), line(3, 11)]).unwrap();
    run_loop(base, COUNTS / 4);
    // SAFETY: inside the mapping.
    let moved = unsafe { base.add(4096) };
    put(moved, LOOP);
    let size = LOOP.len() as u64;
    dump.moved(index, address, moved as u64, size).unwrap();
    run_loop(moved, COUNTS / 4);
    // Other code reuses the first address.
    let code = Code {
        name: "jit_after_reuse",
        ..code
    };
    dump.load(&code, &[]).unwrap();
    run_loop(base, COUNTS / 4);
}

fn map_guest() {
    let mut map = PerfMap::create(Path::new(PERF_MAP_FOLDER)).unwrap();
    let base = memory(4096);
    put(base, LOOP);
    map.add(base as u64, LOOP.len() as u64, "jit in the map")
        .unwrap();
    run_loop(base, COUNTS / 2);
    eprintln!("map at {}", map.path().display());
}

fn symbols_guest() {
    let base = memory(4096);
    put(base, LOOP);
    let symbol = |name| Symbol {
        name,
        address: base as u64,
        size: LOOP.len() as u64,
    };
    let gone = gdb::register(symfile::of_symbols(&[symbol("jit_gone")], None).unwrap());
    drop(gone);
    let file = symfile::of_symbols(&[symbol("jit_loop")], None).unwrap();
    let registration = gdb::register(file);
    run_loop(base, 1_000);
    drop(registration);
    eprintln!("the guest is done");
}

/// `sub rsp, 24; mov rax, rdi; mov rdi, rsi; call rax; add rsp, 24; ret`: calls its first argument.
/// It has no frame pointer, so only a table tells where its caller is.
const CALL: &[u8] = &[
    0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18,
    0xc3,
];

/// The frame description of `CALL` at `code`, as it is in memory at `address`.
fn frames_of_call(code: u64, address: u64) -> Vec<u8> {
    // Version 1, "zR", factors 1 and -8, return address in column 16, addresses as
    // four bytes relative to themselves; at the entry the caller's frame is at rsp + 8
    // and the return address below it.
    let common = [
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    let mut bytes = common.to_vec();
    bytes.extend(20u32.to_le_bytes());
    bytes.extend(28u32.to_le_bytes());
    bytes.extend((code.wrapping_sub(address + 32) as u32).to_le_bytes());
    bytes.extend((CALL.len() as u32).to_le_bytes());
    // After the first instruction, of four bytes, it is at rsp + 32.
    bytes.extend([0, 0x44, 0x0e, 32, 0, 0, 0, 0]);
    bytes.extend(0u32.to_le_bytes());
    bytes
}

fn frames_guest() {
    let base = memory(4096);
    put(base, LOOP);
    // SAFETY: inside the mapping.
    let (call, table) = unsafe { (base.add(256), base.add(512)) };
    put(call, CALL);
    let bytes = frames_of_call(call as u64, table as u64);
    put(table, &bytes);
    let symbol = |name, at: *mut u8, code: &[u8]| Symbol {
        name,
        address: at as u64,
        size: code.len() as u64,
    };
    let symbols = [
        symbol("jit_loop", base, LOOP),
        symbol("jit_call", call, CALL),
    ];
    let frames = Frames {
        address: table as u64,
        bytes: &bytes,
    };
    let file = symfile::of_symbols(&symbols, Some(frames)).unwrap();
    let _registration = gdb::register(file);
    // SAFETY: `CALL` is there, and calls `LOOP` with its second argument.
    let function: extern "C" fn(*const u8, u64) = unsafe { std::mem::transmute(call) };
    function(base, 1_000);
    eprintln!("the guest is done");
}

/// Places the sections of an object that a C compiler made, as a linker would.
fn object_guest(object: &Path) {
    let bytes = std::fs::read(object).unwrap();
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let base = memory(1 << 16);
    let place = |name: &str| match name {
        ".text" => Some(base as u64),
        ".eh_frame" => Some(base as u64 + 0x8000),
        _ => None,
    };
    put(base, file.section_by_name(".text").unwrap().data().unwrap());
    let symfile = symfile::placed(&bytes, |_, name| place(name)).unwrap();
    let _registration = gdb::register(symfile);
    let address = |name| {
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name)).unwrap();
        base as usize + symbol.address() as usize
    };
    // SAFETY: compiled C functions of these types, without relocations in their code.
    let result = unsafe {
        let leaf: extern "C" fn(i32) -> i32 = std::mem::transmute(address("jit_leaf"));
        let outer: extern "C" fn(extern "C" fn(i32) -> i32, i32) -> i32 =
            std::mem::transmute(address("jit_outer"));
        outer(leaf, 6)
    };
    assert_eq!(result, 39);
    eprintln!("the guest is done");
}

/// Runs gdb on the guest; prints a message if there is none.
fn debug(role: &str, commands: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    let start = ["set breakpoint pending on", "set print thread-events off"];
    for command in start.iter().chain(commands) {
        gdb.args(["-ex", command]);
    }
    gdb.arg("--args").args(guest_command());
    gdb.env(ROLE, role).stdin(Stdio::null());
    match gdb.output() {
        Ok(output) => {
            let text = text(output);
            eprintln!("{text}");
            Some(text)
        }
        Err(error) => {
            eprintln!("skipped, gdb does not start: {error}");
            None
        }
    }
}

#[test]
fn gdb_breaks_on_a_named_function() {
    let commands = [
        "break jit_loop",
        "break jit_gone",
        "run",
        "bt 2",
        "continue",
    ];
    let Some(text) = debug("symbols", &commands) else {
        return;
    };
    assert!(text.contains("in jit_loop ()"), "a stop by name");
    assert!(
        text.contains("#1 ") && text.contains("run_loop"),
        "the caller"
    );
    assert!(!text.contains("in jit_gone ()"), "what was unregistered");
    assert!(text.contains("the guest is done"));
    assert!(text.contains("exited normally"));
}

#[test]
fn gdb_unwinds_by_the_tables_it_is_given() {
    let Some(text) = debug("frames", &["break jit_loop", "run", "bt 3", "continue"]) else {
        return;
    };
    let frame = |start: &str| text.lines().find(|line| line.starts_with(start));
    assert!(frame("#0 ").is_some_and(|line| line.contains("jit_loop")));
    assert!(frame("#1 ").is_some_and(|line| line.contains("jit_call")));
    assert!(frame("#2 ").is_some_and(|line| line.contains("frames_guest")));
    assert!(text.contains("the guest is done"));
}

#[test]
fn gdb_knows_lines_and_variables() {
    let folder = folder("object");
    let source = folder.join("jitted.c");
    let object = folder.join("jitted.o");
    std::fs::write(&source, SOURCE).unwrap();
    let compiled = Command::new("cc")
        .args(["-g", "-O0", "-c", "-fno-pic", "-fcf-protection=none"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(compiled.unwrap().success());
    let role = format!("object {}", object.display());
    let commands = [
        "break jitted.c:3",
        "run",
        "bt 3",
        "print square",
        "up",
        "print x",
        "info symbol $pc",
        "continue",
    ];
    let text = debug(&role, &commands);
    std::fs::remove_dir_all(&folder).unwrap();
    let Some(text) = text else {
        return;
    };
    assert!(text.contains("jitted.c:3"), "a stop by line");
    assert!(text.contains("#0  jit_leaf (x=6) at "), "the frame");
    let outer = text.lines().find(|line| line.starts_with("#1 "));
    let outer = outer.unwrap_or_default();
    assert!(outer.contains("jit_outer (") && outer.contains("jitted.c:6"));
    let caller = text.lines().find(|line| line.starts_with("#2 "));
    assert!(caller.unwrap_or_default().contains("object_guest ()"));
    assert!(text.contains("$1 = 36") && text.contains("$2 = 6"));
    assert!(text.contains("the guest is done"));
}

/// Runs `perf record` on the guest and returns the output of both, unless there is no perf or the
/// kernel forbids it.
fn record(role: &str, folder: &Path) -> Option<String> {
    let data = folder.join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-k", "1", "-e", "cpu-clock:u", "-F", "499", "-o"]);
    perf.arg(&data).arg("--").args(guest_command());
    perf.env(ROLE, role).env("HOME", folder).current_dir(folder);
    // A process group of its own, so that a signal of the terminal does not stop it half way.
    perf.stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let child = match perf.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped, perf does not start: {error}");
            return None;
        }
    };
    let output = child.wait_with_output().unwrap();
    let success = output.status.success();
    let text = text(output);
    eprintln!("{text}");
    let forbidden = [
        "No permission",
        "not permitted",
        "Permission denied",
        "not supported",
    ];
    if !success && forbidden.iter().any(|reason| text.contains(reason)) {
        eprintln!("skipped, the kernel forbids perf");
        return None;
    }
    assert!(success);
    Some(text)
}

fn perf(folder: &Path, words: &[&str]) -> String {
    let mut perf = Command::new("perf");
    perf.args(words).env("HOME", folder).current_dir(folder);
    let text = text(perf.output().unwrap());
    eprintln!("{text}");
    text
}

/// The share of samples of a symbol in `perf report`, percent.
fn share(report: &str, symbol: &str) -> f64 {
    let lines = report
        .lines()
        .filter(|line| line.trim_end().ends_with(symbol));
    let shares = lines.map(|line| {
        let share = line.split('%').next().unwrap_or_default().trim();
        share.parse::<f64>().unwrap_or_default()
    });
    shares.sum()
}

#[test]
fn perf_names_functions_of_a_dump() {
    let folder = folder("dump");
    let role = format!("dump {}", folder.display());
    if record(&role, &folder).is_some() {
        perf(
            &folder,
            &["inject", "--jit", "-i", "perf.data", "-o", "perf.jit"],
        );
        let report = perf(
            &folder,
            &["report", "--stdio", "-i", "perf.jit", "--sort", "sym"],
        );
        let before = share(&report, "jit_before_move");
        let after = share(&report, "jit_after_reuse");
        // A quarter of the counts before the move, a quarter after it, a quarter later.
        assert!(before > 50.0, "{before}");
        assert!((20.0..45.0).contains(&after), "{after}");
        lines_are_kept(&folder);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Checks the file that `perf inject` made of the first function.
fn lines_are_kept(folder: &Path) {
    let mut readelf = Command::new("readelf");
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut files = files.filter(|file| file.file_name().to_string_lossy().ends_with("-0.so"));
    let file = files.next().expect("a file for the first function");
    readelf.arg("--debug-dump=decodedline").arg(file.path());
    let table = text(readelf.output().unwrap());
    eprintln!("{table}");
    for line in ["10", "11"] {
        let row = |row: &str| row.starts_with("made_up.c") && row.contains(&format!(" {line} "));
        assert!(table.lines().any(row), "line {line}");
    }
}

#[test]
fn perf_names_functions_of_a_map() {
    let folder = folder("map");
    if let Some(printed) = record("map", &folder) {
        let report = perf(
            &folder,
            &["report", "--stdio", "-i", "perf.data", "--sort", "sym"],
        );
        let named = share(&report, "jit in the map");
        let map = printed
            .lines()
            .find_map(|line| line.strip_prefix("map at "));
        std::fs::remove_file(map.expect("the guest says where")).unwrap();
        assert!(named > 80.0, "{named}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
