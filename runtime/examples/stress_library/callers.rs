//! Threads that call and check what they get.

use std::cell::Cell;
use std::time::Duration;

use uruk::{Func, GuestThread, Signature, Trap, TrapKind};

use super::fibers;
use super::world::{World, fail};
use uruk_testing::Random;

type Number = extern "C-unwind" fn() -> i64;
type Numbers = extern "C-unwind" fn(i64) -> i64;

/// The functions that are called.
struct Functions {
    pair: Func<Numbers>,
    pair_on_fiber: Func<Numbers>,
    immediate: [Func<Number>; 3],
    sum: Func<Numbers>,
    spin: Func<extern "C-unwind" fn()>,
    div: Func<extern "C-unwind" fn(i64, i64) -> i64>,
    use_gone: Func<Number>,
}

fn function<F: Signature>(world: &World, name: &str) -> Func<F> {
    // SAFETY: functions of `texts`, which compute, or are called guarded.
    let function = unsafe { world.jit.function::<F>(name) };
    function.unwrap_or_else(|cause| fail(&format!("{name}: {cause}")))
}

pub fn run(world: &World, index: usize, seed: u64) {
    let mut random = Random::new(seed);
    let functions = Functions {
        pair: function(world, "pair"),
        pair_on_fiber: function(world, "pair_on_fiber"),
        immediate: ["ia", "ib", "ic"].map(|name| function(world, name)),
        sum: function(world, "sum"),
        spin: function(world, "spin"),
        div: function(world, "div"),
        use_gone: function(world, "use_gone"),
    };
    let mut guests = world.guests.lock().expect("no panic");
    guests.push(GuestThread::current());
    drop(guests);
    while world.goes_on() {
        once(world, index, &functions, &mut random);
    }
    world.end(index);
}

fn once(world: &World, index: usize, functions: &Functions, random: &mut Random) {
    match random.below(9) {
        0 | 1 => {
            world.begin(index, "calls of a quiescent set");
            check_pair(functions.pair.call(nap(random)));
        }
        2 => {
            world.begin(index, "calls of an immediate set");
            for (number, f) in functions.immediate.iter().enumerate() {
                let value = f.call() as u64;
                if value & 0xff != number as u64 {
                    fail(&format!("function {number} gives {value:#x}"));
                }
                world.check_generation(value >> 8);
            }
        }
        3 => {
            world.begin(index, "sums");
            let n = 1 + random.below(200_000) as i64;
            check_sum(n, functions.sum.call(n));
        }
        4 => {
            world.begin(index, "guarded sums with a limit");
            let n = 1 + random.below(200_000) as i64;
            let limit = Duration::from_micros(1 + random.below(20_000) as u64);
            let done = functions.sum.within(limit).call_guarded(n);
            match world.unless_ended(done) {
                Some(Ok(sum)) => check_sum(n, sum),
                Some(Err(trap)) => fail(&format!("sum: {trap}")),
                None => {}
            }
        }
        5 => {
            world.begin(index, "endless calls with a limit");
            let limit = Duration::from_micros(1 + random.below(3_000) as u64);
            match world.unless_ended(functions.spin.within(limit).call_guarded()) {
                None => {}
                Some(other) => fail(&format!("an endless call: {other:?}")),
            }
        }
        6 => {
            world.begin(index, "divisions");
            let divisor = random.below(3) as i64;
            match world.unless_ended(functions.div.call_guarded(84, divisor)) {
                Some(Ok(quotient)) if divisor != 0 && quotient == 84 / divisor => {}
                Some(Err(trap)) if divisor == 0 && matches!(trap.kind, TrapKind::Division) => {}
                Some(other) => fail(&format!("84 / {divisor}: {other:?}")),
                None => {}
            }
        }
        7 => {
            world.begin(index, "calls of removed functions");
            check_gone(world, functions.use_gone.call_guarded());
            // SAFETY: the type that it has as long as it is there.
            if let Ok(lazy) = unsafe { world.jit.function::<Number>("lazy") } {
                check_gone(world, lazy.call_guarded());
            }
        }
        _ => {
            world.begin(index, "fibers");
            let n = random.below(1_000) as i64;
            let got = Cell::new(0);
            let work = || got.set(functions.pair_on_fiber.call(n));
            fibers::on_fiber(&world.jit, &work, || {
                check_pair(functions.pair.call(nap(random)));
                check_sum(7, functions.sum.call(7));
            });
            check_sum(n + 1, got.get());
        }
    }
}

fn nap(random: &mut Random) -> i64 {
    match random.one_in(4) {
        true => random.below(300) as i64,
        false => random.below(2) as i64,
    }
}

fn check_pair(difference: i64) {
    if difference != 0 {
        fail(&format!("a quiescent set was torn: {difference}"));
    }
}

fn check_sum(wanted: i64, got: i64) {
    if wanted != got {
        fail(&format!("{got} instead of {wanted}"));
    }
}

fn check_gone(world: &World, done: Result<i64, Trap>) {
    match world.unless_ended(done) {
        Some(Ok(generation)) => {
            world.count("calls of what comes and goes");
            world.check_generation(generation as u64);
        }
        Some(Err(trap)) => {
            let text = trap.to_string();
            let named = text.contains("gone") || text.contains("lazy");
            let kind = matches!(trap.kind, TrapKind::NotCompiled { .. } | TrapKind::Host(_));
            if !(named && kind) {
                fail(&format!("a removed function: {text}"));
            }
        }
        None => {}
    }
}
