//! Return addresses by unwind tables: a word that an ended call left in the hole of a live frame does not
//! keep code, and every call that is under way does.

mod common;

use std::arch::global_asm;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Holder, LONG, Stop, alone, of};
use uruk_roots::{Config, How, Roots, Wanted};

// Functions that call what they are given, with an address of `frames_ended` in a hole of their frames.
global_asm!(
    ".globl frames_ended, frames_ended_end",
    "frames_ended:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "call rdi",
    "frames_ended_after:",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    "frames_ended_end:",
    ".globl frames_plain, frames_plain_end",
    "frames_plain:",
    ".cfi_startproc",
    "sub rsp, 72",
    ".cfi_def_cfa_offset 80",
    "lea rax, [rip + frames_ended_after]",
    "mov [rsp + 16], rax",
    "call rdi",
    "add rsp, 72",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    "frames_plain_end:",
    ".globl frames_based, frames_based_end",
    "frames_based:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 64",
    "lea rax, [rip + frames_ended_after]",
    "mov [rsp + 16], rax",
    "call rdi",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    "frames_based_end:",
    ".globl frames_saving, frames_saving_end",
    // Saves the register by which the frame above is found.
    "frames_saving:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "xor ebp, ebp",
    "call rsi",
    "pop rbp",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    "frames_saving_end:",
    ".globl frames_bare, frames_bare_end",
    // No unwind table has it.
    "frames_bare:",
    "sub rsp, 72",
    "lea rax, [rip + frames_ended_after]",
    "mov [rsp + 16], rax",
    "call rdi",
    "add rsp, 72",
    "ret",
    "frames_bare_end:",
);

unsafe extern "C" {
    safe static frames_ended: u8;
    safe static frames_ended_end: u8;
    safe static frames_plain: u8;
    safe static frames_plain_end: u8;
    safe static frames_based: u8;
    safe static frames_based_end: u8;
    safe static frames_saving: u8;
    safe static frames_saving_end: u8;
    safe static frames_bare: u8;
    safe static frames_bare_end: u8;
}

type Calls = unsafe extern "C" fn(extern "C" fn(), extern "C" fn());

fn range(start: &'static u8, end: &'static u8) -> Range<u64> {
    &raw const *start as u64..&raw const *end as u64
}

fn ended() -> Range<u64> {
    range(&frames_ended, &frames_ended_end)
}

/// The function at the start of a range.
fn function(range: &Range<u64>) -> Calls {
    // SAFETY: functions above, which take what they call.
    unsafe { std::mem::transmute::<usize, Calls>(range.start as usize) }
}

fn no_rows(_: u64) -> Option<u64> {
    None
}

static WORD: AtomicU32 = AtomicU32::new(0);

extern "C" fn nothing() {}

/// Sleeps until the word changes.
extern "C" fn sleeps() {
    while WORD.load(Ordering::Acquire) == 0 {
        // SAFETY: a word that lives; no limit.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                WORD.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                0,
            )
        };
    }
}

/// Which of `functions`, and of the ended one, a thread keeps that runs `work`: with all words, and by
/// frames.
fn kept(functions: &[&Range<u64>], work: fn(&Stop)) -> [(Vec<bool>, bool); 2] {
    WORD.store(0, Ordering::Release);
    let holder = Holder::start(work);
    holder.wait_asleep();
    let mut ranges: Vec<Range<u64>> = functions.iter().map(|&it| it.clone()).collect();
    ranges.push(ended());
    let all = ranges.clone();
    ranges.sort_by_key(|range| range.start);
    let place = |range: &Range<u64>| ranges.iter().position(|it| it == range).expect("listed");
    let region = ranges[0].start..ranges.last().expect("one").end;
    let roots = Roots::new(region, Config::default()).expect("a scanner");
    let wanted = Wanted::new(ranges.clone()).expect("sorted");
    let tid = holder.tid;
    let found = [wanted.clone(), wanted.by_frames(no_rows)].map(|wanted| {
        // Scans by a thread that does not know the ranges: this one holds them.
        let report = std::thread::scope(|scope| {
            let scan = || roots.scan_threads(&[tid], &wanted, LONG);
            scope.spawn(scan).join().expect("no panic")
        });
        let thread = of(&report, tid);
        assert!(
            matches!(thread.how, How::Blocked { .. }),
            "{:?}",
            thread.how
        );
        let keeps: Vec<bool> = all
            .iter()
            .map(|range| thread.keeps.contains(&place(range)))
            .collect();
        let (ended, functions) = keeps.split_last().expect("the ended one");
        (functions.to_vec(), *ended)
    });
    WORD.store(1, Ordering::Release);
    // SAFETY: a word that lives.
    unsafe {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, WORD.as_ptr(), wake, i32::MAX)
    };
    holder.stop();
    found
}

fn plain() -> Range<u64> {
    range(&frames_plain, &frames_plain_end)
}

fn based() -> Range<u64> {
    range(&frames_based, &frames_based_end)
}

fn saving() -> Range<u64> {
    range(&frames_saving, &frames_saving_end)
}

fn bare() -> Range<u64> {
    range(&frames_bare, &frames_bare_end)
}

#[test]
fn words_of_ended_calls_do_not_count_by_frames() {
    let _alone = alone();
    let [all, frames] = kept(&[&plain()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&plain())(sleeps, nothing) };
    });
    assert_eq!(all, (vec![true], true));
    assert_eq!(frames, (vec![true], false));
}

extern "C" fn saves_and_sleeps() {
    // SAFETY: calls what it is given.
    unsafe { function(&saving())(nothing, sleeps) };
}

#[test]
fn frames_by_a_register_count_where_it_was_saved() {
    let _alone = alone();
    let [all, frames] = kept(&[&based(), &saving()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&based())(saves_and_sleeps, nothing) };
    });
    assert_eq!(all, (vec![true, true], true));
    assert_eq!(frames, (vec![true, true], false));
}

#[test]
fn no_call_is_lost_where_a_register_is_not_known() {
    let _alone = alone();
    let [_, frames] = kept(&[&based()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&based())(sleeps, nothing) };
    });
    assert_eq!(frames.0, [true]);
}

extern "C" fn calls_plain() {
    // SAFETY: calls what it is given.
    unsafe { function(&plain())(sleeps, nothing) };
}

#[test]
fn all_words_count_where_code_has_no_table() {
    let _alone = alone();
    let [all, frames] = kept(&[&bare(), &plain()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&bare())(calls_plain, nothing) };
    });
    assert_eq!(all, (vec![true, true], true));
    assert_eq!(frames, all);
}

extern "C" fn handler(_: i32) {
    sleeps();
}

extern "C" fn raises() {
    // SAFETY: a handler that sleeps; sent to the calling thread.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR2);
    }
}

#[test]
fn what_a_signal_interrupted_counts() {
    let _alone = alone();
    let [all, frames] = kept(&[&plain()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&plain())(raises, nothing) };
    });
    assert_eq!(all.0, [true]);
    assert_eq!(frames.0, [true]);
}

extern "C" fn compares(_: *const libc::c_void, _: *const libc::c_void) -> i32 {
    calls_plain();
    0
}

/// Through a function of the C library, and back.
extern "C" fn sorts() {
    let mut words = [2_u64, 1];
    // SAFETY: two words of eight bytes.
    unsafe { libc::qsort(words.as_mut_ptr().cast(), 2, 8, Some(compares)) };
}

#[test]
fn frames_of_libraries_are_passed() {
    let _alone = alone();
    let [_, frames] = kept(&[&plain(), &saving()], |stop| {
        stop.ready();
        // SAFETY: calls what it is given.
        unsafe { function(&saving())(nothing, sorts) };
    });
    assert_eq!(frames, (vec![true, true], false));
}

#[test]
fn all_words_count_while_stacks_are_registered() {
    let _alone = alone();
    let stack = vec![0_u64; 64];
    let start = stack.as_ptr() as u64;
    let found = kept_with(start..start + 512);
    assert!(found.contains(&0), "{found:?}");
}

/// The ranges that a thread keeps by frames, of the ended function alone, beside a registered stack.
fn kept_with(stack: Range<u64>) -> Vec<usize> {
    WORD.store(0, Ordering::Release);
    let holder = Holder::start(|stop| {
        stop.ready();
        calls_plain();
    });
    holder.wait_asleep();
    let roots = Roots::new(ended(), Config::default()).expect("a scanner");
    let id = roots.register_stack(stack).expect("a place");
    let wanted = Wanted::new(vec![ended()]).expect("one range");
    let report = roots.scan_threads(&[holder.tid], &wanted.by_frames(no_rows), LONG);
    roots.unregister_stack(id);
    WORD.store(1, Ordering::Release);
    // SAFETY: a word that lives.
    unsafe {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, WORD.as_ptr(), wake, i32::MAX)
    };
    let keeps = of(&report, holder.tid).keeps.clone();
    holder.stop();
    keeps
}
