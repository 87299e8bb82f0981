//! Globals that a body of another module mentions, in the unit that it is copied into.
//!
//! They are declared under the names they have in the parcel. A name means one thing in a unit. If
//! the unit already has a global of that name, from any module, the parcel's mention means that
//! global.

use inkwell::llvm_sys::core::{
    LLVMGetLinkage, LLVMGetUnnamedAddress, LLVMIsGlobalConstant, LLVMIsThreadLocal,
    LLVMSetGlobalConstant, LLVMSetLinkage, LLVMSetThreadLocalMode, LLVMSetUnnamedAddress,
};
use inkwell::llvm_sys::{LLVMLinkage, LLVMThreadLocalMode};

use crate::copying::Copying;
use crate::handles::{ValueRef, VariableRef};
use crate::properties::{copy_alignment, mark_dso_local};

/// The unit's global for one that a parcel mentions.
pub(crate) fn map_global<'r>(copying: &mut Copying<'r>, old: ValueRef<'r>) -> ValueRef<'r> {
    let name = old.name();
    if let Some(known) = copying.module.global(&name) {
        return known;
    }
    let new = match (old.as_function(), old.as_variable()) {
        (None, Some(variable)) => *declare_data(copying, variable, &name),
        _ => *copying.declare_function(old, &name, true),
    };
    // SAFETY: a live global; a declaration of ours.
    unsafe {
        if LLVMGetLinkage(old.raw()) == LLVMLinkage::LLVMExternalWeakLinkage {
            LLVMSetLinkage(new.raw(), LLVMLinkage::LLVMExternalWeakLinkage);
        }
    }
    new
}

fn declare_data<'r>(
    copying: &mut Copying<'r>,
    old: VariableRef<'r>,
    name: &str,
) -> VariableRef<'r> {
    let near = copying.contents.taken.iter().any(|&index| {
        let parcel = &copying.how.offers[index].parcel;
        parcel.is_near(name)
    });
    let new = copying.declare_like(*old, name);
    // SAFETY: live variables of one type.
    let thread_local = unsafe {
        LLVMSetGlobalConstant(new.raw(), LLVMIsGlobalConstant(old.raw()));
        LLVMSetUnnamedAddress(new.raw(), LLVMGetUnnamedAddress(old.raw()));
        LLVMIsThreadLocal(old.raw()) != 0
    };
    copy_alignment(*old, *new);
    if thread_local {
        let general = LLVMThreadLocalMode::LLVMGeneralDynamicTLSModel;
        // SAFETY: a variable of ours.
        unsafe { LLVMSetThreadLocalMode(new.raw(), general) };
    } else if near {
        mark_dso_local(*new);
    }
    if old.initializer().is_some() {
        copying.constants.push((old, new));
    }
    new
}
