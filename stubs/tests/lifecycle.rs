//! One function's life: publish, fail, take back, release, recycle; and forks.

mod support;

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use iced_x86::{Decoder, DecoderOptions};
use support::{returns, serve, table, tid, until_waiting, watchdog};
use uruk_heap::{Heap, HeapConfig};
use uruk_stubs::{
    EntryAddress, FAILURE_STATUS, FunctionId, StubError, StubTable, UnwindRow, call_ptr,
};

fn call(table: &StubTable, f: FunctionId) -> u64 {
    // SAFETY: the tests' functions have no arguments.
    unsafe { call_ptr(table.stub_address(f).0) }
}

extern "C" fn answer() -> u64 {
    99
}

extern "C" fn handler(_: FunctionId, _: u64) -> u64 {
    answer as *const () as usize as u64
}

#[test]
fn publish_and_republish() {
    let (heap, table) = table();
    let f = table.allocate().unwrap();
    assert_eq!(table.entry(f).map(u64::from), None);
    let entries = [returns(&heap, 1), returns(&heap, 2)];
    assert!(table.publish(f, EntryAddress(entries[0])));
    assert_eq!(
        (call(&table, f), table.entry(f).map(u64::from)),
        (1, Some(entries[0]))
    );
    assert!(table.publish(f, EntryAddress(entries[1])));
    assert_eq!(
        (call(&table, f), table.entry(f).map(u64::from)),
        (2, Some(entries[1]))
    );
    assert_eq!(table.next_request(), None);
    assert!(!table.fail(f), "a failed tier-up changes nothing");
    assert_eq!(call(&table, f), 2);
}

#[test]
fn failure_and_recovery() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    table.set_failure_handler(handler, 0);
    let f = table.allocate().unwrap();
    let caller = thread::spawn({
        let table = table.clone();
        move || call(&table, f)
    });
    assert_eq!(table.wait_request(Some(Duration::from_secs(300))), Some(f));
    assert!(table.fail(f));
    assert_eq!(caller.join().unwrap(), 99);
    assert_eq!(call(&table, f), 99);
    assert_eq!(table.next_request(), None);
    assert!(table.publish(f, EntryAddress(returns(&heap, 3))));
    assert_eq!(call(&table, f), 3);
}

#[test]
fn taking_back_asks_again() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let f = table.allocate().unwrap();
    let entry = returns(&heap, 4);
    let service = serve(&table, move |table, f| {
        table.publish(f, EntryAddress(entry));
    });
    for round in 1..=3 {
        assert_eq!(call(&table, f), 4);
        let served = service.served.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(served, round);
        assert!(table.unpublish(f));
        assert_eq!(table.entry(f).map(u64::from), None);
    }
    assert!(table.prepare(f, EntryAddress(entry)));
    assert!(table.unpublish(f));
    assert!(table.fail(f));
    assert!(
        table.prepare(f, EntryAddress(entry)),
        "a failure can be recovered from"
    );
    assert_eq!(call(&table, f), 4);
}

/// Resting code is in its slot again after the first call, and only after a call.
#[test]
fn who_rests_was_not_called() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let [f, g] = [(); 2].map(|()| table.allocate().unwrap());
    let entry = EntryAddress(returns(&heap, 4));
    assert!(!table.rest(f), "it has no code");
    assert!(table.publish(f, entry));
    assert!(!table.rests(f));
    for _ in 0..3 {
        assert!(table.rest(f));
        assert!(table.rest(f), "it rests already");
        assert!(table.rests(f));
        assert_eq!(table.entry(f), Some(entry));
        assert_eq!(call(&table, f), 4);
        assert!(!table.rests(f));
        assert_eq!(call(&table, f), 4);
    }
    // Other code replaces it; a gate keeps it; it is unpublished.
    let other = EntryAddress(returns(&heap, 5));
    assert!(table.rest(f) && table.publish(f, other));
    assert_eq!((table.rests(f), call(&table, f)), (false, 5));
    assert!(table.rest(f));
    let gate = table.close_gate(&[f]).unwrap();
    assert!(table.rests(f));
    gate.open(&[]).unwrap();
    assert_eq!((table.entry(f), call(&table, f)), (Some(other), 5));
    let gate = table.close_gate(&[f]).unwrap();
    assert!(!table.rest(f), "the gate keeps it");
    gate.open(&[]).unwrap();
    assert!(table.rest(f) && table.unpublish(f));
    assert_eq!((table.rests(f), table.entry(f)), (false, None));
    // Code outside of the heap cannot rest: the cell holds offsets only.
    assert!(table.publish(g, EntryAddress(answer as *const () as usize as u64)));
    assert!(!table.rest(g));
    assert_eq!(call(&table, g), 99);
}

/// Code outside of the heap cannot be prepared: the cell holds offsets only.
#[test]
fn preparing_far_code_publishes() {
    let (_heap, table) = table();
    let f = table.allocate().unwrap();
    let far = answer as *const () as usize as u64;
    assert!(table.prepare(f, EntryAddress(far)));
    assert_eq!(table.entry(f).map(u64::from), Some(far));
    assert_eq!(call(&table, f), 99);
}

#[test]
fn a_function_that_failed_is_tried_again_and_no_other() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    table.set_failure_handler(handler, 0);
    let [f, g] = [table.allocate().unwrap(), table.allocate().unwrap()];
    assert!(table.fail(f) && table.publish(g, EntryAddress(returns(&heap, 3))));
    assert_eq!((call(&table, f), call(&table, g)), (99, 3));
    assert!(table.retry(f) && !table.retry(g));
    assert_eq!(call(&table, g), 3);
    let caller = thread::spawn({
        let table = table.clone();
        move || call(&table, f)
    });
    support::eventually("f is asked", || requested(&table, f));
    assert_eq!(table.next_request(), Some(f));
    assert!(table.publish(f, EntryAddress(returns(&heap, 4))));
    assert_eq!(caller.join().unwrap(), 4);
    assert!(table.release(f) && !table.retry(f));
}

#[test]
fn a_revived_function_asks_for_code_again() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    table.set_failure_handler(handler, 0);
    let f = table.allocate().unwrap();
    assert!(!table.revive(f), "it was not released");
    assert!(table.publish(f, EntryAddress(returns(&heap, 5))));
    let (stub, slot) = (table.stub_address(f).0, table.slot_address(f).0);
    assert!(table.release(f));
    assert_eq!(call(&table, f), 99);
    assert!(table.revive(f) && !table.revive(f));
    assert_eq!(table.stats().quarantined, 0);
    let caller = thread::spawn({
        let table = table.clone();
        move || call(&table, f)
    });
    support::eventually("f is asked", || requested(&table, f));
    assert_eq!(table.next_request(), Some(f));
    assert!(table.publish(f, EntryAddress(returns(&heap, 7))));
    assert_eq!(caller.join().unwrap(), 7);
    assert_eq!(
        (stub, slot),
        (table.stub_address(f).0, table.slot_address(f).0)
    );

    // A request of its former life is in the list, and is used for the new one.
    let g = table.allocate().unwrap();
    let caller = thread::spawn({
        let table = table.clone();
        move || call(&table, g)
    });
    support::eventually("g is asked", || requested(&table, g));
    assert!(table.release(g));
    assert_eq!(caller.join().unwrap(), 99);
    assert!(table.revive(g));
    assert_eq!(table.next_request(), None, "nobody asks any more");
    assert!(table.publish(g, EntryAddress(returns(&heap, 8))));
    assert_eq!(call(&table, g), 8);
}

#[test]
fn release_quarantines_and_recycle_reuses() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    table.set_failure_handler(handler, 0);
    let [f, g] = [table.allocate().unwrap(), table.allocate().unwrap()];
    assert!(table.publish(f, EntryAddress(returns(&heap, 5))));
    assert!(table.release(f));
    assert!(!table.release(f));
    assert_eq!(call(&table, f), 99);
    assert!(!table.publish(f, EntryAddress(returns(&heap, 6))));
    assert_eq!(call(&table, f), 99);
    let stats = table.stats();
    assert_eq!((stats.used, stats.quarantined, stats.free), (1, 1, 0));
    assert_ne!(table.allocate().unwrap(), f);

    // Released while a caller waits, before the request is taken.
    let caller = thread::spawn({
        let table = table.clone();
        move || call(&table, g)
    });
    support::eventually("g is asked", || {
        // A pending request shows as a cell that cannot be unpublished.
        !table.unpublish(g) && table.entry(g).map(u64::from).is_none() && requested(&table, g)
    });
    assert!(table.release(g));
    assert_eq!(caller.join().unwrap(), 99);
    // SAFETY: only this test has the address or id.
    unsafe {
        assert!(!table.recycle(g), "still in the list");
        assert_eq!(table.next_request(), None);
        assert!(table.recycle(g));
        assert!(table.recycle(f));
    }
    assert_eq!(table.stats().free, 2);
    let again = [table.allocate().unwrap(), table.allocate().unwrap()];
    assert_eq!(again, [f, g]);
    assert!(table.publish(f, EntryAddress(returns(&heap, 7))));
    assert_eq!(call(&table, f), 7);
}

/// Whether callers wait: the low bits of the state word (see `state`).
fn requested(table: &StubTable, f: FunctionId) -> bool {
    let word = std::ptr::with_exposed_provenance::<std::sync::atomic::AtomicU32>(
        table.slot_address(f).0 as usize + 8,
    );
    // SAFETY: the cell's state word.
    let word = unsafe { &*word };
    word.load(std::sync::atomic::Ordering::Relaxed) & 7 == 3
}

#[test]
fn ids_addresses_and_the_end_of_the_region() {
    let mut config = HeapConfig::default();
    config.reservation = 4 << 20;
    let heap = Heap::new(config).unwrap();
    let rows = std::sync::Arc::new(Mutex::new(Vec::<UnwindRow>::new()));
    let table = StubTable::with_hook(&heap, {
        let rows = rows.clone();
        move |row| rows.lock().unwrap().push(row)
    })
    .unwrap();
    let capacity = table.stats().capacity;
    let error = table.allocate_many(capacity + 1).unwrap_err();
    assert!(matches!(error, StubError::Full { held: 0, .. }));
    let all = table.allocate_many(capacity).unwrap();
    let error = table.allocate().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("out of stubs: 1 asked, {capacity} of {capacity} held")
    );
    for f in all {
        let stub = table.stub_address(f).0;
        assert_eq!(table.function_at(stub), Some(f));
        assert_eq!(table.function_at(stub + 6), None);
        assert_eq!(table.function(f.index()), Some(f));
        // The oracle: the bytes at the stub are a jump through the function's slot.
        let pointer = std::ptr::with_exposed_provenance::<u8>(stub as usize);
        // SAFETY: a committed stub.
        let bytes = unsafe { std::slice::from_raw_parts(pointer, 16) };
        let jump = Decoder::with_ip(64, bytes, stub, DecoderOptions::NONE).decode();
        assert_eq!(jump.ip_rel_memory_address(), table.slot_address(f).0);
    }
    assert_eq!(table.function(255), None);
    assert_eq!(table.function_at(0), None);
    // The hook got the resolver and every stub page, without gaps.
    let mut rows = rows.lock().unwrap().clone();
    assert_eq!(rows.remove(0), table.unwind_rows()[0]);
    for pair in rows.windows(2) {
        assert_eq!(pair[0].end, pair[1].start);
    }
    let stubs = table.unwind_rows()[1];
    assert_eq!(rows[0].start, stubs.start);
    assert_eq!(rows.last().unwrap().end, stubs.end);
}

/// Runs `run` in a child that ends with the status it returns.
fn in_child(before: impl FnOnce(), run: impl FnOnce() -> i32) -> (i32, String) {
    let mut pipe = [0; 2];
    before();
    // SAFETY: the child runs `run`, which uses only functions allowed in a forked child, and ends.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::dup2(pipe[1], 2);
            libc::alarm(60);
            let status = run();
            libc::_exit(status);
        }
        assert!(child > 0);
        libc::close(pipe[1]);
        let mut text = String::new();
        File::from_raw_fd(pipe[0])
            .read_to_string(&mut text)
            .unwrap();
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        let exit = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        (exit.unwrap_or(-status), text)
    }
}

/// Allows one fork at a time.
static FORKS: Mutex<()> = Mutex::new(());

#[test]
fn the_default_handler_says_so_and_ends() {
    let _forks = FORKS.lock().unwrap();
    let (_heap, table) = table();
    let f = table.allocate_many(1000).unwrap().last().unwrap();
    assert!(table.fail(f));
    let (status, text) = in_child(|| (), || call(&table, f) as i32);
    assert_eq!(status, FAILURE_STATUS);
    let index = f.index();
    assert_eq!(
        text,
        format!("uruk: call of a function without code: #{index}\n")
    );
}

/// A request whose service is on the other side of a fork is made again.
#[test]
fn fork_asks_again() {
    let _forks = FORKS.lock().unwrap();
    let _watchdog = watchdog();
    let (heap, table) = table();
    let functions = table.allocate_many(3).unwrap();
    let [taken, listed, fresh] = [0, 1, 2].map(|i| functions.get(i).unwrap());
    let mut callers = Vec::new();
    for f in [taken, listed] {
        let table = table.clone();
        let (tell, told) = std::sync::mpsc::channel();
        callers.push(thread::spawn(move || {
            tell.send(tid()).unwrap();
            call(&table, f)
        }));
        until_waiting(told.recv().unwrap());
    }
    assert_eq!(table.next_request(), Some(taken));
    let (status, text) = in_child(
        || heap.before_fork(),
        || {
            heap.after_fork_child().unwrap();
            table.after_fork_child();
            let entry = returns(&heap, 21);
            let mut asked = Vec::new();
            while let Some(f) = table.next_request() {
                asked.push(f);
            }
            assert_eq!(asked, [taken, listed]);
            for f in asked {
                table.publish(f, EntryAddress(entry));
            }
            let _service = serve(&table, move |table, f| {
                table.publish(f, EntryAddress(entry));
            });
            let sum: u64 = functions.clone().map(|f| call(&table, f)).sum();
            sum as i32
        },
    );
    heap.after_fork_parent();
    assert_eq!((status, text.as_str()), (63, ""));
    assert_eq!(table.entry(fresh).map(u64::from), None);
    assert_eq!(table.next_request(), Some(listed));
    let entry = returns(&heap, 22);
    for f in [listed, taken] {
        assert!(table.publish(f, EntryAddress(entry)));
    }
    for caller in callers {
        assert_eq!(caller.join().unwrap(), 22);
    }
}
