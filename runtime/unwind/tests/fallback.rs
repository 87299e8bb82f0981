//! Unwinding for hosts that cannot interpose: libgcc's own registry. This
//! executable has no `_Unwind_Find_FDE` of its own.

use uruk_unwind::{FrameRegistration, interposed, register_region};

mod support;

use support::{Code, throw_through};

#[test]
fn a_registered_section_is_unwound() {
    let code = Code::new(16);
    let region = register_region(code.base, code.size).unwrap();
    assert!(!interposed());
    // SAFETY: whole records, ended by zero, that stay for ever.
    let registration = unsafe { FrameRegistration::register(code.eh_frame) };
    for i in 0..16 {
        assert_eq!(throw_through(&code, i, i), i);
    }
    // SAFETY: nothing runs there any more.
    unsafe { registration.deregister() };
    drop(region);
}
