//! The meaning of each name of a file of new code in the running program.
//!
//! | the file's | the program's | what new code uses |
//! |---|---|---|
//! | variable | the same, as large | the program's, with its contents; another initial value is noted |
//! | variable | the same, of another size or layout, or aligned to fewer bytes | refused |
//! | variable | the same, natively a constant as nothing wrote to it | refused if new code may write to it |
//! | constant | the same, of the same value | the program's: its address stays what it was |
//! | constant | the same, of another value | the file's, which is noted: pointers that are kept lead to the old one |
//! | table of virtual functions | the same, of another size | refused: objects keep their tables |
//! | string without a name | one of the same bytes, its own or of an earlier file | that one |
//! | the same | none | the file's, which stays |
//! | thread-local | the same, as large, at a known place | the program's |
//! | variable, constant | none | the file's, made once; other files find it by its name |
//! | thread-local | none | the file's: the session keeps each thread's own |
//! | constructor | none, or another one that makes a new variable | refused: it would not run |
//!
//! Names that only unchanged functions mention are not checked. Sizes and values are compared between
//! the two files: the optimizer may have changed a variable natively.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use uruk::live::rebound::{
    Choices, FunctionChoice, FunctionInfo, Keep, Shape, Survey, Uses, VariableChoice, VariableInfo,
};

use crate::choose::{ADDRESS, Fate, Known, stem};
use crate::function::Function;
use crate::known::{Module, TEXT_ALIGN};
use crate::misfits;
use crate::program::symbols::{Place, PlaceKind};
use crate::swap::SwapError;
use crate::variables::text;
use crate::versions::Versions;

/// Prefix of the names of strings.
const TEXT: &str = "uruk.text.";

/// The meaning of a file.
#[derive(Default)]
pub(crate) struct Meant {
    pub(crate) choices: Choices,
    /// Functions of the program that are exchanged.
    pub(crate) members: Vec<Arc<Function>>,
    /// Names to be resolved, with their addresses where those are known.
    pub(crate) wanted: Vec<(String, Option<u64>)>,
    pub(crate) addresses: Vec<(String, u64)>,
    pub(crate) refused: Option<SwapError>,
    pub(crate) notes: Vec<String>,
    /// Changed weak functions of which the program has another file's definition.
    pub(crate) overridden: Vec<String>,
    /// Variables that new bodies do not only read.
    pub(crate) written: HashSet<String>,
    /// A function that uses the current variable.
    user: String,
}

impl Meant {
    /// The session's names of functions whose bodies in the file are used.
    pub(crate) fn changed(&self) -> Vec<String> {
        let functions = self.choices.functions.iter();
        let used = functions.filter(|choice| choice.keep == Keep::Body);
        used.map(|choice| choice.name.clone()).collect()
    }

    fn refuse(&mut self, error: SwapError) {
        self.refused.get_or_insert(error);
    }

    fn refuse_variable(&mut self, info: &VariableInfo, why: impl Into<String>) -> VariableChoice {
        self.refuse(SwapError::Variable {
            user: self.user.clone(),
            name: stem(&info.name).to_owned(),
            why: why.into(),
        });
        VariableChoice::Own
    }
}

/// The modules of the program that define most of the file's functions, and of those the ones that
/// define the fewest others. Several modules remain if the file has only local functions that all of
/// them have.
pub(crate) fn homes<'n>(
    names: impl Iterator<Item = &'n String>,
    functions: &[Arc<Function>],
) -> Vec<usize> {
    let mut modules: HashMap<&str, HashSet<usize>> = HashMap::new();
    for function in functions {
        let name = stem(&function.chosen.name);
        modules.entry(name).or_default().insert(function.module);
    }
    let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
    for module in names.filter_map(|name| modules.get(stem(name))).flatten() {
        *votes.entry(*module).or_default() += 1;
    }
    let most = votes.values().max().copied();
    votes.retain(|_, votes| Some(*votes) == most);
    let size = |module: &usize| functions.iter().filter(|it| it.module == *module).count();
    let least = votes.keys().map(size).min();
    let homes = votes
        .into_keys()
        .filter(|module| Some(size(module)) == least);
    homes.collect()
}

/// The meaning of each name of the file. Functions that are not `changed` stay as they are.
pub(crate) fn mean(
    survey: &Survey,
    known: &Module,
    functions: &[Arc<Function>],
    versions: &Versions,
) -> Meant {
    let changed = &versions.changed;
    let mut meant = Meant::default();
    let mut used = Used::default();
    let owns = owns(survey, known, functions);
    let counting = counting(survey, &owns, changed, known);
    for (number, info) in survey.functions.iter().enumerate() {
        let own = owns[number];
        let new = || match info.local {
            true => info.name.clone(),
            false => known.name(&info.name, false),
        };
        let name = own.map_or_else(new, |own| own.chosen.name.clone());
        let adopted = own.is_some_and(|own| matches!(own.chosen.fate, Fate::Adopted { .. }));
        let counts = counting[number];
        if counts {
            for &variable in &info.variables {
                used.entry(variable).or_insert(&info.name);
            }
        }
        match (counts, own) {
            (true, Some(own)) => meant.members.push(Arc::clone(own)),
            (true, None) => {}
            (false, _) => {
                let at = known.address(&info.name).filter(|_| !info.local);
                meant.wanted.push((name.clone(), at));
            }
        }
        meant.choices.functions.push(FunctionChoice {
            address: adopted.then(|| format!("{ADDRESS}{name}")),
            keep: if counts { Keep::Body } else { Keep::Nothing },
            name,
        });
    }
    match misfits::weak(survey, changed, known) {
        Ok(overridden) => meant.overridden = overridden,
        Err(refused) => meant.refuse(refused),
    }
    let notes = meant.overridden.iter().map(|name| {
        format!("`{name}` is weak, and the program's is another file's: the new body is not used")
    });
    meant.notes.extend(notes);
    mention(survey, &mut used);
    variables(survey, &used, known, versions, &mut meant);
    if let Err(refused) = misfits::constructors(survey, versions) {
        meant.refuse(refused);
    }
    if let Err(refused) = misfits::entries(survey, versions) {
        meant.refuse(refused);
    }
    meant.notes.append(&mut misfits::layouts(versions));
    meant.notes.append(&mut misfits::constants(versions));
    meant.notes.append(&mut misfits::initializers(versions));
    let written = survey
        .variables
        .iter()
        .filter(|info| info.uses != Uses::Read);
    meant.written = written.map(|info| stem(&info.name).to_owned()).collect();
    meant
}

/// The program's functions with the names of the file's.
fn owns<'f>(
    survey: &Survey,
    known: &Module,
    functions: &'f [Arc<Function>],
) -> Vec<Option<&'f Arc<Function>>> {
    let global: HashMap<&str, &Arc<Function>> = functions
        .iter()
        .map(|function| (function.chosen.name.as_str(), function))
        .collect();
    let local: HashMap<&str, &Arc<Function>> = functions
        .iter()
        .filter(|function| function.module == known.number)
        .map(|function| (stem(&function.chosen.name), function))
        .collect();
    // A function may have been local before, or may be local now.
    let owns = survey.functions.iter().map(|info| {
        let of_module = || local.get(stem(&info.name)).copied();
        let of_program = || global.get(known.name(&info.name, false).as_str()).copied();
        match info.local {
            true => of_module(),
            false => of_program().or_else(|| of_module().filter(|_| info.defined)),
        }
    });
    owns.collect()
}

/// Variables by number, with a function that uses each.
type Used<'s> = BTreeMap<u32, &'s str>;

/// The meaning of each variable of the file. Variables that are not `used` by changed functions cause no
/// refusal.
fn variables(
    survey: &Survey,
    used: &Used<'_>,
    known: &Module,
    versions: &Versions,
    meant: &mut Meant,
) {
    for (number, info) in survey.variables.iter().enumerate() {
        let user = used.get(&(number as u32));
        let is_used = user.is_some();
        meant.user = user.map_or_else(String::new, |user| stem(user).to_owned());
        let is_bad = info.thread_local || known.program.is_missing(known.number, &info.name);
        let choice = match (is_used, is_bad) {
            (true, _) => match string(info, known, meant) {
                Some(choice) => choice,
                None => variable(info, known, versions, meant),
            },
            // Only unchanged functions use it.
            (false, true) => VariableChoice::Own,
            (false, false) => {
                let mut unused = Meant::default();
                let choice = variable(info, known, versions, &mut unused);
                meant.addresses.append(&mut unused.addresses);
                meant.wanted.append(&mut unused.wanted);
                choice
            }
        };
        meant.choices.variables.push(choice);
    }
}

/// Functions whose bodies in the file are used: new and changed ones, and those they call if their
/// native code may rely on its arguments, or if they are defined nowhere else.
fn counting(
    survey: &Survey,
    owns: &[Option<&Arc<Function>>],
    changed: &HashSet<String>,
    known: &Module,
) -> Vec<bool> {
    let functions = survey.functions.iter().zip(owns);
    let first = |(info, own): (&FunctionInfo, &Option<&Arc<Function>>)| {
        // The linker took another file's definition instead of a weak one.
        let is_taken = info.weak && !info.same && own.is_none_or(|own| own.module != known.number);
        let is_taken = is_taken && (own.is_some() || known.has_function(&info.name));
        info.defined && !is_taken && (own.is_none() || changed.contains(stem(info.source_name())))
    };
    let mut counting: Vec<bool> = functions.map(first).collect();
    let mut left: Vec<usize> = (0..counting.len()).filter(|&it| counting[it]).collect();
    while let Some(number) = left.pop() {
        for &callee in &survey.functions[number].functions {
            let callee = callee as usize;
            let narrow = owns[callee].is_some_and(|own| own.chosen.narrow);
            let info = &survey.functions[callee];
            // It is inlined at every call, so that no file may define it; unoptimized code calls it.
            let copied = info.copy && info.always_inlined && owns[callee].is_none();
            let copied = copied && !known.has_function(&info.name);
            if (copied || narrow && info.defined) && !counting[callee] {
                counting[callee] = true;
                left.push(callee);
            }
        }
    }
    counting
}

/// Adds variables that the initial values of used variables mention.
fn mention<'s>(survey: &'s Survey, used: &mut Used<'s>) {
    let mut rest: Vec<(u32, &str)> = used.iter().map(|(&number, user)| (number, *user)).collect();
    while let Some((number, user)) = rest.pop() {
        for &mentioned in &survey.variables[number as usize].variables {
            if let Entry::Vacant(first) = used.entry(mentioned) {
                first.insert(user);
                rest.push((mentioned, user));
            }
        }
    }
}

/// The program's size of a variable, if new code cannot use it with the file's size.
fn misfit(info: &VariableInfo, before: Option<&Shape>, place: Option<Place>) -> Option<u64> {
    // Natively the optimizer may have made a local one smaller.
    let native = || place.filter(|place| !info.local && place.size != 0);
    let size = before.map(|shape| shape.size);
    let size = size.or_else(|| native().map(|place| place.size))?;
    let fits = match info.defined {
        true => size == info.size,
        // A declaration may leave out the size.
        false => size >= info.size,
    };
    (!fits).then_some(size)
}

/// Meaning of a string without a name of its own, if the variable is one. The program has one of the
/// same bytes: else each exchange would leave another one behind.
fn string(info: &VariableInfo, known: &Module, meant: &mut Meant) -> Option<VariableChoice> {
    let bytes = text(info).filter(|bytes| !bytes.is_empty() && info.align <= TEXT_ALIGN)?;
    let address = known.program.text(bytes, info.align);
    let name = format!("{TEXT}{address:x}");
    meant.addresses.push((name.clone(), address));
    Some(VariableChoice::Named(name))
}

fn variable(
    info: &VariableInfo,
    known: &Module,
    versions: &Versions,
    meant: &mut Meant,
) -> VariableChoice {
    if info.of_compiler || info.labels || info.private {
        return VariableChoice::Own;
    }
    // A variable that is local now may have been found by other files before.
    let was_global = info.local && versions.is_global_natively(info);
    let place = known.place(&info.name, info.local && !was_global);
    let before = versions.before(info, place.is_some());
    if let Some(why) = before.and_then(|before| misfits::kind(info, before, versions)) {
        return meant.refuse_variable(info, why);
    }
    if let Some(size) = misfit(info, before, place) {
        if let Some(class) = info.name.strip_prefix("_ZTV") {
            let class = format!("_Z{class}");
            meant.refuse(SwapError::Virtual { class });
            return VariableChoice::Own;
        }
        if !(info.constant && info.defined) {
            let now = info.size;
            let why = format!("which has {now} bytes here and {size} in the program");
            return meant.refuse_variable(info, why);
        }
    }
    let now = versions.new.variables.get(stem(&info.name));
    let difference = before.zip(now).and_then(|(old, new)| old.difference(new));
    if let Some(why) = difference.filter(|_| info.defined && !info.constant) {
        return meant.refuse_variable(info, why);
    }
    if info.thread_local {
        return thread_local(info, place, known, versions, meant);
    }
    let place = place.filter(|place| place.kind == PlaceKind::Data);
    if let Some(at) = place
        && !at.address.is_multiple_of(info.align.max(1).into())
        && !(info.constant && info.defined)
    {
        let why = format!("which is aligned to {} bytes here", info.align);
        return meant.refuse_variable(info, why + ", and to fewer in the program");
    }
    let is_shared = !info.local && !versions.is_native(info);
    match place.filter(|place| !info.local || place.size == info.size) {
        Some(place) => existing(info, place, known, versions, meant),
        None if !info.defined => {
            let name = known.name(&info.name, info.local);
            let at = known.address(&info.name).filter(|_| !info.local);
            meant.wanted.push((name.clone(), at));
            VariableChoice::Named(name)
        }
        None if is_constant_for_good(info, versions) => VariableChoice::Constant,
        None if known.program.is_missing(known.number, &info.name) => {
            meant.refuse_variable(info, "which the optimizer removed or renamed natively")
        }
        None => {
            meant.notes.extend(misfits::kept(info, before, versions));
            match is_shared {
                true => VariableChoice::Shared(known.name(&info.name, false)),
                false => VariableChoice::Own,
            }
        }
    }
}

/// A thread-local whose shape fits.
fn thread_local(
    info: &VariableInfo,
    place: Option<Place>,
    known: &Module,
    versions: &Versions,
    meant: &mut Meant,
) -> VariableChoice {
    // The session keeps each thread's copy of a thread-local that files of new code brought.
    let is_new = !versions.is_native(info);
    if info.defined && place.is_none() && is_new {
        return VariableChoice::Own;
    }
    let place = place.filter(|place| place.size == info.size || !info.defined);
    let distance = place.and_then(|place| known.distance(place));
    match distance {
        Some(distance) if !info.odd_thread_local => VariableChoice::ThreadLocal(distance),
        _ => meant.refuse_variable(info, "a thread-local whose place is not known"),
    }
}

/// Whether neither version of a variable is written to, and both have the same initial value, which then
/// never changes.
fn is_constant_for_good(info: &VariableInfo, versions: &Versions) -> bool {
    let stem = stem(&info.name);
    let (old, new) = (&versions.old.variables, &versions.new.variables);
    let both = old.get(stem).zip(new.get(stem));
    let same = both.is_some_and(|(before, now)| before.only_read && before.is_same(now));
    // Unchanged bodies of the new version were not read: `only_read` covers them.
    info.local && info.defined && same && info.uses == Uses::Read
}

/// A variable or constant that the program has at a place.
fn existing(
    info: &VariableInfo,
    place: Place,
    known: &Module,
    versions: &Versions,
    meant: &mut Meant,
) -> VariableChoice {
    let stem = stem(&info.name);
    let before = versions.old.variables.get(stem);
    let now = versions.new.variables.get(stem);
    let is_same = before
        .zip(now)
        .is_some_and(|(before, now)| before.is_same(now));
    let is_aligned = place.address.is_multiple_of(info.align.max(1).into());
    if info.defined && info.constant && !(is_same && is_aligned) {
        let others = match info.local {
            true => "",
            false => ", and other files read that one",
        };
        meant.notes.push(format!(
            "the constant `{stem}` has another value, at another address: pointers that are kept lead to the old one{others}"
        ));
        return VariableChoice::Own;
    }
    if info.defined && !info.constant && before.is_some_and(|it| it.constant) {
        return meant.refuse_variable(info, "which was a constant");
    }
    // Nothing wrote to it natively, so the compiler made it a constant.
    let is_fixed = known.program.image.is_only_read(place.address);
    if is_fixed && !info.constant && (info.uses != Uses::Read || !info.local) {
        let why = "which natively nothing writes to: it lies in memory that is only read";
        return meant.refuse_variable(info, why);
    }
    if info.defined && before.is_some() && !is_same {
        meant.notes.push(misfits::other_value(stem));
    }
    let name = known.name(&info.name, info.local);
    meant.addresses.push((name.clone(), place.address));
    VariableChoice::Named(name)
}
