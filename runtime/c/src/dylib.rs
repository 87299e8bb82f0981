//! Dylibs: adding code, lookups of one name, functions and their tiers.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use uruk::inkwell::module::Module;
use uruk::{Dylib, FunctionType, HostFunction, LazyObject, Members};

use crate::boundary::{
    Fault, array, give, guarded, handle, number, place, take, text, texts, tier_or_none, unusable,
    uruk_function, value,
};
use crate::error::{give_text, uruk_error};
use crate::session::uruk_jit;
use crate::settings::LLVMOpaqueModule;

/// A named symbol table with a link order, like one dynamic library. Keeps its session alive.
pub struct uruk_dylib(pub(crate) Dylib);

/// The dylib behind a handle.
///
/// # Safety
/// As for all handles.
pub(crate) unsafe fn dylib_of<'a>(dylib: *const uruk_dylib) -> Result<&'a Dylib, Fault> {
    // SAFETY: by the caller's promise.
    unsafe { dylib_called(dylib, "dylib") }
}

/// The dylib behind a handle, which errors name as the header does.
///
/// # Safety
/// As for all handles.
pub(crate) unsafe fn dylib_called<'a>(
    dylib: *const uruk_dylib,
    what: &str,
) -> Result<&'a Dylib, Fault> {
    // SAFETY: by the caller's promise.
    unsafe { handle(dylib, what) }.map(|dylib| &dylib.0)
}

/// Bitcode of a module that was made by LLVM's C interface, of the LLVM that this library uses.
///
/// # Safety
/// It is a live module of that library, which no other thread changes during the call.
pub(crate) unsafe fn bitcode_of(module: *mut LLVMOpaqueModule) -> Result<(String, Vec<u8>), Fault> {
    if module.is_null() {
        return Err(unusable("module", "a null pointer"));
    }
    // SAFETY: by the caller's promise; it is lent, so not disposed of here.
    let module = std::mem::ManuallyDrop::new(unsafe { Module::new(module.cast()) });
    let name = module.get_name().to_string_lossy().into_owned();
    Ok((name, module.write_bitcode_to_memory().as_slice().to_vec()))
}

/// Frees a handle of a dylib, which goes on to exist; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_free(dylib: *mut uruk_dylib) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(dylib) };
}

/// Another handle of the session of a dylib, to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_jit(dylib: *const uruk_dylib) -> *mut uruk_jit {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        Ok(give(uruk_jit::of(
            unsafe { dylib_of(dylib)? }.jit().clone(),
        )))
    })
}

/// The dylib's name, to be freed by `uruk_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_name(dylib: *const uruk_dylib) -> *mut c_char {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        Ok(give_text(unsafe { dylib_of(dylib)? }.name()))
    })
}

/// Adds a module of IR text; `name` is what it is called in messages. Its functions have their
/// addresses at once and are compiled when they are first called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_ir(
    dylib: *const uruk_dylib,
    name: *const c_char,
    ir: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, ir) = unsafe { (dylib_of(dylib)?, text(name, "name")?, text(ir, "ir")?) };
        Ok(dylib.add_ir(name, ir)?)
    })
}

/// Adds a module of bitcode, which is copied: as `uruk_dylib_add_ir`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_bitcode(
    dylib: *const uruk_dylib,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), size, "bytes")?;
            (dylib_of(dylib)?, text(name, "name")?, bytes)
        };
        Ok(dylib.add_bitcode(name, bytes)?)
    })
}

/// Adds a module of LLVM's C interface (`LLVMModuleRef`), which is copied and stays the
/// caller's. It is one of the LLVM that this library uses: for hosts that link the same shared
/// library. Others have `uruk_llvm_add_module` of `uruk-llvm.h`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_module(
    dylib: *const uruk_dylib,
    module: *mut LLVMOpaqueModule,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, (name, bytes)) = unsafe { (dylib_of(dylib)?, bitcode_of(module)?) };
        Ok(dylib.add_bitcode(&name, bytes)?)
    })
}

/// Adds an ELF object, which is copied, and linked at once.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_object(
    dylib: *const uruk_dylib,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), size, "bytes")?;
            (dylib_of(dylib)?, text(name, "name")?, bytes)
        };
        Ok(dylib.add_object(name, bytes)?)
    })
}

/// Adds an ELF object, which is copied, and linked when one of its symbols is asked for.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_lazy_object(
    dylib: *const uruk_dylib,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), size, "bytes")?;
            (dylib_of(dylib)?, text(name, "name")?, bytes)
        };
        Ok(dylib.define(LazyObject::new(dylib.jit(), name, bytes)?)?)
    })
}

/// Adds a file: bitcode, IR text, an object or an archive, told by its content.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_file(
    dylib: *const uruk_dylib,
    path: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, path) = unsafe { (dylib_of(dylib)?, text(path, "path")?) };
        Ok(dylib.add_file(Path::new(path))?)
    })
}

/// Adds a static archive: members as they are needed, or all of them (`whole` is 1).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_archive(
    dylib: *const uruk_dylib,
    path: *const c_char,
    whole: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, path) = unsafe { (dylib_of(dylib)?, text(path, "path")?) };
        let members = match whole {
            0 => Members::Needed,
            _ => Members::All,
        };
        dylib.add_archive(Path::new(path), members)?;
        Ok(())
    })
}

/// Gives a name to a variable of the host, which stays there as long as the session is used.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_define_address(
    dylib: *const uruk_dylib,
    name: *const c_char,
    address: u64,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the pointers and of what is there.
        unsafe {
            let (dylib, name) = (dylib_of(dylib)?, text(name, "name")?);
            let address = ptr::with_exposed_provenance(address as usize);
            Ok(dylib.define_address(name, address)?)
        }
    })
}

/// Gives a name to a function of the host: JIT'd code calls it. `type` is its type as LLVM writes
/// it, `void (i64, ptr)`: modules that declare it otherwise are refused. Null asks for no
/// comparison.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_define_function(
    dylib: *const uruk_dylib,
    name: *const c_char,
    r#type: *const c_char,
    function: uruk_function,
) -> *mut uruk_error {
    guarded(|| {
        let function = function.ok_or_else(|| unusable("function", "a null pointer"))?;
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        let address = function as *const ();
        if r#type.is_null() {
            // SAFETY: the caller's promise of the function.
            unsafe { dylib.define_address(name, address)? };
            return Ok(());
        }
        // SAFETY: the caller's promise of the pointer.
        let said = unsafe { text(r#type, "type")? };
        let ty = FunctionType::parse(said);
        let ty =
            ty.ok_or_else(|| unusable("type", &format!("`{said}` is no type of a function")))?;
        // SAFETY: the caller's promise of the function.
        let function = unsafe { HostFunction::from_address(ty, address) };
        Ok(dylib.define_fns([(name, function)])?)
    })
}

/// The address of a symbol: of a function its stub, which stays the same whatever is
/// recompiled.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_lookup(
    dylib: *const uruk_dylib,
    name: *const c_char,
    address: *mut u64,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) = unsafe {
            (
                dylib_of(dylib)?,
                text(name, "name")?,
                place(address, "address")?,
            )
        };
        *to = dylib.lookup(name)?;
        Ok(())
    })
}

/// A function to be cast and called. `type` is its type as LLVM writes it, `i64 (i64, ptr)`, and
/// is compared with the IR's; null asks for no comparison. `signext` and `zeroext` need not be in
/// it. Functions of objects and units have none to be compared with.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_function(
    dylib: *const uruk_dylib,
    name: *const c_char,
    r#type: *const c_char,
    function: *mut uruk_function,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) = unsafe {
            (
                dylib_of(dylib)?,
                text(name, "name")?,
                place(function, "function")?,
            )
        };
        *to = None;
        let address = match r#type.is_null() {
            true => {
                // A variable gives an error.
                dylib.type_of(name)?;
                dylib.lookup(name)?
            }
            // SAFETY: the caller's promise of the pointer.
            false => dylib.lookup_as(name, unsafe { text(r#type, "type")? })?,
        };
        // SAFETY: a function's stub, not null; the caller who casts it promises its type.
        *to = unsafe { std::mem::transmute::<u64, uruk_function>(address) };
        Ok(())
    })
}

/// The type of a function as LLVM writes it, to be freed by `uruk_string_free`; null where it
/// has none that is known. Small integers, results as well, have marks of how they are extended where
/// IR says it: `i16 zeroext (i8 signext)`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_type(
    dylib: *const uruk_dylib,
    name: *const c_char,
    r#type: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) = unsafe {
            (
                dylib_of(dylib)?,
                text(name, "name")?,
                place(r#type, "type")?,
            )
        };
        *to = dylib.type_of(name)?.map_or(ptr::null_mut(), give_text);
        Ok(())
    })
}

/// Compiles a function now, without calling it: at a tier, or (0) unless it has code.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_compile(
    dylib: *const uruk_dylib,
    name: *const c_char,
    tier: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        match tier_or_none(tier)? {
            None => dylib.compile(name)?,
            Some(tier) => dylib.compile_at(name, tier)?,
        }
        Ok(())
    })
}

/// Keeps a function at a tier, or (0) leaves it to the policy again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_pin(
    dylib: *const uruk_dylib,
    name: *const c_char,
    tier: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        Ok(dylib.pin(name, tier_or_none(tier)?)?)
    })
}

/// The tier of the code that calls of a function reach; 0 before the first call, and for
/// functions of objects.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_tier(
    dylib: *const uruk_dylib,
    name: *const c_char,
    tier: *mut c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) =
            unsafe { (dylib_of(dylib)?, text(name, "name")?, place(tier, "tier")?) };
        *to = number(dylib.tier(name)?);
        Ok(())
    })
}

/// Takes the code of a function away, which its next call compiles again; `evicted`, which may
/// be null, tells whether it had any that may go.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_evict(
    dylib: *const uruk_dylib,
    name: *const c_char,
    evicted: *mut c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        let gone = dylib.evict(name)?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(evicted) = unsafe { evicted.as_mut() } {
            *evicted = c_int::from(gone);
        }
        Ok(())
    })
}

/// Compiles better code for the loops of a function that may be running, and offers it at their
/// heads; `offered`, which may be null, is given how many.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_osr_loops(
    dylib: *const uruk_dylib,
    name: *const c_char,
    offered: *mut usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        let count = dylib.osr_loops(name)?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(offered) = unsafe { offered.as_mut() } {
            *offered = count;
        }
        Ok(())
    })
}

/// Forbids that loops of a function are left for better code (1), or allows it again (0).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_forbid_osr(
    dylib: *const uruk_dylib,
    name: *const c_char,
    forbidden: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        Ok(dylib.forbid_osr(name, forbidden != 0)?)
    })
}

/// Says which functions will be called first, in this order; a session that speculates compiles
/// them ahead.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_compile_ahead(
    dylib: *const uruk_dylib,
    functions: *const *const c_char,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, names) = unsafe { (dylib_of(dylib)?, texts(functions, count, "functions")?) };
        dylib.compile_ahead(&names);
        Ok(())
    })
}

/// Runs the constructors of what was added to this dylib, and before that of what it links
/// against.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_initialize(dylib: *const uruk_dylib) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of the code.
        unsafe { dylib_of(dylib)?.initialize()? };
        Ok(())
    })
}

/// Runs what is to be run at the end of this dylib; it can be initialized again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_deinitialize(dylib: *const uruk_dylib) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of the code.
        unsafe { dylib_of(dylib)?.deinitialize() };
        Ok(())
    })
}

/// Removes all definitions of the dylib. Its data must not be used any more.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_clear(dylib: *const uruk_dylib) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of who uses what is in it.
        unsafe { dylib_of(dylib)?.clear()? };
        Ok(())
    })
}
