//! The allocation functions that the command exports. `uruk::GATES` documents each. `build.rs` reads the
//! names here.

// Their arguments stay in their registers, and are not used here.
use std::arch::naked_asm;

use uruk::{GATE_COUNT, GATES};

/// Defines gate number `index` under its name.
macro_rules! gate {
    ($index:literal, $name:ident) => {
        const _: () = {
            /// Calls the function in the word of this gate, with the return address as a sixth argument.
            ///
            /// # Safety
            /// Those of the function of that name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    "mov r9, [rsp]",
                    "jmp qword ptr [rip + {words} + {offset}]",
                    words = sym GATES,
                    offset = const $index * 8,
                )
            }
        };
    };
}

gate!(0, malloc);
gate!(1, free);
gate!(2, calloc);
gate!(3, realloc);
gate!(4, memalign);
gate!(5, aligned_alloc);
gate!(6, posix_memalign);
gate!(7, valloc);
gate!(8, pvalloc);
gate!(9, malloc_usable_size);
gate!(10, _Znwm);
gate!(11, _Znam);
gate!(12, _ZnwmRKSt9nothrow_t);
gate!(13, _ZnamRKSt9nothrow_t);
gate!(14, _ZnwmSt11align_val_t);
gate!(15, _ZnamSt11align_val_t);
gate!(16, _ZnwmSt11align_val_tRKSt9nothrow_t);
gate!(17, _ZnamSt11align_val_tRKSt9nothrow_t);
gate!(18, _ZdlPv);
gate!(19, _ZdaPv);
gate!(20, _ZdlPvm);
gate!(21, _ZdaPvm);
gate!(22, _ZdlPvRKSt9nothrow_t);
gate!(23, _ZdaPvRKSt9nothrow_t);
gate!(24, _ZdlPvSt11align_val_t);
gate!(25, _ZdaPvSt11align_val_t);
gate!(26, _ZdlPvmSt11align_val_t);
gate!(27, _ZdaPvmSt11align_val_t);
gate!(28, _ZdlPvSt11align_val_tRKSt9nothrow_t);
gate!(29, _ZdaPvSt11align_val_tRKSt9nothrow_t);

const _: () = assert!(GATE_COUNT == 30);
