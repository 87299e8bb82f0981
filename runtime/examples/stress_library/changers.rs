//! Threads that change what is called.

use std::time::Duration;

use uruk::{Level, ReclaimKind, Replaced, Replacement, Tier};

use super::texts::{self, LETTERS};
use super::world::{World, fail};
use uruk_testing::Random;

type Number = extern "C-unwind" fn() -> i64;
type Numbers = extern "C-unwind" fn(i64) -> i64;

pub fn run(world: &World, index: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut latest: Option<Replaced> = None;
    while world.goes_on() {
        once(world, index, &mut random, &mut latest);
        if random.one_in(8) {
            std::thread::sleep(Duration::from_millis(random.below(5) as u64));
        }
    }
    world.end(index);
}

fn once(world: &World, index: usize, random: &mut Random, latest: &mut Option<Replaced>) {
    let generation = world.generation();
    match random.below(14) {
        0..=5 => replace(world, index, random, latest),
        6 => come_and_go(world, index, random, generation),
        7 | 8 => lazy(world, index, random, generation),
        9 => {
            world.begin(index, "evacuations");
            let kind = if random.one_in(2) {
                ReclaimKind::Evacuate
            } else {
                ReclaimKind::Sweep
            };
            world
                .jit
                .reclaim(kind, Duration::from_millis(random.below(100) as u64));
        }
        10 => {
            world.begin(index, "pins");
            let names = ["pair", "sum", "use_gone", "pair_on_fiber", "qb", "ia"];
            let name = names[random.below(names.len())];
            let tiers = [Some(Tier::Baseline), Some(Tier::Optimized), None];
            // It may lose a race with another change of the tier, or miss a name.
            if world.jit.main().pin(name, tiers[random.below(3)]).is_err() {
                world.count("pins that failed");
            }
        }
        11 => fork(world, index),
        _ => {
            world.begin(index, "interrupts");
            let guests = world.guests.lock().expect("no panic").clone();
            if !guests.is_empty() {
                world.jit.interrupt(&guests[random.below(guests.len())]);
            }
        }
    }
}

/// Replaces some of what is called, or takes the latest replacement back.
fn replace(world: &World, index: usize, random: &mut Random, latest: &mut Option<Replaced>) {
    let generation = world.generation();
    match random.below(6) {
        0 | 1 => {
            world.begin(index, "quiescent replacements");
            let members = if random.one_in(2) {
                &LETTERS[..3]
            } else {
                &LETTERS[1..]
            };
            let new = Replacement::ir("q", &texts::quiescent(members, generation));
            let wait = Duration::from_millis(1 + random.below(300) as u64);
            let done = world
                .jit
                .main()
                .replace(new.level(Level::Quiescent { wait }));
            world.check_replaced("a quiescent replacement", done);
        }
        2 | 3 => {
            world.begin(index, "immediate replacements");
            let members = if random.one_in(2) {
                &LETTERS[..2]
            } else {
                &LETTERS[1..3]
            };
            let new = Replacement::ir("i", &texts::immediate(members, generation));
            let done = world.jit.main().replace(new);
            *latest = world.check_replaced("an immediate replacement", done);
        }
        4 => {
            world.begin(index, "rollbacks");
            let done = latest.take().map(|it| it.rollback());
            done.and_then(|done| world.check_replaced("a rollback", done));
        }
        _ => {
            world.begin(index, "replacements under loops");
            let new = match random.below(3) {
                0 => Replacement::ir("s", &texts::step(generation)),
                1 => Replacement::ir("s", &texts::step_and_sum(generation)).osr(true),
                _ => {
                    let wait = Duration::from_millis(1 + random.below(100) as u64);
                    let new = Replacement::ir("s", &texts::step(generation));
                    new.level(Level::Quiescent { wait })
                }
            };
            let done = world.jit.main().replace(new);
            world.check_replaced("a replacement under loops", done);
        }
    }
}

/// Adds and removes a function that others call. Another thread may have added it.
fn come_and_go(world: &World, index: usize, random: &mut Random, generation: u64) {
    world.begin(index, "removals");
    let tracker = world.jit.main().create_tracker();
    let tracker = tracker.unwrap_or_else(|cause| fail(&format!("a tracker: {cause}")));
    match tracker.add_ir("gone", &texts::gone(generation)) {
        Ok(()) => std::thread::sleep(Duration::from_micros(random.below(3_000) as u64)),
        Err(cause) if cause.to_string().to_lowercase().contains("duplicate") => {}
        Err(cause) => fail(&format!("an addition: {cause}")),
    }
    // SAFETY: calls of it are guarded, it has no data, and threads in it end there.
    if let Err(cause) = unsafe { tracker.remove() } {
        fail(&format!("a removal: {cause}"));
    }
}

/// Defines a function lazily, replaces it, or removes all there is of it.
fn lazy(world: &World, index: usize, random: &mut Random, generation: u64) {
    let dylib = world.jit.main();
    world.begin(index, "lazy definitions");
    if random.one_in(3) {
        let text = format!("define i64 @lazy() {{ ret i64 {generation} }}");
        let done = dylib.replace(Replacement::ir("lazy", &text));
        world.check_replaced("a replacement of a lazy function", done);
        return;
    }
    let defined = dylib.define_lazy::<Number>("lazy", move |module| {
        let word = module.get_context().i64_type();
        let function = module.add_function("lazy", word.fn_type(&[], false), None);
        let builder = module.get_context().create_builder();
        builder.position_at_end(module.get_context().append_basic_block(function, ""));
        builder.build_return(Some(&word.const_int(generation, false)))?;
        Ok(())
    });
    if let Err(cause) = defined {
        fail(&format!("a lazy definition: {cause}"));
    }
}

/// Forks; the child calls and replaces.
fn fork(world: &World, index: usize) {
    world.begin(index, "forks");
    // SAFETY: the child only uses the session and ends.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        fail("fork");
    }
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            libc::_exit(if child(world) { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: our child.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if waited != pid || status != 0 {
        fail(&format!("a child of fork ended with status {status:#x}"));
    }
}

fn child(world: &World) -> bool {
    // SAFETY: functions of `texts`.
    let functions = unsafe {
        (
            world.jit.function::<Numbers>("pair"),
            world.jit.function::<Numbers>("sum"),
        )
    };
    let (Ok(pair), Ok(sum)) = functions else {
        return false;
    };
    let limit = Duration::from_secs(30);
    let before = pair.call(0) == 0 && sum.within(limit).call_guarded(1_000).ok() == Some(1_000);
    let new = Replacement::ir("child", &texts::step_and_sum(3));
    let replaced = world.jit.main().replace(new).is_ok();
    before && replaced && pair.call(0) == 0 && sum.call(1_000) == 1_000
}
