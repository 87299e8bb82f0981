//! Reserves a range of the address space at a random place.
//!
//! The kernel randomizes as well, but lays its mappings side by side: an address in one library
//! reveals all of them. Slots are writable function pointers, and code is written through the
//! alias. So each of them lies at a place that neither the libraries nor the other reveals.
//!
//! | place | addresses | bits of chance |
//! |---|---|---|
//! | [`Place::Random`] | up to 4 TiB ([`SPREAD`]) below the kernel's choice | 30, and the kernel's own 28 |
//! | [`Place::Near`] | up to 256 MiB ([`NEAR_SPREAD`]) below the kernel's choice | 16, and the kernel's own 28 |
//! | [`Place::Low`] | `LOW_BASE` to 2 GiB less the size | 17 with the largest reservation, 18 with 1 GiB |
//!
//! 4 TiB because that range is free: executables and the heap that grows behind them begin 42 TiB
//! below the kernel's mappings, and unused addresses are not reserved.
//!
//! Where the process is not randomized (`setarch -R`, a debugger), neither is this: the kernel's
//! place or the lowest one is taken, so that addresses repeat from run to run.
//!
//! # Why
//! The reservation lies at a random place (`heap::place`), below 2 GiB only for objects of the
//! non-PIC model, which the command detects by their relocations. The alias lies at another place,
//! between closed pages, and is closed while nothing is compiled (`heap::opening`).

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::config::Place;
use crate::layout::{HIGHEST_LOW, LOW_BASE, PAGE};

/// How far below the kernel's choice a random place may be.
const SPREAD: usize = 4 << 40;

/// How far below the kernel's choice a place near the libraries may be. With the largest
/// reservation of that kind, 0.5 GiB of a rel32's reach are left for the libraries.
const NEAR_SPREAD: usize = 256 << 20;

/// The lowest random place, except for [`Place::Low`].
const LOWEST: usize = 4 << 30;

/// Random places that are tried before the kernel's.
const TRIES: usize = 16;

/// Reserves `size` bytes, a multiple of [`PAGE`], that cannot be accessed.
///
/// # Errors
/// The kernel's, of the last place that was tried.
pub(crate) fn reserve(size: usize, place: Place) -> Result<usize, Errno> {
    match place {
        Place::Random => below_kernels(size, SPREAD),
        Place::Near => below_kernels(size, NEAR_SPREAD),
        Place::Low => low(size),
    }
}

/// Reserves at random, up to `spread` bytes below the kernel's choice.
fn below_kernels(size: usize, spread: usize) -> Result<usize, Errno> {
    let of_kernel = || map(ptr::null_mut(), size, MapFlags::empty());
    let given = of_kernel()?;
    let lowest = given.saturating_sub(spread).max(LOWEST);
    if lowest >= given || !is_randomized() {
        return Ok(given);
    }
    // Unmap first: a limited address space may not have room for both.
    unmap(given, size);
    for _ in 0..TRIES {
        let Some(wanted) = random_page(&(lowest..given)) else {
            break;
        };
        if let Ok(base) = exactly(wanted, size) {
            return Ok(base);
        }
    }
    of_kernel()
}

fn low(size: usize) -> Result<usize, Errno> {
    let range = LOW_BASE..HIGHEST_LOW.saturating_sub(size) + PAGE;
    for _ in 0..TRIES {
        let Some(wanted) = random_page(&range) else {
            break;
        };
        match exactly(wanted, size) {
            Err(Errno::EXIST) => {}
            result => return result,
        }
    }
    exactly(LOW_BASE, size).or_else(|_| {
        // Try the upper half of the space below 2 GiB, where the kernel finds a free range.
        let half = MapFlags::from_bits_retain(libc::MAP_32BIT as u32);
        let base = map(ptr::null_mut(), size, half)?;
        if base + size <= HIGHEST_LOW {
            return Ok(base);
        }
        unmap(base, size);
        Err(Errno::NOMEM)
    })
}

/// A random page of `range`; `None` without randomness.
fn random_page(range: &Range<usize>) -> Option<usize> {
    let pages = range.len() / PAGE;
    if pages == 0 || !is_randomized() {
        return None;
    }
    let mut number = [0_u8; size_of::<usize>()];
    // SAFETY: fills as many bytes as the array has.
    let filled = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
    // The remainder's bias is below one in 2^34.
    let chosen = usize::from_ne_bytes(number) % pages;
    (filled == number.len() as isize).then(|| range.start + chosen * PAGE)
}

/// Whether the kernel places this process's mappings at random.
fn is_randomized() -> bool {
    /// Queries, and changes nothing.
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: no memory is involved.
    let personality = unsafe { libc::personality(QUERY) };
    // If a sandbox refuses the query, randomization is assumed.
    personality == -1 || personality & libc::ADDR_NO_RANDOMIZE == 0
}

/// Maps at exactly `wanted`, or fails.
fn exactly(wanted: usize, size: usize) -> Result<usize, Errno> {
    let hint = ptr::with_exposed_provenance_mut(wanted);
    let base = map(hint, size, MapFlags::FIXED_NOREPLACE)?;
    if base == wanted {
        return Ok(base);
    }
    // Before Linux 4.17 the flag is unknown, and the address is only a hint.
    unmap(base, size);
    Err(Errno::EXIST)
}

fn map(hint: *mut c_void, size: usize, more: MapFlags) -> Result<usize, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | more;
    // SAFETY: a new mapping that replaces none: `FIXED` is never among the flags.
    let base = unsafe { rustix::mm::mmap_anonymous(hint, size, ProtFlags::empty(), flags) }?;
    Ok(base.expose_provenance())
}

/// Unmaps a mapping of [`map`] that was not handed out.
fn unmap(base: usize, size: usize) {
    // SAFETY: made by `map` in this module, whole, and not handed out.
    let unmapped = unsafe { rustix::mm::munmap(ptr::with_exposed_provenance_mut(base), size) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{LOW_BASE, PAGE, Place, is_randomized, low, reserve, unmap};
    use crate::layout::{HIGHEST_LOW, MAX_LOW_RESERVATION, MAX_NEAR_RESERVATION};

    const SIZE: usize = 1 << 20;

    fn places(place: Place, size: usize, count: usize) -> BTreeSet<usize> {
        let one = |_| {
            let base = reserve(size, place).expect("room");
            unmap(base, size);
            base
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn places_differ() {
        assert!(is_randomized(), "the tests run with randomization");
        let places = places(Place::Random, SIZE, 64);
        assert_eq!(places.len(), 64);
        let (first, last) = (places.first().expect("64"), places.last().expect("64"));
        // Chance fails this once in 2^63.
        assert!(last - first > 1 << 40, "{first:#x} to {last:#x}");
    }

    #[test]
    fn near_places_are_near_the_libraries_and_differ() {
        // The reservations of other tests take the places near the libraries.
        let test = "near_places_are_near_the_libraries_and_differ";
        if !uruk_testing::in_own_process(module_path!(), test) {
            return;
        }
        let size = MAX_NEAR_RESERVATION;
        let places = places(Place::Near, size, 32);
        assert!(places.len() > 16, "{places:x?}");
        let library = libc::getpid as *const () as usize;
        for &base in &places {
            let farthest = library.abs_diff(base).max(library.abs_diff(base + size));
            assert!(farthest < HIGHEST_LOW, "{base:x} {library:x}");
        }
    }

    #[test]
    fn low_places_are_low_and_differ() {
        let places = places(Place::Low, MAX_LOW_RESERVATION, 32);
        assert!(places.len() > 16, "{places:x?}");
        for base in places {
            assert!(base >= LOW_BASE && base.is_multiple_of(PAGE));
            assert!(base + MAX_LOW_RESERVATION <= HIGHEST_LOW);
        }
    }

    #[test]
    fn low_room_runs_out_with_an_error() {
        let mut held = Vec::new();
        let half = 1 << 30;
        while let Ok(base) = low(half) {
            held.push(base);
            assert!(held.len() <= 2, "no more than two halves");
        }
        held.into_iter().for_each(|base| unmap(base, half));
    }
}
