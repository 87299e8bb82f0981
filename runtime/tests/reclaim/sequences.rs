//! Any sequence of adding, calling, compiling, replacing, rolling back, removing, moving and waiting
//! inside code, against a model of the results. The tests play some sequences, the fuzzer many.
//!
//! Two bytes are a step: the operation, and the module of `PLACES` that it is for. A module has
//! three functions: one that calls another and adds a variable, one that recurses, and one in which
//! a thread waits until it is told to continue. The model is two constants for each module that
//! exists, of its code and of its data: replacing changes the first. Freed code is closed: a thread
//! that executes it ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use uruk::{
    Freed, Func, FunctionId, HeapConfig, Jit, ReclaimKind as Kind, Replacement, Tier, Tracker,
};

/// Modules there may be at once.
const PLACES: usize = 4;

/// Steps of one run, at most.
const STEPS: usize = 200;

/// Sets that a session keeps.
const KEPT: usize = 8;

/// Long enough for a cycle on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The result of a call of a removed function.
const GONE: u64 = u64::MAX;

extern "C" fn gone() -> u64 {
    GONE
}

extern "C" fn on_failure(_: FunctionId) -> u64 {
    gone as *const () as u64
}

type Plain = Func<extern "C" fn(u64) -> u64>;
type WaitFunction = Func<extern "C" fn(*const AtomicU32, u64) -> u64>;

/// A module that was added.
struct AddedModule {
    constant: u64,
    /// In its data.
    data: u64,
    /// Tells it from those that were in its place before.
    number: u64,
    /// Its tracker's place in `FuzzRun::trackers`.
    tracker: usize,
    sum: Arc<Plain>,
    deep: Arc<Plain>,
    wait: Arc<WaitFunction>,
}

/// A handle of a function that was removed.
struct StaleHandle {
    place: usize,
    function: Arc<Plain>,
    /// Whether it adds its module's data.
    sums: bool,
}

/// A thread inside a function.
struct Inside {
    flag: Arc<AtomicU32>,
    thread: JoinHandle<u64>,
    expected: u64,
}

struct FuzzRun {
    jit: Jit,
    there: [Option<AddedModule>; PLACES],
    /// Functions of modules that were removed.
    stale: Vec<StaleHandle>,
    /// `None`: removed, or transferred.
    trackers: Vec<Option<Tracker>>,
    inside: Vec<Inside>,
    added: u64,
    /// Sets that can be rolled back: place, number and constant of the module before.
    sets: Vec<(usize, u64, u64)>,
}

/// Runs the steps that `bytes` say, and panics where something is not as it should be.
///
/// # Panics
/// The session gave a wrong result or a wrong error.
pub fn run(bytes: &[u8]) {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 1 << 20,
    };
    let built = Jit::builder()
        .jobs(1)
        .heap(heap)
        .on_failure(on_failure)
        .build();
    let mut run = FuzzRun {
        jit: built.expect("a session"),
        there: Default::default(),
        stale: Vec::new(),
        trackers: Vec::new(),
        inside: Vec::new(),
        added: 0,
        sets: Vec::new(),
    };
    for step in bytes.chunks_exact(2).take(STEPS) {
        run.step(
            step[0],
            usize::from(step[1]) % PLACES,
            u64::from(step[1]) / 4,
        );
    }
    for inside in run.inside {
        inside.leave();
    }
    assert!(run.jit.reclaim(Kind::Evacuate, LIMIT), "a last cycle");
}

fn text(place: usize, constant: u64) -> String {
    format!(
        "@data{place} = global i64 {constant}
declare i32 @usleep(i32)
define i64 @sum{place}(i64 %x) {{
  %y = call i64 @deep{place}(i64 %x)
  %d = load volatile i64, ptr @data{place}
  %r = add i64 %y, %d
  ret i64 %r
}}
define i64 @deep{place}(i64 %x) {{
  %end = icmp eq i64 %x, 0
  br i1 %end, label %last, label %more
last:
  ret i64 {constant}
more:
  %m = sub i64 %x, 1
  %y = call i64 @deep{place}(i64 %m)
  %r = add i64 %y, 3
  ret i64 %r
}}
define i64 @wait{place}(ptr %flag, i64 %x) {{
entry:
  store atomic i32 1, ptr %flag seq_cst, align 4
  br label %head
head:
  %e = call i32 @usleep(i32 100)
  %v = load atomic i32, ptr %flag seq_cst, align 4
  %c = icmp eq i32 %v, 1
  br i1 %c, label %head, label %end
end:
  %d = load volatile i64, ptr @data{place}
  %r = add i64 %x, %d
  ret i64 %r
}}\n"
    )
}

impl Inside {
    fn leave(self) {
        self.flag.store(2, Ordering::SeqCst);
        let got = self.thread.join().expect("it returns");
        assert_eq!(got, self.expected, "of who waited inside");
    }
}

impl FuzzRun {
    fn step(&mut self, what: u8, place: usize, x: u64) {
        match what % 12 {
            0 | 1 => self.add(place),
            2 => self.call(place, x),
            3 => self.compile(place, x),
            4 => self.remove(place),
            5 => self.transfer(place, x as usize % PLACES),
            6 => self.enter(place, x),
            7 => match self.inside.is_empty() {
                true => self.call_stale(x),
                false => self.inside.remove(x as usize % self.inside.len()).leave(),
            },
            8 | 9 => self.replace(place),
            10 => self.go_back(),
            _ => {
                let kind = match x % 3 {
                    0 => Kind::Sweep,
                    _ => Kind::Evacuate,
                };
                assert!(self.jit.reclaim(kind, LIMIT), "a cycle");
            }
        }
    }

    fn add(&mut self, place: usize) {
        self.added += 1;
        let constant = self.added * 1000;
        let tracker = self.jit.main().create_tracker().expect("a tracker");
        let added = tracker.add_ir("m", &text(place, constant));
        assert_eq!(added.is_ok(), self.there[place].is_none(), "{added:?}");
        if added.is_err() {
            return;
        }
        let name = |what| format!("{what}{place}");
        // SAFETY: the functions of `text`.
        let plain = |what| unsafe { self.jit.function(&name(what)) }.expect("typed");
        // SAFETY: as above.
        let wait = unsafe { self.jit.function(&name("wait")) }.expect("typed");
        self.there[place] = Some(AddedModule {
            constant,
            data: constant,
            number: self.added,
            tracker: self.trackers.len(),
            sum: Arc::new(plain("sum")),
            deep: Arc::new(plain("deep")),
            wait: Arc::new(wait),
        });
        self.trackers.push(Some(tracker));
    }

    fn replace(&mut self, place: usize) {
        self.added += 1;
        let constant = self.added * 1000;
        let new = Replacement::ir("m", &text(place, constant));
        let replaced = self.jit.main().replace(new);
        let Some(module) = &mut self.there[place] else {
            assert!(replaced.is_err(), "replaced what is not there");
            return;
        };
        let replaced = replaced.expect("it is there");
        assert_eq!(replaced.functions.len(), 3);
        self.sets.push((place, module.number, module.constant));
        if self.sets.len() > KEPT {
            self.sets.remove(0);
        }
        module.constant = constant;
    }

    /// Goes back to before the latest replacement of what is still there.
    fn go_back(&mut self) {
        let back = self.jit.rollback();
        while let Some((place, number, constant)) = self.sets.pop() {
            let here = self.there[place].as_mut();
            if let Some(module) = here.filter(|module| module.number == number) {
                assert_eq!(back.expect("kept").functions.len(), 3);
                module.constant = constant;
                return;
            }
        }
        assert!(back.is_err(), "went back to nothing");
    }

    fn call(&self, place: usize, x: u64) {
        if let Some(module) = &self.there[place] {
            let deep = module.constant + 3 * x;
            assert_eq!(module.deep.call(x), deep);
            assert_eq!(module.sum.call(x), deep + module.data);
        }
    }

    /// Calls a removed function by its handle: what has its name now, if anything does.
    fn call_stale(&self, x: u64) {
        if self.stale.is_empty() {
            return;
        }
        let stale = &self.stale[x as usize % self.stale.len()];
        let expected = match &self.there[stale.place] {
            Some(module) => {
                let data = if stale.sums { module.data } else { 0 };
                module.constant + 3 * x + data
            }
            None => GONE,
        };
        assert_eq!(stale.function.call(x), expected, "of a removed function");
    }

    fn compile(&self, place: usize, x: u64) {
        let what = ["sum", "deep", "wait"][x as usize % 3];
        let tier = Tier::ALL[x as usize / 3 % 3];
        let compiled = self.jit.compile_at(&format!("{what}{place}"), tier);
        assert_eq!(
            compiled.is_ok(),
            self.there[place].is_some(),
            "{compiled:?}"
        );
    }

    fn remove(&mut self, place: usize) {
        let Some(module) = &self.there[place] else {
            assert!(self.jit.lookup(&format!("sum{place}")).is_err());
            return;
        };
        let number = module.tracker;
        let tracker = self.trackers[number].take().expect("not removed");
        // SAFETY: data is used by code of the same module only.
        unsafe { tracker.remove() }.expect("once");
        // SAFETY: nothing is left.
        assert!(unsafe { tracker.remove() }.is_err(), "removed twice");
        for (place, held) in self.there.iter_mut().enumerate() {
            if let Some(gone) = held.take_if(|module| module.tracker == number) {
                let stale = [(gone.sum, true), (gone.deep, false)];
                self.stale.extend(stale.map(|(function, sums)| StaleHandle {
                    place,
                    function,
                    sums,
                }));
            }
        }
    }

    fn transfer(&mut self, from: usize, to: usize) {
        let (Some(a), Some(b)) = (&self.there[from], &self.there[to]) else {
            return;
        };
        let (from, to) = (a.tracker, b.tracker);
        if from == to {
            return;
        }
        let gone = self.trackers[from].take().expect("not removed");
        let target = self.trackers[to].as_ref().expect("not removed");
        gone.transfer_to(target).expect("of one dylib");
        // SAFETY: refused, nothing is under it.
        let again = unsafe { gone.remove() };
        assert!(again.is_err(), "removed after a transfer");
        for module in self.there.iter_mut().flatten() {
            if module.tracker == from {
                module.tracker = to;
            }
        }
    }

    /// Has a thread wait inside a function.
    fn enter(&mut self, place: usize, x: u64) {
        let Some(module) = &self.there[place] else {
            return;
        };
        if self.inside.len() == 2 {
            return;
        }
        let flag = Arc::new(AtomicU32::new(0));
        let wait = Arc::clone(&module.wait);
        let its = Arc::clone(&flag);
        let thread = std::thread::spawn(move || wait.call(&*its, x));
        while flag.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.inside.push(Inside {
            flag,
            thread,
            expected: x + module.data,
        });
    }
}
