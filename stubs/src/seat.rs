//! Binds a service thread to the processor of its callers.
//!
//! A guest that waits for an answer leaves its processor idle. The answering thread runs best
//! there, with the guest's data in the caches and no other processor to wake. So a service thread
//! *takes a seat*: it binds itself to its last caller's processor, until no call came for a while.
//! Meanwhile it has a short time slice, too: the kernel then runs it as soon as it is woken, before
//! the guest sleeps. So the guest need not be woken, often on another processor.
//!
//! Guests are never bound to a processor: they may leave a wait by `longjmp`, and threads they
//! start would be bound, too.
//!
//! Measured on two idle cores: waking an idle one and being woken from it, 50 us; a change of
//! threads on one, 4 to 6. sqlite's trivial query, 520 first calls: 100 ms with the kernel's
//! choice, 77 with this one (medians of 25, by turns).
//!
//! # Invariants
//! - The thread keeps its former settings, and [`leave`] restores them.
//! - A thread is bound only to a processor that a caller ran on: the program may use it.
//! - Where the kernel refuses, the thread stays where it was.

use std::cell::Cell;

/// Time slice of a bound thread, the least allowed (`sched(7)`), in nanoseconds. A kernel before
/// 6.12 has the same for all threads and ignores it.
const SLICE: u64 = 100_000;

/// The kernel's `struct sched_attr`, its first version.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The processor that a thread is bound to or avoids, and the thread's former settings.
#[derive(Clone, Copy)]
struct Seat {
    processor: u32,
    away: bool,
    before: libc::cpu_set_t,
}

thread_local! {
    static SEAT: Cell<Option<Seat>> = const { Cell::new(None) };
}

/// The processor that the calling thread is bound to.
pub fn processor() -> Option<u32> {
    let seat = SEAT.get().filter(|seat| !seat.away);
    seat.map(|seat| seat.processor)
}

/// Keeps the calling thread off `processor`, where a caller runs, if there is another one. The
/// kernel wakes a thread that does other work where it ran last, or where its waker runs. There it
/// would take half of the caller's processor while another one is idle.
pub fn avoid(processor: u32) {
    let seat = SEAT.get();
    if seat.is_some_and(|seat| seat.away && seat.processor == processor)
        || processor >= libc::CPU_SETSIZE as u32
    {
        return;
    }
    let Some(before) = seat.map_or_else(allowed, |seat| Some(seat.before)) else {
        return;
    };
    let mut others = before;
    // SAFETY: the number is below the size of a set.
    let left = unsafe {
        libc::CPU_CLR(processor as usize, &mut others);
        libc::CPU_COUNT(&others)
    };
    if left == 0 || !allow(&others) {
        return leave();
    }
    let away = true;
    SEAT.set(Some(Seat {
        processor,
        away,
        before,
    }));
}

/// Binds the calling thread to `processor`, which a caller runs on.
pub fn take(processor: u32) {
    let seat = SEAT.get();
    if seat.is_some_and(|seat| !seat.away && seat.processor == processor)
        || processor >= libc::CPU_SETSIZE as u32
    {
        return;
    }
    let Some(before) = seat.map_or_else(allowed, |seat| Some(seat.before)) else {
        return;
    };
    // SAFETY: all bytes zero is the empty set; the number is below its size.
    let one = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor as usize, &mut one);
        one
    };
    if !allow(&one) {
        return leave();
    }
    if seat.is_none_or(|seat| seat.away) {
        set_slice(SLICE);
    }
    let away = false;
    SEAT.set(Some(Seat {
        processor,
        away,
        before,
    }));
}

/// Restores the settings that the calling thread had before it was bound.
pub fn leave() {
    if let Some(seat) = SEAT.take() {
        allow(&seat.before);
        if !seat.away {
            set_slice(0);
        }
    }
}

/// The processors that the calling thread may run on; `None` if there is only one, or more than a
/// set of the C library's holds.
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: a live set of the size that is given; all bytes zero is the empty set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0;
        (!failed && libc::CPU_COUNT(&set) > 1).then_some(set)
    }
}

fn allow(set: &libc::cpu_set_t) -> bool {
    // SAFETY: a live set of the size that is given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0 }
}

/// Sets the time slice of the calling thread, in nanoseconds; zero is the kernel's default.
/// Real-time threads have none.
fn set_slice(nanoseconds: u64) {
    const SIZE: u32 = size_of::<Attributes>() as u32;
    // SAFETY: a live place of the size that is given; all bytes zero are numbers.
    unsafe {
        let mut attributes: Attributes = std::mem::zeroed();
        let known = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) == 0;
        let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH];
        if known && ordinary.contains(&(attributes.policy as i32)) {
            attributes.runtime = nanoseconds;
            (attributes.size, attributes.flags) = (SIZE, 0);
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{allowed, avoid, leave, processor, take};

    #[test]
    fn who_sits_is_where_it_sits_and_has_all_again_after() {
        std::thread::spawn(|| {
            let Some(before) = allowed() else { return };
            // SAFETY: the number is below the size of a set.
            let all = (0..libc::CPU_SETSIZE as usize)
                .filter(|processor| unsafe { libc::CPU_ISSET(*processor, &before) });
            for number in all {
                take(number as u32);
                assert_eq!(processor(), Some(number as u32));
                assert_eq!(
                    crate::sys::processor().unwrap_or(number as u32),
                    number as u32
                );
                assert!(allowed().is_none());
            }
            take(u32::MAX);
            assert!(allowed().is_none(), "no such processor");
            leave();
            // SAFETY: as above.
            let first = (0..libc::CPU_SETSIZE as usize)
                .find(|processor| unsafe { libc::CPU_ISSET(*processor, &before) });
            let first = first.expect("one") as u32;
            avoid(first);
            assert_eq!(processor(), None, "it sits nowhere");
            assert_ne!(crate::sys::processor(), Some(first));
            avoid(u32::MAX);
            take(first);
            assert_eq!(processor(), Some(first));
            avoid(first);
            assert_ne!(crate::sys::processor(), Some(first));
            leave();
            assert_eq!(processor(), None);
            let after = allowed().expect("more than one");
            // SAFETY: two live sets.
            assert!(unsafe { libc::CPU_EQUAL(&before, &after) });
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn the_processor_is_the_one_the_kernel_says() {
        let Some(before) = crate::sys::processor() else {
            return;
        };
        let known = (0..1000).any(|_| {
            // SAFETY: no arguments.
            let said = unsafe { libc::sched_getcpu() };
            crate::sys::processor() == u32::try_from(said).ok()
        });
        assert!(known, "{before}");
    }
}
