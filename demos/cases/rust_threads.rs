// Panics in threads, scoped threads, channels, poisoned locks, thread-locals with
// destructors, and many first calls at once.
// gate: D
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

struct Counted(&'static str);

impl Drop for Counted {
    fn drop(&mut self) {
        println!("drop {}", self.0);
    }
}

thread_local! {
    static LOG: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    static DROPPED: Counted = const { Counted("thread-local") };
}

#[inline(never)]
fn many(barrier: &Barrier, id: u64) -> u64 {
    barrier.wait();
    let mut map = HashMap::new();
    for i in 0..100 {
        *map.entry(i % 7).or_insert(id) += i;
    }
    map.values().sum()
}

fn main() {
    std::panic::set_hook(Box::new(|info| {
        println!("hook: {}", info.payload().downcast_ref::<String>().map_or("?", |text| text));
    }));
    let barrier = Arc::new(Barrier::new(100));
    let handles: Vec<_> = (0..100)
        .map(|id| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || many(&barrier, id))
        })
        .collect();
    println!("{}", handles.into_iter().map(|h| h.join().unwrap()).sum::<u64>());

    let lock = Arc::new(Mutex::new(1));
    let poisoner = Arc::clone(&lock);
    let result = thread::spawn(move || {
        let _held = poisoner.lock().unwrap();
        let _counted = Counted("in a panicking thread");
        panic!("number {}", std::hint::black_box(7));
    })
    .join();
    println!("{} {}", result.is_err(), lock.is_poisoned());

    let (sender, receiver) = sync_channel(2);
    let (back, answers) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in receiver {
                back.send(number * 2).unwrap();
            }
        });
        scope.spawn(move || (0..10).for_each(|n| sender.send(n).unwrap()));
        println!("{:?}", answers.iter().collect::<Vec<i32>>());
    });

    thread::Builder::new()
        .name("named".into())
        .stack_size(64 * 1024)
        .spawn(|| {
            DROPPED.with(|_| LOG.with(|log| log.borrow_mut().push(1)));
            println!("{:?} {}", thread::current().name(), LOG.with(|log| log.borrow().len()));
        })
        .unwrap()
        .join()
        .unwrap();
    println!("{}", LOG.with(|log| log.borrow().len()));
}
