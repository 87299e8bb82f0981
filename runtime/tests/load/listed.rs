//! Images of sessions in the list of `dl_iterate_phdr`, for embedders who ask for it.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use uruk::{Jit, ReclaimKind};
use uruk_testing::in_own_process;

/// The findings of one look at the list.
#[derive(Default)]
struct Look {
    /// Of writable segments, of all others, and of the calling thread's variables.
    writable: Vec<(u64, u64)>,
    constant: Vec<(u64, u64)>,
    threads: Vec<(u64, u64)>,
    names: Vec<String>,
    adds: u64,
    subs: u64,
    counts: BTreeSet<(u64, u64)>,
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: a live record with its headers, and the look below.
    let (info, look) = unsafe { (&*info, &mut *data.cast::<Look>()) };
    // SAFETY: as above.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let range = |start: u64| (start, start.wrapping_add(header.p_memsz));
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => look.writable.push(range(start)),
            libc::PT_LOAD => look.constant.push(range(start)),
            libc::PT_TLS if !info.dlpi_tls_data.is_null() => {
                look.threads.push(range(info.dlpi_tls_data as u64));
            }
            _ => {}
        }
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    look.names.push(name.to_string_lossy().into_owned());
    (look.adds, look.subs) = (info.dlpi_adds, info.dlpi_subs);
    look.counts.insert((info.dlpi_adds, info.dlpi_subs));
    0
}

fn look() -> Look {
    let mut look = Look::default();
    // SAFETY: the callback gets the look, alive here.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut look).cast()) };
    assert_eq!(look.counts.len(), 1, "all records count alike");
    look
}

fn holds(ranges: &[(u64, u64)], at: u64) -> bool {
    ranges
        .iter()
        .any(|&(start, end)| (start..end).contains(&at))
}

const TEXT: &str = "@data = global [4 x i64] [i64 1, i64 2, i64 3, i64 4]
    @zeros = global [512 x i64] zeroinitializer
    @constant = constant [2 x i64] [i64 5, i64 6]
    @mine = thread_local global [8 x i64] [i64 7, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0]
    define i64 @address() { %p = ptrtoint ptr @mine to i64 ret i64 %p }
    define i64 @sum() {
      %a = load i64, ptr @data
      %b = load i64, ptr @constant
      %c = load i64, ptr @zeros
      %s = add i64 %a, %b
      %t = add i64 %s, %c
      ret i64 %t }";

#[test]
fn images_are_listed_from_their_link_to_the_end_of_their_memory() {
    if !in_own_process(
        module_path!(),
        "images_are_listed_from_their_link_to_the_end_of_their_memory",
    ) {
        return;
    }
    let jit = Jit::builder()
        .jobs(1)
        .list_images(true)
        .build()
        .expect("a session");
    let before = look();
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("roots.ll", TEXT).expect("valid IR");
    let [data, zeros, constant] =
        ["data", "zeros", "constant"].map(|name| jit.lookup(name).expect("defined"));
    let with = look();
    assert!(with.adds > before.adds && with.subs == before.subs);
    assert_eq!(
        with.names[0], before.names[0],
        "the executable is the first"
    );
    assert!(with.names.iter().any(|name| name == "roots.ll"));
    assert!(holds(&with.writable, data) && holds(&with.writable, zeros + 511 * 8));
    assert!(holds(&with.constant, constant) && !holds(&with.writable, constant));
    assert!(!holds(&before.writable, data) && !holds(&before.constant, constant));
    // A thread has its variables from the first use on.
    // SAFETY: the function above.
    let address = unsafe { jit.function::<extern "C" fn() -> u64>("address") }.expect("typed");
    let mine = address.call();
    assert!(holds(&look().threads, mine + 63));
    let caller = address.clone();
    let other = std::thread::spawn(move || {
        let none = look().threads.len();
        let mine = caller.call();
        let with = look();
        assert!(holds(&with.threads, mine) && with.threads.len() == none + 1);
        mine
    });
    let other = other.join().expect("no panic");
    assert_ne!(other, mine);
    // SAFETY: nothing of it is used any more.
    unsafe { tracker.remove() }.expect("once");
    drop(address);
    jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(60));
    let after = look();
    assert!(after.subs > with.subs);
    assert!(!holds(&after.writable, data) && !holds(&after.constant, constant));
    assert!(after.names.iter().all(|name| name != "roots.ll"));
}

#[test]
fn images_of_other_sessions_are_not_listed() {
    if !in_own_process(module_path!(), "images_of_other_sessions_are_not_listed") {
        return;
    }
    let jit = Jit::builder().jobs(1).build().expect("a session");
    jit.add_ir("hidden.ll", TEXT).expect("valid IR");
    let data = jit.lookup("data").expect("defined");
    let found = look();
    assert!(!holds(&found.writable, data) && found.names.iter().all(|name| name != "hidden.ll"));
}

/// An image that goes while a callback looks stays readable until the callback is over.
#[test]
fn memory_stays_while_a_callback_looks() {
    if !in_own_process(module_path!(), "memory_stays_while_a_callback_looks") {
        return;
    }
    struct During {
        removed: bool,
        tracker: Option<uruk::Tracker>,
        jit: Jit,
    }
    unsafe extern "C" fn remove(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: as in `each`.
        let (info, during) = unsafe { (&*info, &mut *data.cast::<During>()) };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        if name != c"going.ll" {
            return 0;
        }
        let tracker = during.tracker.take().expect("it is listed once");
        // SAFETY: nothing of it runs.
        unsafe { tracker.remove() }.expect("once");
        during
            .jit
            .reclaim(ReclaimKind::Sweep, Duration::from_secs(60));
        during.removed = true;
        // SAFETY: the headers, and what they lead to, are there until this returns.
        unsafe {
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            for header in headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD)
            {
                let start = (info.dlpi_addr + header.p_vaddr) as *const u64;
                if header.p_flags & libc::PF_W != 0 {
                    assert_eq!(start.read_volatile(), 0x1234);
                }
            }
        }
        0
    }
    let jit = Jit::builder()
        .jobs(1)
        .list_images(true)
        .build()
        .expect("a session");
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker
        .add_ir("going.ll", "@going = global i64 4660")
        .expect("valid IR");
    let mut during = During {
        removed: false,
        tracker: Some(tracker),
        jit,
    };
    // SAFETY: the callback gets what is alive here.
    unsafe { libc::dl_iterate_phdr(Some(remove), (&raw mut during).cast()) };
    assert!(during.removed);
    assert!(look().names.iter().all(|name| name != "going.ll"));
}
