//! Fibers whose stacks lie next to each other, without a page between that is none, as those of pools
//! do: a call on one is within none of the calls on another one.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use uruk::Func;

use super::{DIVISION, F, Fiber, LONG, SHORT, STACK, function, kind, map, session};

thread_local! {
    static SPIN: RefCell<Option<Func<F>>> = const { RefCell::new(None) };
}

/// Makes a guarded call that does not end by itself.
fn inside(_: i64) -> i64 {
    let spin = SPIN.with_borrow(|spin| spin.clone().expect("set"));
    match kind(spin.within(LONG).call_guarded(0)).as_str() {
        "interrupted" => 1,
        _ => 0,
    }
}

/// Two fibers' stacks; the first lies right below the second.
struct Pool {
    memory: *mut libc::c_void,
}

impl Pool {
    fn new() -> Pool {
        Pool {
            memory: map(2 * STACK),
        }
    }

    fn fiber(&self, index: usize, work: impl FnOnce() -> String + 'static) -> Box<Fiber> {
        // SAFETY: each place is used by one fiber at a time, and fibers go before the pool.
        unsafe { Fiber::on(self.memory.byte_add(index * STACK), work) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.memory, 2 * STACK) };
    }
}

fn call(f: &Func<F>, argument: i64, limit: Option<Duration>) -> impl FnOnce() -> String + 'static {
    let f = f.clone();
    move || {
        kind(match limit {
            Some(limit) => f.within(limit).call_guarded(argument),
            None => f.call_guarded(argument),
        })
    }
}

#[test]
fn limits_of_a_fiber_are_none_of_its_neighbour() {
    let jit = session();
    let (paused, turn, div) = (
        function(&jit, "paused_spin"),
        function(&jit, "turn"),
        function(&jit, "div"),
    );
    for limit in [None, Some(LONG)] {
        let pool = Pool::new();
        let mut upper = pool.fiber(1, call(&paused, 1, Some(SHORT)));
        assert_eq!(upper.resume(), None);
        let (turn, div) = (turn.clone(), div.clone());
        // Until the neighbour's limit has passed for long.
        let mut lower = pool.fiber(0, move || {
            let start = Instant::now();
            while start.elapsed() < 10 * SHORT {
                let done = match limit {
                    Some(limit) => turn.within(limit).call_guarded(1_000_000),
                    None => turn.call_guarded(1_000_000),
                };
                match kind(done).as_str() {
                    "1000000" => {}
                    other => return other.to_owned(),
                }
            }
            kind(div.call_guarded(0))
        });
        assert_eq!(lower.resume(), Some(DIVISION));
        assert_eq!(upper.resume(), Some("not done within 3ms"));
        drop((lower, upper));
    }
}

#[test]
fn a_call_within_another_one_of_its_fiber_ends_with_it() {
    let jit = session();
    SPIN.set(Some(function(&jit, "spin")));
    jit.define_fn("inside", inside).expect("defined");
    let text = "declare i64 @inside(i64)
        define i64 @calls_inside(i64 %n) { %r = call i64 @inside(i64 %n) ret i64 %r }";
    jit.add_ir("n", text).expect("it loads");
    let (paused, outer) = (function(&jit, "paused"), function(&jit, "calls_inside"));
    let pool = Pool::new();
    let mut upper = pool.fiber(1, call(&paused, 5, None));
    assert_eq!(upper.resume(), None);
    // The inner call is interrupted; the outer one, whose limit it was, ends by it or goes on.
    let mut lower = pool.fiber(0, call(&outer, 0, Some(SHORT)));
    let seen = lower.resume().map(str::to_owned);
    assert!(
        matches!(seen.as_deref(), Some("1" | "not done within 3ms")),
        "{seen:?}"
    );
    assert_eq!(upper.resume(), Some("20"));
    SPIN.set(None);
}
