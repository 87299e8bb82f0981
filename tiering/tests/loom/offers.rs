//! Offers at the heads of loops: guest code that counts, asks and leaves, against threads that
//! offer, close, ask again, move code and free it.
//!
//! Guest code is generated (`uruk_codegen`, `continuation/offer.rs`). [`World::pass`] models it
//! access by access: a load of the count, and if it is negative a load and a store of it, and at zero
//! a load of the slot.
//! The processor's plain loads acquire. A call goes through the stub's own slot, which is read
//! after that.
//!
//! A scan of stacks is modelled by a flag of each thread for each function that it may be in. The
//! flag is set before the thread reads the word that leads there, because a caller's stack holds a
//! return address into the calling code.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use uruk_tiering::FunctionId;
use uruk_tiering::offers::{LoopWords, Offers};

use super::model;

/// The address of the continuation's stub.
const STUB: u64 = 0x5000;
const CONTINUATION: FunctionId = FunctionId(5);
const GUESTS: usize = 2;

/// Entries of code: of the function's versions, and of the continuation's.
const LOOPING: u64 = 1;
const REPLACED: u64 = 2;
const FIRST: u64 = 0;
const MOVED: u64 = 1;
const NONE: u64 = u64::MAX;

/// The outcome of one call of the function.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    /// It ended in the body it began in.
    Stayed,
    /// It continued in the continuation's code.
    Left,
    /// It began in the body that replaced the first.
    New,
}

struct World {
    offers: Offers,
    slot: AtomicU64,
    when: AtomicU64,
    count: AtomicU32,
    /// The memory of the words.
    words: UnsafeCell<()>,
    /// The target of calls of the function.
    entry: AtomicU64,
    /// The target of calls of the continuation.
    target: AtomicU64,
    /// The bytes of the continuation's two versions.
    code: [UnsafeCell<()>; 2],
    /// Threads that may be in the version that loops.
    inside: [AtomicBool; GUESTS],
    /// Threads that may be in the continuation.
    beyond: [AtomicBool; GUESTS],
}

// SAFETY: loom checks all accesses to the cells.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            offers: Offers::new(1),
            slot: AtomicU64::new(0),
            when: AtomicU64::new(0),
            count: AtomicU32::new(0),
            words: UnsafeCell::new(()),
            entry: AtomicU64::new(LOOPING),
            target: AtomicU64::new(NONE),
            code: [UnsafeCell::new(()), UnsafeCell::new(())],
            inside: [AtomicBool::new(false), AtomicBool::new(false)],
            beyond: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    fn words(&self) -> LoopWords<'_> {
        LoopWords {
            slot: &self.slot,
            when: &self.when,
            count: &self.count,
        }
    }

    /// Compiles the continuation, publishes it, and offers it.
    fn make_and_offer(&self) -> bool {
        if !self.offers.note(0, CONTINUATION) {
            return false;
        }
        self.code[FIRST as usize].with_mut(|_| ());
        self.target.store(FIRST, Ordering::Release);
        self.offers.offer(self.words(), STUB).is_some()
    }

    /// One pass of the loop's head; returns the offer that the loop is left for.
    fn pass(&self) -> Option<u64> {
        self.words.with(|_| ());
        let load = || self.count.load(Ordering::Acquire).cast_signed();
        if load() >= 0 {
            return None;
        }
        let new = load() + 1;
        self.count.store(new.cast_unsigned(), Ordering::Relaxed);
        if new != 0 {
            return None;
        }
        match self.slot.load(Ordering::Acquire) {
            0 => {
                self.when.store(1, Ordering::Relaxed);
                None
            }
            offered => {
                self.count.store(u32::MAX, Ordering::Relaxed);
                Some(offered)
            }
        }
    }

    /// Calls the offered continuation, by its stub.
    fn leave(&self, guest: usize, offered: u64) {
        assert_eq!(offered, STUB);
        self.beyond[guest].store(true, Ordering::Relaxed);
        // A scan is a system call, and orders earlier accesses of each thread.
        fence(Ordering::SeqCst);
        let target = self.target.load(Ordering::Acquire);
        assert_ne!(target, NONE, "the stub of what is offered leads nowhere");
        self.code[target as usize].with(|_| ());
        self.beyond[guest].store(false, Ordering::Release);
    }

    /// A call of the function, with so many passes of the head.
    fn call(&self, guest: usize, passes: usize) -> Call {
        self.inside[guest].store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut call = Call::Stayed;
        if self.entry.load(Ordering::Acquire) == LOOPING {
            if let Some(offered) = (0..passes).find_map(|_| self.pass()) {
                self.leave(guest, offered);
                call = Call::Left;
            }
        } else {
            call = Call::New;
        }
        self.inside[guest].store(false, Ordering::Release);
        call
    }

    fn wait_until_nobody(&self, is_in: &[AtomicBool]) {
        fence(Ordering::SeqCst);
        while is_in.iter().any(|it| it.load(Ordering::Acquire)) {
            thread::yield_now();
        }
    }

    /// Replaces the function, waits for threads inside, and frees its version; then removes its
    /// continuation.
    fn replace_and_free(&self) {
        self.entry.store(REPLACED, Ordering::Release);
        self.offers.close([self.words()]);
        self.wait_until_nobody(&self.inside);
        self.words.with_mut(|_| ());
        for ended in self.offers.end() {
            assert_eq!(ended, CONTINUATION);
            self.target.store(NONE, Ordering::Release);
            self.wait_until_nobody(&self.beyond);
            self.code.iter().for_each(|code| code.with_mut(|_| ()));
        }
    }

    /// Moves the continuation's code, and frees the old place.
    fn evacuate(&self) {
        if self.target.load(Ordering::Acquire) != FIRST {
            return;
        }
        self.code[MOVED as usize].with_mut(|_| ());
        self.target.store(MOVED, Ordering::Release);
        self.wait_until_nobody(&self.beyond);
        self.code[FIRST as usize].with_mut(|_| ());
    }
}

fn spawn<T: 'static>(
    world: &Arc<World>,
    run: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || run(&world))
}

/// Two threads loop while a continuation is offered: a thread that goes there finds it whole.
#[test]
fn who_leaves_finds_the_continuation() {
    model(|| {
        let world = World::new();
        // A thread may find the offer because it was to count.
        world.words().ask_after(1);
        let guests = [0, 1].map(|guest| spawn(&world, move |w| w.call(guest, 2)));
        assert!(world.make_and_offer());
        for guest in guests {
            assert_ne!(guest.join().unwrap(), Call::New);
        }
    });
}

/// A thread loops while its function is replaced, and all of the old version freed.
#[test]
fn nothing_is_freed_under_who_leaves() {
    model(|| {
        let world = World::new();
        assert!(world.make_and_offer());
        let guest = spawn(&world, |w| w.call(0, 1));
        world.replace_and_free();
        guest.join().unwrap();
        // A later call does not even begin in the old body.
        assert_eq!(world.call(1, 1), Call::New);
    });
}

/// The offer is made during the replacement: a thread that was too late offers nothing.
#[test]
fn an_offer_under_way_is_not_made_to_what_was_closed() {
    model(|| {
        let world = World::new();
        let maker = spawn(&world, |w| {
            w.offers.note(0, CONTINUATION);
            w.offers.offer(w.words(), STUB).is_some()
        });
        world.offers.close([world.words()]);
        // Threads that come from here on find no offer.
        assert_eq!(world.slot.load(Ordering::Acquire), 0);
        maker.join().unwrap();
        assert_eq!(world.slot.load(Ordering::Acquire), 0);
        assert!(world.offers.offer(world.words(), STUB).is_none());
        world.offers.open([world.words()]);
        assert!(world.offers.offer(world.words(), STUB).is_some());
        assert_eq!(world.pass(), Some(STUB));
    });
}

/// A thread that loops in a replaced body is led to the new one, while the old version is freed if
/// no thread is in it. A thread that read the address finds the code, and the continuation is
/// returned at the end.
#[test]
fn who_is_led_to_the_new_body_finds_it() {
    model(|| {
        let world = World::new();
        world.offers.close([world.words()]);
        let guest = spawn(&world, |w| w.call(0, 2));
        world.code[FIRST as usize].with_mut(|_| ());
        world.target.store(FIRST, Ordering::Release);
        assert!(
            world
                .offers
                .lead(world.words(), CONTINUATION, STUB)
                .is_some()
        );
        assert!(world.offers.is_closed());
        world.replace_and_free();
        guest.join().unwrap();
    });
}

/// A replacement is rolled back, or its function removed, while a looping thread is led to the new
/// body: no slot leads there afterwards, and the continuation is returned once.
#[test]
fn nobody_is_led_to_what_is_rolled_back() {
    for removed in [false, true] {
        model(move || {
            let world = World::new();
            world.offers.close([world.words()]);
            let leader = spawn(&world, |w| {
                w.offers.lead(w.words(), CONTINUATION, STUB).is_some()
            });
            match removed {
                true => world.offers.give_up([world.words()]),
                false => world.offers.open([world.words()]),
            }
            let led = leader.join().unwrap();
            assert_eq!(world.slot.load(Ordering::Acquire), 0);
            assert_eq!(world.offers.is_closed(), removed);
            // After giving up, no offer is possible.
            world.offers.open([world.words()]);
            assert_eq!(world.offers.offer(world.words(), STUB).is_some(), !removed);
            assert_eq!(world.offers.end(), vec![CONTINUATION; usize::from(led)]);
        });
    }
}

/// Two threads make a continuation of one loop, which ends meanwhile: one is noted, and returned
/// once.
#[test]
fn a_loop_has_one_continuation() {
    model(|| {
        let world = World::new();
        let note = |w: &World, id| w.offers.note(0, FunctionId(id));
        let other = spawn(&world, move |w| note(w, 6));
        let here = note(&world, 7);
        let first = world.offers.end();
        let there = other.join().unwrap();
        let second = world.offers.end();
        let expected = match (here, there) {
            (true, false) => vec![FunctionId(7)],
            (false, true) => vec![FunctionId(6)],
            both => panic!("{both:?}"),
        };
        assert_eq!([first, second].concat(), expected);
    });
}

/// A thread that learned that the loops are closed, and passes a head after that, stays.
#[test]
fn after_the_close_nobody_enters() {
    model(|| {
        let world = World::new();
        assert!(world.make_and_offer());
        let told = Arc::new(AtomicBool::new(false));
        let guest = spawn(&world, {
            let told = told.clone();
            move |w| {
                let before = told.load(Ordering::Acquire);
                (before, w.call(0, 1))
            }
        });
        world.offers.close([world.words()]);
        told.store(true, Ordering::Release);
        let (before, call) = guest.join().unwrap();
        assert!(!before || call == Call::Stayed);
    });
}

/// Offers are taken back while they are made: none stays in part, and the loop is as open as
/// before.
#[test]
fn what_is_taken_back_can_be_offered_again() {
    model(|| {
        let world = World::new();
        assert!(world.make_and_offer());
        let guest = spawn(&world, |w| w.call(0, 2));
        world.offers.take_back([world.words()]);
        guest.join().unwrap();
        assert!(!world.words().is_offered());
        assert_eq!(world.pass(), None);
        // It was asked with the offer only.
        assert_eq!(world.words().left_to_count(), 0);
        assert!(world.offers.offer(world.words(), STUB).is_some());
        assert_eq!(world.pass(), Some(STUB));
    });
}

/// Guests may undo what was asked: after the next poll a thread that passes leaves.
#[test]
fn an_offer_is_not_lost_for_good() {
    model(|| {
        let world = World::new();
        let guests = [0, 1].map(|guest| spawn(&world, move |w| w.call(guest, 1)));
        assert!(world.make_and_offer());
        for guest in guests {
            guest.join().unwrap();
        }
        assert!(world.words().is_offered());
        world.words().ask();
        assert_eq!(world.call(0, 1), Call::Left);
        // A later thread leaves, too.
        assert_eq!(world.call(1, 1), Call::Left);
    });
}

/// While a loop counts, an offer is made: the thread leaves at once, or when it has counted.
#[test]
fn who_counts_finds_the_offer() {
    model(|| {
        let world = World::new();
        world.words().ask_after(2);
        let guest = spawn(&world, |w| w.call(0, 1));
        assert!(world.make_and_offer());
        if guest.join().unwrap() == Call::Stayed {
            // The first pass may have undone the request, but it left one to count then, or the request
            // is there.
            assert_ne!(world.words().left_to_count(), 0);
            assert_eq!(world.call(1, 1), Call::Left);
        }
    });
}

/// While an offer is made, the thread that measures asks for more passes: the offer is asked for in the
/// end.
#[test]
fn a_measure_does_not_take_an_offer_away() {
    model(|| {
        let world = World::new();
        let measures = spawn(&world, |w| {
            if w.words().left_to_count() == 0 {
                w.words().ask_after(3);
            }
            if w.words().is_offered() && w.words().left_to_count() != 1 {
                w.words().ask();
            }
        });
        assert!(world.make_and_offer());
        measures.join().unwrap();
        assert_eq!(world.call(0, 1), Call::Left);
    });
}

/// Two threads count: some passes may be lost, but none is counted that did not happen, at any time of
/// reading.
#[test]
fn lost_counts_are_no_passes() {
    const ASKED: u32 = 3;
    model(|| {
        let world = World::new();
        world.words().ask_after(ASKED);
        let guests = [0, 1].map(|guest| spawn(&world, move |w| w.call(guest, 2)));
        for _ in 0..2 {
            assert!(world.words().left_to_count() <= ASKED);
            thread::yield_now();
        }
        for guest in guests {
            assert_eq!(guest.join().unwrap(), Call::Stayed);
        }
        assert!(world.words().left_to_count() < ASKED);
    });
}

/// The continuation's code moves while a thread goes there, and while it is offered.
#[test]
fn what_is_offered_may_move() {
    model(|| {
        let world = World::new();
        let guest = spawn(&world, |w| w.call(0, 2));
        assert!(world.make_and_offer());
        world.evacuate();
        guest.join().unwrap();
        world.words().ask();
        assert_eq!(world.call(1, 1), Call::Left);
    });
}

/// A copy of the process is made under the gate, while threads loop. The copy has the offers, the
/// lock is open, and asking works.
#[test]
fn a_fork_copies_offers_whole() {
    model(|| {
        let world = World::new();
        let gate = Arc::new(Mutex::new(()));
        let guest = spawn(&world, |w| w.call(0, 2));
        let maker = spawn(&world, {
            let gate = gate.clone();
            move |w| {
                let _pass = gate.lock().unwrap();
                w.make_and_offer()
            }
        });
        let child = World::new();
        {
            let _closed = gate.lock().unwrap();
            let (order, from) = (Ordering::Acquire, &world);
            child.slot.store(from.slot.load(order), Ordering::Relaxed);
            child.when.store(from.when.load(order), Ordering::Relaxed);
            child.count.store(from.count.load(order), Ordering::Relaxed);
            child
                .target
                .store(from.target.load(order), Ordering::Relaxed);
            assert_eq!(from.offers.is_closed(), child.offers.is_closed());
        }
        // The child, on its one thread.
        let offered = child.words().is_offered();
        child.words().ask();
        match offered {
            true => assert_eq!(child.call(0, 1), Call::Left),
            false => {
                assert_eq!(child.call(0, 1), Call::Stayed);
                assert!(child.make_and_offer());
                assert_eq!(child.call(0, 1), Call::Left);
            }
        }
        guest.join().unwrap();
        assert!(maker.join().unwrap());
    });
}
