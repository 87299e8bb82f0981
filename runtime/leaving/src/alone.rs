//! Finds crossing `noalias` pointers for which the continuation can promise the same.
//!
//! The source promises `noalias` for a parameter (C's `restrict`, references of Rust); an `alloca`
//! of variable length has it by itself. In the continuation the pointer is one parameter among
//! others. Loops that were vectorized unconditionally would then check for overlaps, or stay
//! scalar. The promise also holds there if no other crossing value and no memory can hold a derived
//! pointer:
//!
//! ```text
//! alone(p) = what is made of p is an address of loads and stores, in the block it is made in
//!            and p is a parameter with the promise, or an alloca of variable length
//!         or v holds it: an alloca that never leaves, with one store of such a parameter, in the
//!            entry, where nothing else uses the parameter; and each load of v is as p above
//! ```
//!
//! All accesses to the object while the continuation runs are then through its parameter: the frame
//! below waits for it.

use crate::anatomy::{Anatomy, Code, Facts};
use crate::frame::{Kind, Variable};
use crate::rooms::Uses;

/// Whether a variable of a body holds a pointer without aliases.
pub fn is_alone(anatomy: &Anatomy, variable: &Variable) -> bool {
    let value = variable.value;
    match (variable.kind, anatomy.maker(value)) {
        (Kind::Value, None) => is_promised(anatomy, value) && stays(anatomy, value, true),
        (Kind::Value, Some(made)) => {
            let it = anatomy.at(made);
            it.code == Code::Alloca && !it.facts.has(Facts::COUNTED) && stays(anatomy, value, true)
        }
        (Kind::Scalar, Some(_)) => holds(anatomy, value),
        _ => false,
    }
}

/// Whether a value is a `noalias` parameter.
fn is_promised(anatomy: &Anatomy, value: u32) -> bool {
    let parameter = anatomy.parameters.get(value as usize);
    parameter.is_some_and(|it| it.promised)
}

/// Whether `room`, whose address never escapes, holds a `noalias` parameter from the entry on, and
/// pointers loaded from it do not escape.
fn holds(anatomy: &Anatomy, room: u32) -> bool {
    let mut stored = None;
    for &user in anatomy.users_of(room) {
        let it = anatomy.at(user);
        match it.code {
            Code::Store if stored.is_none() => stored = Some(user),
            Code::Load if stays(anatomy, anatomy.value(user), false) => {}
            _ if it.meaning.is_marker() => {}
            _ => return false,
        }
    }
    let Some(store) = stored else { return false };
    let is_only_use = |value: u32| anatomy.users_of(value).len() == 1;
    let value = anatomy.first_of(store);
    anatomy.block_of(store) == 0
        && value.is_some_and(|it| is_promised(anatomy, it) && is_only_use(it))
}

/// Whether every pointer derived from `pointer` is used only as an address, and in the block of its
/// definition; a `fixed` one may itself be used in any block.
fn stays(anatomy: &Anatomy, pointer: u32, fixed: bool) -> bool {
    let mut uses = Uses::default();
    let mut work = vec![(pointer, fixed)];
    while let Some((pointer, fixed)) = work.pop() {
        let block = anatomy.maker(pointer).map(|it| anatomy.block_of(it));
        for &user in anatomy.users_of(pointer) {
            if !fixed && block != Some(anatomy.block_of(user)) {
                return false;
            }
            if uses.note(anatomy, pointer, user).is_some() {
                work.push((anatomy.value(user), false));
            }
            if uses.captured {
                return false;
            }
        }
    }
    true
}
