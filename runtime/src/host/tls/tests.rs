//! Thread-locals of modules, by thread. All tests hold a pass, as loading does.

use super::*;
use crate::fork::gate;

#[test]
fn static_storage_is_the_same_offset_in_every_thread() {
    let _pass = gate::enter();
    let place = place(40, 8, true).unwrap();
    let offset = place.static_offset.expect("a test is an executable");
    fill(place, vec![3; 8], 40, 8);
    let check = move || {
        let _pass = gate::enter();
        let mine = (thread_pointer() + offset) as u64;
        assert_eq!(address(place.module, 0), Some(mine));
        // SAFETY: 40 bytes of this thread's static storage.
        let bytes = unsafe { std::slice::from_raw_parts(mine as *const u8, 40) };
        assert_eq!((bytes[7], bytes[8]), (3, 0));
    };
    std::thread::spawn(check).join().unwrap();
}

#[test]
fn every_thread_gets_its_own_initialized_block() {
    let _pass = gate::enter();
    prepare();
    let place = place(64, 64, false).unwrap();
    fill(place, vec![7, 8], 64, 64);
    let module = place.module;
    let check = move || {
        let _pass = gate::enter();
        let address = address(module, 0).expect("there");
        assert_eq!(address % 64, 0);
        // SAFETY: 64 bytes of this thread's block.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, 64) };
        assert_eq!(&bytes[..3], &[7, 8, 0]);
        bytes[0] = 99;
        assert_eq!(super::address(module, 1), Some(address + 1));
        address
    };
    let mine = check();
    let theirs = std::thread::spawn(check).join().unwrap();
    assert_ne!(mine, theirs);
}

#[test]
fn a_slot_is_used_again_with_fresh_contents_and_its_old_module_is_gone() {
    let _pass = gate::enter();
    prepare();
    let start = |byte: u8, align: usize| {
        let place = place(16, align, false).unwrap();
        fill(place, vec![byte; 16], 16, align);
        place
    };
    let bytes = |place: TemplatePlace| {
        let at = address(place.module, 0).expect("there");
        // SAFETY: 16 bytes of this thread's block.
        unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 16) }
    };
    for align in [1, 16, 4096, 8192] {
        let first = start(5, align);
        bytes(first)[0] = 99;
        assert_eq!(&bytes(first)[..2], &[99, 5]);
        drop(OwnedSlot::new(first).expect("not static"));
        assert_eq!(address(first.module, 0), None);
        // Another thread of the test may take the slot in between.
        let second = std::iter::repeat_with(|| start(6, align));
        let second = second
            .take(64)
            .find(|second| slot_of(second.module) == slot_of(first.module));
        let Some(second) = second else { continue };
        assert_eq!(&bytes(second)[..2], &[6, 6]);
        assert_eq!(bytes(second).as_ptr() as usize % align, 0);
        assert_eq!(address(first.module, 0), None);
    }
}
