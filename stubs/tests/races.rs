//! Races of many threads.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use support::{returns, serve, table, tid, until_waiting, watchdog};
use uruk_stubs::{EntryAddress, call_ptr};

#[test]
fn racing_first_calls_give_one_request() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let entry = returns(&heap, 11);
    let service = serve(&table, move |table, f| {
        // Time for the other callers to come.
        thread::sleep(Duration::from_millis(2));
        table.publish(f, EntryAddress(entry));
    });
    for round in 1..=5 {
        let f = table.allocate().unwrap();
        let barrier = Arc::new(Barrier::new(200));
        let callers: Vec<_> = (0..200)
            .map(|_| {
                let (barrier, stub) = (barrier.clone(), table.stub_address(f).0);
                let caller = move || {
                    barrier.wait();
                    // SAFETY: a function without arguments.
                    unsafe { call_ptr(stub) }
                };
                let small = thread::Builder::new().stack_size(64 << 10);
                small.spawn(caller).unwrap()
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), 11);
        }
        assert_eq!(service.served.load(Ordering::Relaxed), round);
    }
}

/// Requests are taken first come, first served.
#[test]
fn requests_are_in_order() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let functions = table.allocate_many(6).unwrap();
    let mut callers = Vec::new();
    for f in functions.clone() {
        let stub = table.stub_address(f).0;
        let (tell, told) = std::sync::mpsc::channel();
        callers.push(thread::spawn(move || {
            tell.send(tid()).unwrap();
            // SAFETY: a function without arguments.
            unsafe { call_ptr(stub) }
        }));
        until_waiting(told.recv().unwrap());
    }
    let asked: Vec<_> = std::iter::from_fn(|| table.next_request()).collect();
    assert_eq!(asked, functions.clone().collect::<Vec<_>>());
    for f in asked {
        assert!(table.publish(f, EntryAddress(returns(&heap, 12))));
    }
    for caller in callers {
        assert_eq!(caller.join().unwrap(), 12);
    }
}

/// A function is requested, answered by another thread, unpublished and requested again. Its cell
/// is still linked from the first request: it keeps its place and is delivered once.
#[test]
fn a_stale_request_keeps_its_place() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let entry = returns(&heap, 16);
    let functions = table.allocate_many(3).unwrap();
    let [f, g, h] = [0, 1, 2].map(|i| functions.get(i).unwrap());
    let call = |f| {
        let stub = table.stub_address(f).0;
        let (tell, told) = std::sync::mpsc::channel();
        let caller = thread::spawn(move || {
            tell.send(tid()).unwrap();
            // SAFETY: a function without arguments.
            unsafe { call_ptr(stub) }
        });
        until_waiting(told.recv().unwrap());
        caller
    };
    let first = call(f);
    let second = call(g);
    assert!(table.publish(f, EntryAddress(entry)));
    assert_eq!(first.join().unwrap(), 16);
    assert!(table.unpublish(f));
    let third = call(f);
    let fourth = call(h);
    let asked: Vec<_> = std::iter::from_fn(|| table.next_request()).collect();
    assert_eq!(asked, [f, g, h]);
    for f in asked {
        assert!(table.publish(f, EntryAddress(entry)));
    }
    for caller in [second, third, fourth] {
        assert_eq!(caller.join().unwrap(), 16);
    }
}

/// Several services, many functions, callers in different orders, republication meanwhile: every
/// call is answered, each function requested once.
#[test]
fn many_functions_many_services() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let entries = [returns(&heap, 13), returns(&heap, 14)];
    let services: Vec<_> = (0..3)
        .map(|_| {
            serve(&table, move |table, f| {
                assert_eq!(table.entry(f).map(u64::from), None);
                table.publish(f, EntryAddress(entries[0]));
            })
        })
        .collect();
    let functions = table.allocate_many(5000).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|i| {
            let (table, functions) = (table.clone(), functions.clone());
            let done = done.clone();
            thread::spawn(move || {
                for j in 0..functions.len() {
                    let j = if i % 2 == 0 {
                        j
                    } else {
                        functions.len() - 1 - j
                    };
                    let f = functions.get(j).unwrap();
                    // SAFETY: a function without arguments.
                    let got = unsafe { call_ptr(table.stub_address(f).0) };
                    assert!(got == 13 || got == 14);
                    if i == 0 {
                        table.publish(f, EntryAddress(entries[1]));
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(done.load(Ordering::Relaxed), 4);
    let served: usize = services
        .iter()
        .map(|service| service.served.load(Ordering::Relaxed))
        .sum();
    assert_eq!(served, 5000);
    for f in functions {
        assert_eq!(table.entry(f).map(u64::from), Some(entries[1]));
    }
}

/// Threads allocate at once, over many pages: all stubs are distinct and work.
#[test]
fn racing_allocation() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let entry = returns(&heap, 15);
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let table = table.clone();
            thread::spawn(move || {
                let mut functions = Vec::new();
                for _ in 0..200 {
                    if i % 2 == 0 {
                        functions.extend(table.allocate_many(37).unwrap());
                    } else {
                        functions.push(table.allocate().unwrap());
                    }
                }
                for f in &functions {
                    table.prepare(*f, EntryAddress(entry));
                    // SAFETY: a function without arguments.
                    assert_eq!(unsafe { call_ptr(table.stub_address(*f).0) }, 15);
                }
                functions
            })
        })
        .collect();
    let mut all: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
    assert_eq!(table.stats().used, count);
    assert!(all.iter().all(|f| f.index() % 256 != 255));
}
