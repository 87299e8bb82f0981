//! Time of a thread's work, in parts that do not overlap.
//!
//! A thread that works for a session [enters](Parts::enter) a part. Code inside, which knows no
//! session, enters others ([`enter`]), whose time then does not count for the outer part. Each
//! change of part reads the monotonic clock once. The clock of processor time is a system call. It
//! is read only when the outermost part begins and ends, and when a part begins that wakes other
//! threads. The time between two readings is shared out among the parts in proportion to their
//! wall-clock time:
//!
//! ```text
//! cpu(part) += cpu(between two looks) * wall(part) / wall(between), rounded down
//! ```
//!
//! A woken thread may take the processor of its waker. If the waker's time were shared out with
//! that of a whole compile, a quarter of it would seem to be publication.
//!
//! # Invariants
//! - The processor times of all parts of all threads together are at most those of the
//!   process: outermost parts of one thread follow one another, and the time between two
//!   readings of its clock is shared out once, after the second.
//! - While counting is off, entering a part reads one thread-local variable, and for
//!   an outermost part one flag.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Part {
    /// Making a session: memory, threads, tables.
    Setup,
    /// Loading LLVM's library, where it is not loaded with the executable.
    Loading,
    /// Reading symbol tables, and binding names.
    Reading,
    /// Compiling and linking data; everything, if all is compiled ahead.
    Data,
    /// A first compile at tier 2 ahead of need.
    Warming,
    /// The rest of a version's work: its plan, offers of other modules, waits for them.
    Planning,
    /// Reading bodies, and verifying them.
    Materializing,
    /// Copying bodies to modules of their own, and adding counters.
    Copying,
    /// Passes over the IR, including that of callees that may be inlined.
    Optimizing,
    /// Generating machine code.
    Emitting,
    /// Reading bodies in place, for the baseline compiler.
    Lowering,
    /// Generating machine code with the baseline compiler.
    Assembling,
    /// Placing objects and fixing them up.
    Linking,
    /// Writing code, and making it executable.
    Writing,
    /// Registering code with unwinders, samples and reclaim, and storing it in its slot.
    Publishing,
}

/// The number of parts.
const COUNT: usize = 15;

impl Part {
    /// All parts, in the order of a run.
    pub const ALL: [Part; COUNT] = [
        Part::Setup,
        Part::Loading,
        Part::Reading,
        Part::Data,
        Part::Warming,
        Part::Planning,
        Part::Materializing,
        Part::Copying,
        Part::Optimizing,
        Part::Emitting,
        Part::Lowering,
        Part::Assembling,
        Part::Linking,
        Part::Writing,
        Part::Publishing,
    ];

    /// The part's name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Setup => "setup",
            Part::Loading => "loading",
            Part::Reading => "reading",
            Part::Data => "data",
            Part::Warming => "warming",
            Part::Planning => "planning",
            Part::Materializing => "materializing",
            Part::Copying => "copying",
            Part::Optimizing => "optimizing",
            Part::Emitting => "emitting",
            Part::Lowering => "lowering",
            Part::Assembling => "assembling",
            Part::Linking => "linking",
            Part::Writing => "writing",
            Part::Publishing => "publishing",
        }
    }

    /// Whether all work inside counts for this part. Loading LLVM is the exception: the first part
    /// that needs it does it.
    fn is_whole(self) -> bool {
        matches!(
            self,
            Part::Setup | Part::Loading | Part::Reading | Part::Data | Part::Warming
        )
    }
}

/// The time that a part took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Processor time.
    pub cpu: Duration,
    /// Wall-clock time; that of several threads adds up.
    pub wall: Duration,
}

/// The times of a session's parts. Statistics: every access is relaxed.
#[derive(Debug)]
pub struct Parts {
    on: AtomicBool,
    /// Processor time of the calling thread.
    clock: fn() -> Duration,
    cpu_ns: [AtomicU64; COUNT],
    wall_ns: [AtomicU64; COUNT],
}

/// An outermost part in progress on a thread, and the parts inside it.
struct Course {
    parts: Arc<Parts>,
    began: Duration,
    since: Instant,
    part: Part,
    walls: [Duration; COUNT],
}

thread_local! {
    /// Never dropped: registering a destructor takes the loader's lock, which a thread of the
    /// program may hold while it waits for this one. A thread that ends has no part in progress.
    static COURSE: ManuallyDrop<RefCell<Option<Course>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

impl Parts {
    /// Parts that count nothing yet; `clock` returns the calling thread's processor time.
    #[must_use]
    pub fn new(clock: fn() -> Duration) -> Arc<Parts> {
        Arc::new(Parts {
            on: AtomicBool::new(false),
            clock,
            cpu_ns: Default::default(),
            wall_ns: Default::default(),
        })
    }

    /// Switches counting on.
    pub fn turn_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether counting is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Enters `part` on the calling thread, until the returned value is dropped.
    pub fn enter(self: &Arc<Self>, part: Part) -> Within {
        if !self.is_on() {
            return Within::NOTHING;
        }
        with_course(|course| match course {
            Some(under_way) if Arc::ptr_eq(&under_way.parts, self) => under_way.change(part),
            // Another session's part is in progress and keeps the time.
            Some(_) => Within::NOTHING,
            None => {
                *course = Some(Course {
                    parts: Arc::clone(self),
                    began: (self.clock)(),
                    since: Instant::now(),
                    part,
                    walls: [Duration::ZERO; COUNT],
                });
                Within::of(Ends::Course)
            }
        })
    }

    /// Adds times that were measured elsewhere.
    pub fn add(&self, part: Part, spent: Spent) {
        let add = |counter: &AtomicU64, time: Duration| {
            counter.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        };
        add(&self.cpu_ns[part as usize], spent.cpu);
        add(&self.wall_ns[part as usize], spent.wall);
    }

    /// The time that `part` took, as far as it was shared out.
    #[must_use]
    pub fn spent(&self, part: Part) -> Spent {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        Spent {
            cpu: time(&self.cpu_ns[part as usize]),
            wall: time(&self.wall_ns[part as usize]),
        }
    }
}

/// Enters `part` on the calling thread until the returned value is dropped, if the thread is inside
/// a part of a session that counts.
pub fn enter(part: Part) -> Within {
    with_course(|course| match course {
        Some(course) => course.change(part),
        None => Within::NOTHING,
    })
}

/// Calls `work` with the thread's state. While a thread ends, nothing is counted.
fn with_course(work: impl FnOnce(&mut Option<Course>) -> Within) -> Within {
    let entered = COURSE.try_with(|course| match course.try_borrow_mut() {
        Ok(mut course) => work(&mut course),
        Err(_) => Within::NOTHING,
    });
    entered.unwrap_or(Within::NOTHING)
}

impl Course {
    fn change(&mut self, part: Part) -> Within {
        let whole = self.part.is_whole() && part != Part::Loading;
        if whole || self.part == part {
            return Within::NOTHING;
        }
        if part == Part::Publishing {
            self.settle();
        }
        Within::of(Ends::Part(self.go_to(part)))
    }

    /// Changes the part; returns the part that ends.
    fn go_to(&mut self, part: Part) -> Part {
        let now = Instant::now();
        self.walls[self.part as usize] += now.saturating_duration_since(self.since);
        self.since = now;
        std::mem::replace(&mut self.part, part)
    }

    /// Shares out the processor time since the last reading.
    fn settle(&mut self) {
        self.go_to(self.part);
        let before = std::mem::replace(&mut self.began, (self.parts.clock)());
        // Less than before means that this is the child of a fork.
        let cpu = self.began.saturating_sub(before).as_nanos();
        let all: Duration = self.walls.iter().sum();
        for part in Part::ALL {
            let wall = std::mem::take(&mut self.walls[part as usize]);
            if wall.is_zero() {
                continue;
            }
            let cpu = cpu * wall.as_nanos() / all.as_nanos();
            self.parts.add(
                part,
                Spent {
                    cpu: Duration::from_nanos(cpu as u64),
                    wall,
                },
            );
        }
    }
}

/// The scope that ends with a [`Within`].
#[derive(Clone, Copy)]
enum Ends {
    Nothing,
    /// The inner part; the outer one continues.
    Part(Part),
    Course,
}

/// A part that the calling thread is in until this is dropped.
#[must_use]
pub struct Within {
    ends: Ends,
    /// Belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Within {
    const NOTHING: Within = Within::of(Ends::Nothing);

    const fn of(ends: Ends) -> Within {
        Within {
            ends,
            _thread: PhantomData,
        }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if matches!(self.ends, Ends::Nothing) {
            return;
        }
        let _ = COURSE.try_with(|course| {
            let Ok(mut course) = course.try_borrow_mut() else {
                return;
            };
            match self.ends {
                Ends::Part(outer) => {
                    if let Some(course) = course.as_mut() {
                        course.go_to(outer);
                    }
                }
                Ends::Course => {
                    if let Some(mut course) = course.take() {
                        course.settle();
                    }
                }
                Ends::Nothing => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::{Part, Parts, Spent, enter};

    thread_local! {
        static CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Works for a while, all of it on a processor.
    fn work(ms: u64) {
        thread::sleep(Duration::from_millis(ms));
        CPU.set(CPU.get() + Duration::from_millis(ms));
    }

    fn parts() -> Arc<Parts> {
        let parts = Parts::new(|| CPU.get());
        parts.turn_on();
        parts
    }

    fn sum(parts: &Parts) -> Duration {
        Part::ALL.iter().map(|&part| parts.spent(part).cpu).sum()
    }

    #[test]
    fn parts_inside_are_not_the_outer_ones() {
        let parts = parts();
        let outer = parts.enter(Part::Planning);
        work(2);
        {
            let _copying = enter(Part::Copying);
            work(4);
            let _materializing = enter(Part::Materializing);
            work(8);
        }
        let again = parts.enter(Part::Planning);
        drop(again);
        assert_eq!(sum(&parts), Duration::ZERO, "nothing has ended");
        drop(outer);
        let wall = |part| parts.spent(part).wall;
        assert!(wall(Part::Planning) >= Duration::from_millis(2));
        assert!(wall(Part::Copying) >= Duration::from_millis(4));
        assert!(wall(Part::Materializing) >= Duration::from_millis(8));
        for part in Part::ALL {
            let spent = parts.spent(part);
            assert!(spent.cpu <= spent.wall, "{part:?}: {spent:?}");
        }
        let (all, rounding) = (sum(&parts), Duration::from_nanos(Part::ALL.len() as u64));
        assert!(all <= CPU.get() && all + rounding >= CPU.get(), "{all:?}");
    }

    #[test]
    fn who_is_woken_takes_nothing_from_what_was_done_before() {
        let parts = parts();
        {
            let _planning = parts.enter(Part::Planning);
            work(4);
            let _publishing = enter(Part::Publishing);
            // Another thread has the processor.
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(parts.spent(Part::Publishing).cpu, Duration::ZERO);
        assert_eq!(parts.spent(Part::Planning).cpu, Duration::from_millis(4));
        assert!(parts.spent(Part::Publishing).wall >= Duration::from_millis(20));
    }

    #[test]
    fn whole_parts_have_all_that_is_done_inside() {
        let parts = parts();
        let data = parts.enter(Part::Data);
        {
            let _emitting = enter(Part::Emitting);
            work(2);
        }
        drop(data);
        assert_eq!(parts.spent(Part::Emitting), Spent::default());
        assert_eq!(parts.spent(Part::Data).cpu, Duration::from_millis(2));
    }

    #[test]
    fn nobody_asked_and_nothing_is_counted() {
        let off = Parts::new(|| CPU.get());
        {
            let _reading = off.enter(Part::Reading);
            let _copying = enter(Part::Copying);
            work(1);
        }
        let other = parts();
        let _theirs = other.enter(Part::Planning);
        let on = parts();
        {
            let _ours = on.enter(Part::Linking);
            work(1);
        }
        for parts in [&off, &on] {
            assert_eq!(sum(parts), Duration::ZERO);
        }
    }

    #[test]
    fn a_panic_ends_what_it_leaves() {
        let parts = parts();
        let caught = std::panic::catch_unwind(|| {
            let _linking = parts.enter(Part::Linking);
            work(1);
            let _writing = enter(Part::Writing);
            panic!("in the middle");
        });
        assert!(caught.is_err());
        assert!(sum(&parts) > Duration::ZERO);
        let _next = parts.enter(Part::Writing);
    }
}
