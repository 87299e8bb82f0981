//! The constant image of a stub page.
//!
//! ```text
//! +0   ff 25 d d d d   jmp  [rip + slot - stub - 6]      each function's stub
//! +6   e8 r r r r      call common                       the trampoline
//! +11  cc cc cc cc cc
//! ...
//! +4080  ff 25 d d d d   jmp [rip + slot - stub - 6]     the common jump
//! +4086  cc ...
//! ```
//!
//! A function's slot holds its code, or `stub + 6`. The common jump is the last
//! cell of the page; its own slot holds the resolver's address. So every page of
//! every table of a heap has the same bytes, and nothing but slots ever changes.
//!
//! The `call` only pushes an address that identifies the stub; it is never returned to.

use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, DynasmLabelApi, VecAssembler, dynasm};
use uruk_heap::StubPage;

use crate::cell::CELL_BYTES;
use crate::function::{CELLS_PER_PAGE, FUNCTIONS_PER_PAGE};

/// Offset of the trampoline in a stub: the length of the jump.
pub(crate) const TRAMPOLINE: u64 = 6;
/// Offset in a stub of the address that its `call` pushes.
pub(crate) const CALL_RETURN: u64 = TRAMPOLINE + 5;
/// Offset of the common jump in a page.
pub(crate) const COMMON: u64 = FUNCTIONS_PER_PAGE as u64 * CELL_BYTES;

/// Assembles the page for slots at `distance` from their stubs.
pub(crate) fn stub_page(distance: i32) -> Box<StubPage> {
    let mut ops = VecAssembler::<X64Relocation>::new(0);
    let from_jump = distance - TRAMPOLINE as i32;
    let common = ops.new_dynamic_label();
    for _ in 0..FUNCTIONS_PER_PAGE {
        dynasm!(ops
            ; .arch x64
            ; jmp QWORD [rip + from_jump]
            ; call =>common
        );
        ops.extend([0xcc; (CELL_BYTES - CALL_RETURN) as usize]);
    }
    dynasm!(ops
        ; .arch x64
        ; =>common
        ; jmp QWORD [rip + from_jump]
    );
    ops.extend([0xcc; (CELL_BYTES - TRAMPOLINE) as usize]);
    let bytes = ops.finalize().expect("the only label is defined");
    bytes
        .into_boxed_slice()
        .try_into()
        .expect("256 cells of 16 bytes are a page")
}

const _: () = assert!(size_of::<StubPage>() as u64 == CELLS_PER_PAGE as u64 * CELL_BYTES);
