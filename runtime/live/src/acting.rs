//! Functions whose native code shows that a call of them has an effect.
//!
//! The optimizer removes a call, or makes one call of two, if the callee has no effect, or affects only
//! memory that is never read. An effect that is left in a function's native code was there when its
//! callers were compiled:
//!
//! - a call through a pointer: nothing is known of what it reaches;
//! - a write to a variable by its own address;
//! - a call of another function of the same file that has one.
//!
//! A function whose source declares that it has no effect is excluded.
//!
//! Code is disassembled from an entry to the end that the symbol table gives; compilers put no data in
//! between.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};

use crate::choose::{Fate, Known, OF, stem};
use crate::function::Function;
use crate::known::Module;
use crate::program::symbols::{Place, PlaceKind};

/// Facts found in native code of a module.
pub(crate) struct Acting<'l> {
    module: &'l Module,
    /// By entry.
    places: HashMap<u64, Place>,
    /// By name, without the suffix that makes it unique.
    entries: HashMap<&'l str, u64>,
    found: HashMap<u64, Found>,
}

/// The effects of a function.
#[derive(Default)]
struct Found {
    acts: bool,
    calls: Vec<u64>,
}

impl<'l> Acting<'l> {
    /// Effects of the functions of a module, without those that the source declares `pure`.
    pub(crate) fn new(
        module: &'l Module,
        functions: impl Iterator<Item = &'l Arc<Function>>,
        pure: &HashSet<String>,
    ) -> Acting<'l> {
        let (mut places, mut entries) = (HashMap::new(), HashMap::new());
        for function in functions {
            let name = stem(&function.chosen.name);
            if pure.contains(name) {
                continue;
            }
            if let Some(place) = place(function, module) {
                places.insert(place.address, place);
                entries.insert(name, place.address);
            }
        }
        Acting {
            module,
            places,
            entries,
            found: HashMap::new(),
        }
    }

    /// Whether all of these functions act.
    pub(crate) fn all(&mut self, names: &HashSet<String>) -> bool {
        names.iter().all(|name| {
            let entry = self.entries.get(name.as_str()).copied();
            entry.is_some_and(|entry| self.acts(entry))
        })
    }

    fn acts(&mut self, entry: u64) -> bool {
        let mut seen = HashSet::from([entry]);
        let mut left = vec![entry];
        while let Some(entry) = left.pop() {
            let Some(&place) = self.places.get(&entry) else {
                continue;
            };
            let module = self.module;
            let found = self.found.entry(entry);
            let found = found.or_insert_with(|| look(module, place));
            if found.acts {
                return true;
            }
            left.extend(found.calls.iter().copied().filter(|&it| seen.insert(it)));
        }
        false
    }
}

/// Where a function's native code is.
fn place(function: &Function, module: &Module) -> Option<Place> {
    let name = &function.chosen.name;
    let place = match (&function.chosen.fate, name.rfind(OF)) {
        (Fate::Adopted { entry, code, .. }, _) => Place {
            address: *entry,
            size: code.end - entry,
            kind: PlaceKind::Function,
            weak: false,
            exported: false,
        },
        // Names of libraries have the mark, local or not.
        (_, Some(at)) if module.program.image.executable => module.place(&name[..at], true)?,
        (_, None) => module.place(name, false)?,
        _ => return None,
    };
    (place.kind == PlaceKind::Function).then_some(place)
}

fn look(module: &Module, place: Place) -> Found {
    let code = module.code(place, u64::MAX);
    let tables = &module.program.image.tables;
    let is_of_linker = |address: u64| tables.iter().any(|it| it.contains(&address));
    look_at(code, place.address, is_of_linker)
}

/// The effects of code at address `at`. Calls through memory for which `is_of_linker` is true are not
/// counted.
fn look_at(code: &[u8], at: u64, is_of_linker: impl Fn(u64) -> bool) -> Found {
    let own = at..at + code.len() as u64;
    let mut found = Found::default();
    let mut factory = InstructionInfoFactory::new();
    for it in &mut Decoder::with_ip(64, code, at, DecoderOptions::NONE) {
        if it.is_invalid() {
            break;
        }
        match it.flow_control() {
            FlowControl::IndirectCall => found.acts |= is_through_pointer(&it, &is_of_linker),
            FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch => {
                let target = it.near_branch_target();
                if !own.contains(&target) {
                    found.calls.push(target);
                }
            }
            FlowControl::IndirectBranch => found.acts |= is_call_at_end(&it, &is_of_linker),
            _ => found.acts |= writes_variable(&it, &mut factory),
        }
        if found.acts {
            break;
        }
    }
    found
}

fn is_through_pointer(call: &Instruction, is_of_linker: impl Fn(u64) -> bool) -> bool {
    match call.op0_kind() {
        OpKind::Register => true,
        OpKind::Memory if call.is_ip_rel_memory_operand() => {
            !is_of_linker(call.ip_rel_memory_address())
        }
        OpKind::Memory => call.memory_base() != Register::None,
        _ => false,
    }
}

/// Whether a jump's target comes from a variable. Jumps through tables of `switch` have an index, or
/// load the target before.
fn is_call_at_end(jump: &Instruction, is_of_linker: impl Fn(u64) -> bool) -> bool {
    jump.op0_kind() == OpKind::Memory
        && jump.memory_index() == Register::None
        && is_through_pointer(jump, is_of_linker)
}

fn writes_variable(it: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    if it.op_count() == 0 || it.op0_kind() != OpKind::Memory || !it.is_ip_rel_memory_operand() {
        return false;
    }
    matches!(
        factory.info(it).op0_access(),
        OpAccess::Write | OpAccess::ReadWrite
    )
}

#[cfg(test)]
mod tests {
    use super::look_at;

    /// Whether code at 0x1000 acts, and what it calls; the linker's table is at 0x2000.
    fn look(code: &[u8]) -> (bool, Vec<u64>) {
        let found = look_at(code, 0x1000, |at| (0x2000..0x2100).contains(&at));
        (found.acts, found.calls)
    }

    #[test]
    fn effects_are_seen_that_callers_cannot_have_missed() {
        // call rax; call [rdi + 8]; call [rip + 0x3000]; inc dword [rip + 0x3000]
        assert!(look(&[0xff, 0xd0]).0);
        assert!(look(&[0xff, 0x57, 0x08]).0);
        assert!(look(&[0xff, 0x15, 0, 0x30, 0, 0]).0);
        assert!(look(&[0xff, 0x05, 0, 0x30, 0, 0]).0);
        // jmp [rip + 0x3000]; jmp [rdi + 8]
        assert!(look(&[0xff, 0x25, 0, 0x30, 0, 0]).0);
        assert!(look(&[0xff, 0x67, 0x08]).0);
        // lock xadd [rip + 0x3000], eax
        assert!(look(&[0xf0, 0x0f, 0xc1, 0x05, 0, 0x30, 0, 0]).0);
    }

    #[test]
    fn what_may_have_been_seen_through_is_no_effect() {
        // A call through the linker's table: the compiler may have known that the callee has no effect.
        assert!(!look(&[0xff, 0x15, 0x10, 0x10, 0, 0]).0);
        // jmp [rip + 0x1010]; jmp [rdi * 8 + 0x3000]
        assert!(!look(&[0xff, 0x25, 0x0a, 0x10, 0, 0]).0);
        assert!(!look(&[0xff, 0x24, 0xfd, 0, 0x30, 0, 0]).0);
        // mov eax, [rip + 0x3000]; mov [rdi], eax; mov [rsp - 8], rax; jmp rax; cmp [rip + 1], 1
        assert!(!look(&[0x8b, 0x05, 0, 0x30, 0, 0, 0x89, 0x07]).0);
        assert!(!look(&[0x48, 0x89, 0x44, 0x24, 0xf8, 0xff, 0xe0]).0);
        assert!(!look(&[0x83, 0x3d, 1, 0, 0, 0, 1]).0);
    }

    #[test]
    fn calls_and_jumps_out_of_the_code_are_followed() {
        // je +0; call 0x2105; jmp 0x110a
        let code = [0x74, 0, 0xe8, 0xfe, 0x10, 0, 0, 0xe9, 0xfe, 0, 0, 0];
        assert_eq!(look(&code), (false, vec![0x2105, 0x110a]));
    }
}
