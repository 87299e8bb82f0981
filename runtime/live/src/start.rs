//! Start of the library: a constructor, the session's thread, and the outputs at the end.
//!
//! The constructor runs before those of the program. It reads the variable of the environment that `uruk
//! live` sets, removes itself from the environment (programs that this one starts run unchanged), and
//! starts a thread for the session. No signal handler runs on that thread, and it does not keep the
//! process alive.
//!
//! | the library is loaded by | settings | programs that this one starts |
//! |---|---|---|
//! | `uruk live` | its options | run as they are |
//! | the user's own `LD_PRELOAD` | those of `URUK_LIVE` ([`crate::settings`]), else the defaults | inherit the environment: the same |
//! | the program is linked with it | as above | as above |
//!
//! Without `uruk live` the library prints nothing in a process without bitcode, and starts no thread
//! there: with `LD_PRELOAD=... make`, most processes are such. It does not begin in a program that runs
//! with rights of its own, either (the loader does not preload it there, but it may be linked): the
//! environment of such a program comes from other users.
//!
//! The session is never destroyed: its threads run until the process ends, as for any embedder that
//! leaves by `exit`. The library that exports `__cxa_atexit` drops LLVM's handlers.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use uruk::StatsFormat;
use uruk_files::{Messages, OutputPath, say};

use crate::allocation::{self, own_allocation};
use crate::program::headers::{bitcode_size, carries_bitcode};
use crate::program::loaded::{self, Loaded};
use crate::session::{Live, LiveError};
use crate::settings::{Force, Settings, VARIABLE};
use crate::stage::{Stage, reach, wait_until};
use crate::{control, explain, force, stage, tunables};

/// Previous value of `LD_PRELOAD`.
pub const PRELOADED_BEFORE: &str = "URUK_LIVE_PRELOAD";

/// The session of the process, or its error, once it was started.
static LIVE: OnceLock<Result<Live, LiveError>> = OnceLock::new();

/// The settings of the process; its forked children have them, too.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The session of this process, if it exists by now.
pub fn live() -> Option<&'static Live> {
    LIVE.get()?.as_ref().ok()
}

/// Whether the process has more rights than the process that started it: the environment is ignored.
pub fn has_own_rights() -> bool {
    // SAFETY: reads what the kernel told the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Starts the library, unless the environment disables it. Called by the constructor of the preloaded
/// library, or by an executable that links this package, before it starts threads.
pub fn begin() {
    if has_own_rights() {
        return;
    }
    // SAFETY: the program has not begun: no other code uses the environment.
    unsafe { tunables::take_ours() };
    if let Some(name) = own_allocation() {
        // Nothing may be allocated here: the program's allocator has not begun.
        let asked = c"URUK_LIVE";
        // SAFETY: C strings, and bytes with their length.
        unsafe {
            if !libc::getenv(asked.as_ptr()).is_null() {
                say(b"uruk live: the program defines `");
                say(name.to_bytes());
                say(OWN_ALLOCATION);
                libc::unsetenv(asked.as_ptr());
                libc::unsetenv(c"LD_PRELOAD".as_ptr());
            }
        }
        return;
    }
    let by_command = std::env::var_os(PRELOADED_BEFORE).is_some();
    let words = std::env::var(VARIABLE).ok();
    let Some(settings) = Settings::asked(words.as_deref()) else {
        return;
    };
    let loaded = loaded::loaded();
    if by_command {
        // SAFETY: the program has not begun: no other code uses the environment.
        unsafe { restore_environment() };
    } else if !loaded.iter().any(|it| carries_bitcode(&it.file)) {
        return;
    }
    if settings.explain || settings.records() || settings.tuning.is_some() {
        // SAFETY: a function without arguments, of a library that stays.
        unsafe { libc::atexit(tell) };
        let _ = TOLD.set(Told::of(&settings));
        // Relaxed: read by this thread, or by others that began later.
        BEGUN.store(std::process::id(), Ordering::Relaxed);
    }
    let settings = SETTINGS.get_or_init(|| settings);
    let forced = settings.force != Force::No;
    // Files loaded now stay loaded; later ones may be closed again.
    let _ = LOADED.set(loaded);
    allocation::share_arena();
    uruk::live::enter_program();
    uruk::live::on_fork_in_child(in_child);
    if let Err(cause) = uruk::live::spawn_own("uruk-live", || run(settings)) {
        say!("uruk live: {cause}; the program runs as it is");
        return;
    }
    if settings.control {
        // Before the program opens files: it then gets the same descriptors as natively.
        control::serve(live_when_ready);
    }
    // Memory that a thread needs at its start may be gone once the program runs: the C library ends a
    // process that has no memory for it.
    wait_until(if forced { Stage::Ready } else { Stage::Begun });
}

/// The session, to answer a client; it starts at once even if the program is mostly idle. An error is
/// the reason why the program stays native.
fn live_when_ready() -> Result<&'static Live, String> {
    if LIVE.get().is_none() {
        stage::ask();
        wait_until(Stage::Ready);
    }
    match LIVE.get() {
        Some(Ok(live)) => Ok(live),
        Some(Err(cause)) => Err(cause.to_string()),
        // Relaxed: written before the stage was reached.
        None if WITHOUT_MEMORY.load(Ordering::Relaxed) => Err(NO_MEMORY.into()),
        None => Err("it is about to end, or has no thread to compile on".into()),
    }
}

/// Prepares the child of a fork, before its program goes on: it accepts clients, and starts a session of
/// its own if the parent had none yet. The parent's thread that was to start one does not exist here.
fn in_child() {
    let Some(settings) = SETTINGS.get() else {
        return;
    };
    if !stage::has_reached(Stage::Ready) {
        stage::begin_anew();
        // A process that cannot start a thread stays native.
        if uruk::live::spawn_own("uruk-live", || run(settings)).is_err() {
            reach(Stage::Ready);
        }
    }
    if settings.control {
        control::serve_in_child(live_when_ready);
    }
}

/// End of the message about a program that defines such functions itself.
const OWN_ALLOCATION: &[u8] =
    b"` itself, which the compiler would have to use; the program runs as it is\n";

/// The files that were loaded at the program's start.
static LOADED: OnceLock<Vec<Loaded>> = OnceLock::new();

static TOLD: OnceLock<Told> = OnceLock::new();

/// Outputs at the end. Their folders are opened before the program can change its working directory.
struct Told {
    settings: Settings,
    report: Option<OutputPath>,
    trace: Option<OutputPath>,
    tuning: Option<OutputPath>,
}

impl Told {
    fn of(settings: &Settings) -> Told {
        let open = |file: &Option<PathBuf>| {
            let file = file.as_deref()?;
            let opened = OutputPath::new(file);
            opened.inspect_err(|cause| say_of(file, cause)).ok()
        };
        Told {
            report: open(&settings.report),
            trace: open(&settings.trace),
            tuning: open(&settings.tuning),
            settings: settings.clone(),
        }
    }
}

/// The process that began; its forked children differ.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Writes the requested outputs at the end, in the process that began, not in forked children.
extern "C" fn tell() {
    if BEGUN.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let (Some(told), Some(live)) = (TOLD.get(), live()) else {
        if TOLD.get().is_some() && LIVE.get().is_none() {
            say!("uruk live: the program ended before it was looked at");
        }
        return;
    };
    let settings = &told.settings;
    if settings.explain {
        Messages.text(&explain::table(live));
    }
    if settings.stats == Some(StatsFormat::Table) {
        Messages.text(&explain::summary(live));
    }
    if let Some(format) = settings.stats {
        Messages.text(&live.jit.stats_text(format));
    }
    let page = || live.jit.report_page().map(String::into_bytes);
    write(told.report.as_ref(), page);
    write(told.trace.as_ref(), || {
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = live.jit.trace(&mut text);
        Some(text)
    });
    write(told.tuning.as_ref(), || {
        Some(live.jit.tuning_text().into_bytes())
    });
}

/// Writes an output to its file; prints an error.
fn write(file: Option<&OutputPath>, make: impl FnOnce() -> Option<Vec<u8>>) {
    let Some((file, text)) = file.and_then(|file| Some((file, make()?))) else {
        return;
    };
    if let Err(cause) = file.write(&text) {
        say_of(file.path(), &cause);
    }
}

/// Prints that a file could not be written.
fn say_of(file: &Path, cause: &std::io::Error) {
    say!("uruk live: {}: {cause}", file.display());
}

/// # Safety
/// No other code uses the environment meanwhile.
unsafe fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    // SAFETY: by the caller's promise.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Restores the environment from before `uruk live`.
///
/// # Safety
/// As [`take_variable`].
unsafe fn restore_environment() {
    // SAFETY: by the caller's promise.
    unsafe {
        take_variable(VARIABLE);
        match take_variable(PRELOADED_BEFORE) {
            Some(before) if !before.is_empty() => std::env::set_var("LD_PRELOAD", before),
            _ => std::env::remove_var("LD_PRELOAD"),
        }
    }
}

/// Main function of the session's thread.
fn run(settings: &Settings) {
    reach(Stage::Begun);
    let forced = settings.force != Force::No;
    if !forced {
        let own = || {
            let (file, bitcode) = bytes();
            patience(settings.overhead, file, bitcode)
        };
        wait_for(settings.after.unwrap_or_else(own));
    }
    if uruk::live::own_threads_end() {
        return reach(Stage::Ready);
    }
    if !has_memory() {
        for text in ["uruk live: ", NO_MEMORY, "; the program runs as it is\n"] {
            say(text.as_bytes());
        }
        WITHOUT_MEMORY.store(true, Ordering::Relaxed);
        reach(Stage::Ready);
        return watch_main_thread();
    }
    let Some(loaded) = LOADED.get() else {
        return reach(Stage::Ready);
    };
    let started = Live::start(loaded, settings);
    if let Err(cause) = &started {
        say!("uruk live: {cause}; the program runs as it is");
    }
    // No forked child finds it half set.
    uruk::live::uncopied(|| drop(LIVE.set(started)));
    let live = live();
    if let Some(live) = live {
        force::begin(live, settings.force);
    }
    reach(Stage::Ready);
    match live {
        Some(live) => force::go_on(live, settings.force),
        None => watch_main_thread(),
    }
}

/// Looks after the main thread in a process without a session, which would do it: threads of this library
/// would keep the process alive.
fn watch_main_thread() {
    while !uruk::live::own_threads_end() {
        uruk::live::look_at_main_thread();
        std::thread::sleep(LOOK);
    }
}

/// The reason if memory is short.
const NO_MEMORY: &str = "no memory is left to compile in";

/// Memory was too short. Relaxed: ordered by the stage.
static WITHOUT_MEMORY: AtomicBool = AtomicBool::new(false);

/// Whether there is enough memory to begin. The C library ends a process whose threads have no memory
/// for their exit handling: so memory is checked first, and nothing is allocated.
///
/// # Why
/// The session's reservation takes up to half of what is left (`uruk_heap::Room`), LLVM's library up to
/// 208 MiB, and eight threads their stacks. A program that had 170 to 270 MiB left was ended by the first
/// allocation that failed: by the loader for thread-local data, or by ours.
fn has_memory() -> bool {
    /// Memory that a session takes, and that it leaves.
    const NEEDED: usize = 384 << 20;
    // SAFETY: a fresh mapping, which no other code uses.
    unsafe {
        let (flags, none) = (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            std::ptr::null_mut(),
        );
        let room = libc::mmap(none, NEEDED, libc::PROT_NONE, flags, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, NEEDED) == 0
    }
}

/// Writes a message without a buffer.
fn say(text: &[u8]) {
    // SAFETY: bytes with their length.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Processor time of the process before its bitcode is read: until the time to read it is the allowed
/// part of that. What is compiled afterwards is limited together with it (`uruk_tiering::Config`).
///
/// # Why
/// sqlite's 3 MB take 0.5 s, so a run of a second took half as much again.
fn patience(percent: u16, file: u64, bitcode: u64) -> Duration {
    /// To open LLVM, and to start a session.
    const OPENING: Duration = Duration::from_millis(25);
    /// To read, rebind and adopt a byte of bitcode.
    const BYTE: Duration = Duration::from_nanos(170);
    /// To read a byte of the file, and to search its code.
    const FILE_BYTE: Duration = Duration::from_nanos(4);
    let all =
        |bytes: u64, one: Duration| one.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
    let cost = OPENING + all(bitcode, BYTE) + all(file, FILE_BYTE);
    match percent {
        0 => OPENING,
        percent => cost.saturating_mul(100) / u32::from(percent),
    }
}

/// Bytes of the files with bitcode that the program was loaded with, and of their bitcode.
fn bytes() -> (u64, u64) {
    let mut sum = (0_u64, 0_u64);
    for loaded in LOADED.get().into_iter().flatten() {
        let Some(bitcode) = bitcode_size(&loaded.file) else {
            continue;
        };
        let file = std::fs::metadata(&loaded.file).map_or(0, |it| it.len());
        sum = (sum.0.saturating_add(file), sum.1.saturating_add(bitcode));
    }
    sum
}

/// Time between two checks whether the main thread has ended without the C library's knowledge.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the process has used that much processor time, or a client asks.
fn wait_for(after: Duration) {
    loop {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a valid out pointer; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        let used = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        if used >= after || uruk::live::own_threads_end() {
            return;
        }
        // The main thread may have ended before there is a session.
        uruk::live::look_at_main_thread();
        let time = (after - used).clamp(Duration::from_millis(1), LOOK);
        if stage::wait_asked(time) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::patience;

    #[test]
    fn reading_is_a_small_part_of_the_run() {
        let ms = |percent, file, bitcode| patience(percent, file, bitcode).as_millis();
        // An empty program waits for what LLVM's opening takes; one with 3 MB of bitcode for long, and
        // so does one with much else in its file.
        assert_eq!(ms(4, 0, 0), 625);
        assert_eq!(ms(4, 4_000_000, 3_000_000), 13_775);
        assert_eq!(ms(4, 120_000_000, 8_000), 12_659);
        assert_eq!(ms(100, 0, 1_000_000), 195);
        // Without a limit a program that ends at once still costs nothing.
        assert_eq!(ms(0, u64::MAX, u64::MAX), 25);
        assert!(ms(1, 0, u64::MAX) > 3_600_000);
    }
}
