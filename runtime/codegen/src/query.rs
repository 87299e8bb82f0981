//! Queries on a module that need types or bodies: the types of all symbols, and the users of a
//! symbol (only to explain an error).

use std::sync::Arc;

use inkwell::llvm_sys::target::LLVMGetModuleDataLayout;
use rustc_hash::FxHashMap;

use crate::error::CodegenError;
use crate::handles::{TypeRef, ValueRef};
use crate::interface::printed_type;
use crate::reader::{Reader, read_all};
use crate::signature::Passing;
use crate::summary::SymbolId;

/// Users named per symbol; the rest would not make the message clearer.
const USERS_SHOWN: usize = 3;

/// The types of all symbols, by number, as LLVM writes them: `i32 (ptr, double)`. Each type is
/// written once, unless arguments or results are marked with how they are passed: `i16 zeroext
/// (ptr byval(24), i8 signext)`. The reader must [name structs as their files
/// do](crate::ReaderPool::faithful).
pub(crate) fn types(reader: &Reader) -> Vec<Arc<str>> {
    debug_assert!(reader.names_as_in_file());
    let mut written: FxHashMap<TypeRef<'_>, Arc<str>> = FxHashMap::default();
    let mut types = Vec::new();
    // A global has a type.
    // SAFETY: a live module, whose layout lives as it does.
    let passing = Passing::new(unsafe { LLVMGetModuleDataLayout(reader.module().raw()) });
    for value in reader.table().values() {
        let Some(ty) = ValueRef::content_type(value) else {
            continue;
        };
        let text = written.entry(ty).or_insert_with(|| printed_type(ty).into());
        let function = value.as_function();
        let marked = function.and_then(|function| passing.marked(function, text));
        types.push(marked.map_or_else(|| Arc::clone(text), Arc::from));
    }
    types
}

/// For each of `symbols`, names of functions and variables that mention it;
/// empty for one that nothing mentions. Reads every body.
pub(crate) fn users(
    reader: &Reader,
    symbols: &[SymbolId],
) -> Result<Vec<Vec<String>>, CodegenError> {
    read_all(reader)?;
    Ok(symbols
        .iter()
        .map(|symbol| {
            let mut users = Vec::new();
            collect(reader.table().value(*symbol), &mut users, 0);
            users
        })
        .collect())
}

fn collect(value: ValueRef<'_>, users: &mut Vec<String>, depth: u32) {
    // Constants nest a few levels deep at most.
    if depth > 16 {
        return;
    }
    for user in value.users() {
        if users.len() >= USERS_SHOWN {
            return;
        }
        let name = match user.as_instruction() {
            Some(instruction) => instruction.function().map_or(String::new(), |it| it.name()),
            None if user.is_global() => user.name(),
            None => {
                collect(user, users, depth + 1);
                String::new()
            }
        };
        if !name.is_empty() && !users.contains(&name) {
            users.push(name);
        }
    }
}
