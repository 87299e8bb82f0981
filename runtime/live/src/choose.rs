//! What each name of a module means in the program: which bodies may be compiled again, and what
//! they refer to.
//!
//! Pure: a survey of a module and the program's symbols in, choices and a table of functions out.
//!
//! # Rules
//! A *variable* is the program's if a symbol says where it is, and else what its uses tell, or
//! refused: the module `variables` has the rules.
//!
//! A *function* has a native version if a symbol says where it is, the linker left room in front
//! of it, and callers keep to its type: a local function whose address nobody takes *natively* may have
//! lost arguments, or its result. One whose code takes all arguments, all of them numbers, has lost none,
//! and only callers that know of a lost result reach its native code ([`Chosen::narrow`]); that is looked at
//! where a local function stays one, as its address is taken or it is never inlined. Of a weak one that may differ from others nobody knows whose it is. Such a one is compiled again with its callers only, which
//! call the new body; samples in it are theirs.
//!
//! | a function | is | reason |
//! |---|---|---|
//! | that uses a refused variable, or one whose value leads to it | refused | [`Reason::Variable`] |
//! | that can be suspended, or uses a thread-local whose place is not known | refused | [`Reason::Coroutine`], [`Reason::ThreadLocal`] |
//! | with assembly that may name symbols, or that asks the dynamic loader | refused | [`Reason::Assembly`], [`Reason::Asks`] |
//! | that calls what is nowhere | refused | [`Reason::Missing`] |
//! | whose address hooks are told | refused | [`Reason::Instrumented`] |
//! | whose labels are data, and that has no native version | refused | [`Reason::Labels`] |
//! | that keeps the address of a string which is there twice | refused | [`Reason::Text`] |
//! | of a library, that another file has in its place, or that calls such a one | refused | [`Reason::Interposed`] |
//! | that may call many that have no native code | compiled if it is exchanged only | [`Reason::Needs`] |
//! | that calls a refused one which cannot be called natively | refused | [`Reason::Calls`] |
//! | whose symbol counts elsewhere | a copy for optimizers | |
//! | without a symbol, or a local one | compiled, never adopted | |

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use uruk::InlinedCopy;
use uruk::live::rebound::{Choices, FunctionChoice, FunctionInfo, Keep, Plain, Survey};

use crate::merged::merged;
use crate::program::symbols::{Place, PlaceKind};
use crate::reach::{is_apart, reach};
pub use crate::reason::Reason;
use crate::variables::{self, Refused};

/// Bytes in front of an entry that are used: an indirect jump, and the address it goes to.
pub const ROOM: u64 = 14;

/// Bytes in front of an entry that programs are built with: as few as are used, so many that
/// entries are aligned, and so many that code lies where it would without, by cache lines.
pub const ROOMS: [u64; 3] = [ROOM, 16, 62];

/// Bytes at an entry that are a jump into the room while it is redirected.
pub const HOP: u64 = 2;

/// Functions without native code that a version may need compiled before it. SQLite's
/// `sqlite3VdbeExec` needs 660: 1.3 s, those that are not known to be hot at tier 1. The loop then
/// is as fast as natively, but 28 ms an iteration were taken for 18.8 at first and 22 after 25 s, by the
/// many small functions that natively are parts of their callers.
const MOST_NEEDED: usize = 128;

/// Functions of the dynamic loader that look at who calls them.
const ASKING: [&str; 5] = ["dlsym", "dlvsym", "dlopen", "dlmopen", "dl_iterate_phdr"];

/// Begins the name by which a function's native address goes.
pub const ADDRESS: &str = "uruk.at.";

/// What becomes of a function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its native code is a version, and its entry can be redirected.
    Adopted {
        /// Its first instruction.
        entry: u64,
        /// All of its code.
        code: Range<u64>,
        /// Native code of functions that only it, and others like it, can have redirected.
        beside: Vec<InlinedCopy>,
    },
    /// It is compiled with those that call it.
    WithCallers,
    /// It stays as it is.
    Refused(Reason),
}

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name in the session.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// Why it stays native unless an exchange has to do with it.
    pub rests: Option<Reason>,
    /// Natively the compiler saw all its calls, and may have used what their arguments are: only code
    /// that passes the same may call its native code.
    pub narrow: bool,
    /// Functions whose bodies may be in its native code.
    pub holds: Vec<String>,
    /// Others of which facts may be in its native code, as the optimizer saw their bodies.
    pub relies: Vec<String>,
    /// Another function that has the same native code.
    pub merged: Option<String>,
}

/// The choices for a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the module.
    pub choices: Choices,
    /// Its functions that have a body.
    pub functions: Vec<Chosen>,
    /// Names that have to be addresses: their native places, where those are known.
    pub addresses: Vec<(String, u64)>,
    /// Names that somebody has to define, with what they are natively where the name itself does
    /// not tell that.
    pub wanted: Vec<(String, Option<u64>)>,
    /// Variables that have no address, and that somebody may write to.
    pub missing: Vec<String>,
}

/// Where a string is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Natively nobody has its address.
    Nowhere,
    /// Here.
    At(u64),
    /// At one of several places.
    Several,
}

/// Knowledge of the program.
pub trait Known {
    /// The name that a name of the module has in the session.
    fn name(&self, name: &str, local: bool) -> String;
    /// What a name that other modules see is natively, where its name in the session does not tell
    /// that.
    fn address(&self, name: &str) -> Option<u64>;
    /// Whether another file of the process has what a name that other modules see means natively.
    fn is_elsewhere(&self, name: &str) -> bool;
    /// The place of a name: of the module's object file first, if it is `local`.
    fn place(&self, name: &str, local: bool) -> Option<Place>;
    /// How far from the thread pointer a thread-local of the program is.
    fn distance(&self, place: Place) -> Option<i64>;
    /// Where the bytes of a string are among what is only read and has no name.
    fn string(&self, bytes: &[u8]) -> Text;
    /// Those of the places of a string that native code of a function mentions.
    fn mentioned(&self, place: Place, bytes: &[u8]) -> Vec<u64>;
    /// Whether the program's code or data mention an address.
    fn mentions(&self, address: u64) -> bool;
    /// Whether native code takes all of these arguments.
    fn takes(&self, place: Place, plain: Plain) -> bool;
    /// Whether the module's object file, and so its local names, are known.
    fn has_object(&self) -> bool;
    /// Whether native code may have a copy of a function of the module besides its own code and where it
    /// is inlined.
    fn may_be_copied(&self, name: &str) -> bool;
    /// The target of the jump that native code of a function consists of, if it is one.
    fn jump(&self, place: Place) -> Option<u64>;
    /// Native code of a function that the compiler put elsewhere, as it is hardly ever run.
    fn parts(&self, name: &str) -> Vec<Range<u64>>;
    /// Whether there is room in front of an entry.
    fn has_room(&self, entry: u64) -> bool;
    /// Whether somebody has code of that name: the program, its libraries, or an earlier module.
    fn is_there(&self, name: &str) -> bool;
    /// Whether an earlier module has the body that counts.
    fn is_taken(&self, name: &str) -> bool;
}

/// Stands between a local name and the number of its module. Not what the session itself puts behind
/// local names, which it leaves out where it tells of a function: it would tell of another one.
pub(crate) const OF: &str = ".of.";

/// A name without what was added to make it unique.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.split(".__uniq.").next().unwrap_or(name);
    name.rfind(OF).map_or(name, |at| &name[..at])
}

/// The name that a module's function or variable has in the session: the same, but that local
/// names are made unique.
pub fn session_name(name: &str, local: bool, module: usize) -> String {
    match local && !name.contains(".__uniq.") {
        true => format!("{name}{OF}{module}"),
        false => name.to_owned(),
    }
}

/// Chooses for a module.
pub fn choose(survey: &Survey, known: &dyn Known) -> Outcome {
    let mut outcome = Outcome::default();
    let refused_variables = variables::choose(survey, known, &mut outcome);
    let survey = &Survey {
        functions: variables::users(survey, &outcome.choices.variables),
        ..Survey::default()
    };
    let natives: Vec<Option<Place>> = survey
        .functions
        .iter()
        .map(|info| native(info, known))
        .collect();
    let refused = refuse(survey, known, &natives, &refused_variables);
    let merged = merged(survey, known);
    for (number, info) in survey.functions.iter().enumerate() {
        let name = known.name(&info.name, info.local);
        let place = natives[number];
        let at = match info.local {
            true => None,
            false => known.address(&info.name),
        };
        if let Some(place) = place {
            let address = format!("{ADDRESS}{name}");
            outcome
                .addresses
                .push((address, at.unwrap_or(place.address)));
        }
        let keep = keep(info, &name, known, refused[number].is_some());
        if keep != Keep::Body {
            outcome.wanted.push((name.clone(), at));
        }
        // Callers reach its native code; no other file knows a local name.
        if let (Some(_), Some(place), true) = (&refused[number], place, info.local) {
            outcome.addresses.push((name.clone(), place.address));
        }
        outcome.choices.functions.push(FunctionChoice {
            address: place.map(|_| format!("{ADDRESS}{name}")),
            keep,
            name: name.clone(),
        });
        let counts = keep == Keep::Body || refused[number].is_some();
        if !(info.defined && counts) {
            continue;
        }
        let fate = match (&refused[number], place) {
            (Some(reason), _) => Fate::Refused(reason.clone()),
            (None, Some(place)) => Fate::Adopted {
                entry: place.address,
                code: place.address..place.address + place.size.max(1),
                beside: parts(known, &name, &info.name),
            },
            (None, None) => Fate::WithCallers,
        };
        let reach = reach(survey, number, |callee| {
            is_apart(survey, &natives, known, callee)
        });
        let named = |numbers: Vec<usize>| {
            let infos = numbers.into_iter().map(|it| &survey.functions[it]);
            infos.map(|it| known.name(&it.name, it.local)).collect()
        };
        let rests = match fate {
            Fate::Adopted { .. } => Some(needed(survey, &natives, &refused, number))
                .filter(|count| *count > MOST_NEEDED)
                .map(Reason::Needs),
            _ => None,
        };
        outcome.functions.push(Chosen {
            name,
            fate,
            rests,
            narrow: place.is_some_and(|place| info.local && !known.mentions(place.address)),
            holds: named(reach.holds),
            relies: named(reach.relies),
            merged: merged[number].clone(),
        });
    }
    give_samples(survey, known, &mut outcome);
    outcome
}

/// The treatment of a function's body, of that name in the session.
fn keep(info: &FunctionInfo, name: &str, known: &dyn Known, is_refused: bool) -> Keep {
    match is_refused {
        true if info.copy => Keep::Nothing,
        false if info.copy => Keep::Copy,
        _ if !info.defined => Keep::Nothing,
        true => Keep::Nothing,
        false if known.is_taken(name) || is_elsewhere(info, known) => match info.same {
            true => Keep::Copy,
            false => Keep::Nothing,
        },
        false => Keep::Body,
    }
}

/// Where native code of a function is that calls by its type reach, and that can be redirected.
fn native(info: &FunctionInfo, known: &dyn Known) -> Option<Place> {
    let place = known.place(&info.name, info.local)?;
    // The bitcode may do with its address what natively was seen through and is gone.
    let takes_all = || info.plain.is_some_and(|plain| known.takes(place, plain));
    let keeps_type = !info.local
        || (info.address_taken && (known.mentions(place.address) || takes_all()))
        || (info.never_inlined && takes_all());
    let fits = place.kind == PlaceKind::Function && keeps_type && known.has_room(place.address);
    fits.then_some(place)
}

/// Whether a weak definition lost against one that other files see and that is not weak, or any
/// against that of another file of the process.
fn is_elsewhere(info: &FunctionInfo, known: &dyn Known) -> bool {
    if !info.local && known.is_elsewhere(&info.name) {
        return true;
    }
    // Which of several different bodies the linker took is not told.
    if info.weak && !info.same && !info.local {
        return true;
    }
    let place = known.place(&info.name, info.local);
    info.weak && place.is_some_and(|place| !place.weak)
}

/// Why each function is refused, if it is.
fn refuse(
    survey: &Survey,
    known: &dyn Known,
    natives: &[Option<Place>],
    variables: &Refused,
) -> Vec<Option<Reason>> {
    let asks = |info: &FunctionInfo| {
        let callees = info.functions.iter();
        let mut names = callees.map(|&callee| &survey.functions[callee as usize].name);
        names.find(|name| ASKING.contains(&name.as_str())).cloned()
    };
    let is_missing = |info: &&FunctionInfo| {
        let found = info.defined || info.optional || (info.copy && info.always_inlined);
        !(found || known.is_there(&info.name))
    };
    let missing = |info: &FunctionInfo| {
        let callees = info.functions.iter();
        let mut callees = callees.map(|&callee| &survey.functions[callee as usize]);
        callees.find(is_missing).map(|info| info.name.clone())
    };
    let is_interposed = |info: &FunctionInfo| {
        let plain = info.defined && !info.local && !info.weak && !info.copy;
        plain && known.is_elsewhere(&info.name)
    };
    let interposed = |info: &FunctionInfo| {
        let callees = info.functions.iter();
        let callees = callees.map(|&callee| &survey.functions[callee as usize]);
        let mut all = std::iter::once(info).chain(callees);
        all.find(|info| is_interposed(info))
            .map(|info| info.name.clone())
    };
    let text = |info: &FunctionInfo| {
        let mut kept = info.kept.iter();
        kept.find_map(|number| variables.texts.get(number)).cloned()
    };
    // Nobody knows which address of it is known natively.
    let unknown = |info: &FunctionInfo| {
        let callees = info.functions.iter();
        let mut callees = callees.map(|&callee| &survey.functions[callee as usize]);
        let found = callees.find(|it| it.local && it.address_taken && it.defined);
        found
            .filter(|_| !known.has_object())
            .map(|it| it.name.clone())
    };
    let mut refused: Vec<Option<Reason>> = survey
        .functions
        .iter()
        .enumerate()
        .map(|(at, info)| match info.defined {
            true if info.coroutine => Some(Reason::Coroutine),
            true if info.instrumented => Some(Reason::Instrumented),
            true if info.assembly => Some(Reason::Assembly),
            true if info.labels && natives[at].is_none() => Some(Reason::Labels),
            true if text(info).is_some() => text(info).map(Reason::Text),
            true if unknown(info).is_some() => unknown(info).map(Reason::Variable),
            true if missing(info).is_some() => missing(info).map(Reason::Missing),
            true if asks(info).is_some() => asks(info).map(Reason::Asks),
            true if interposed(info).is_some() => interposed(info).map(Reason::Interposed),
            true => info
                .variables
                .iter()
                .find_map(|number| variables.reasons.get(number))
                .cloned(),
            // What it looks at is not what native code has.
            false if info.copy => info
                .variables
                .iter()
                .find_map(|number| variables.reasons.get(number))
                .cloned()
                .or_else(|| text(info).map(Reason::Text)),
            false => None,
        })
        .collect();
    spread(survey, natives, &mut refused);
    refused
}

/// Functions without native code that a version needs compiled before it, as it may call them.
fn needed(
    survey: &Survey,
    natives: &[Option<Place>],
    refused: &[Option<Reason>],
    number: usize,
) -> usize {
    let mut seen = HashSet::from([number]);
    let mut left = vec![number];
    while let Some(function) = left.pop() {
        for &callee in &survey.functions[function].functions {
            let callee = callee as usize;
            let counts = survey.functions[callee].defined && natives[callee].is_none();
            if counts && refused[callee].is_none() && seen.insert(callee) {
                left.push(callee);
            }
        }
    }
    seen.len() - 1
}

/// Refuses callers of what can be called in no way, until there are no more.
fn spread(survey: &Survey, natives: &[Option<Place>], refused: &mut [Option<Reason>]) {
    let mut again = true;
    while again {
        again = false;
        for (number, info) in survey.functions.iter().enumerate() {
            if refused[number].is_some() || !info.defined {
                continue;
            }
            let lost = info.functions.iter().find(|&&callee| {
                refused[callee as usize].is_some() && natives[callee as usize].is_none()
            });
            if let Some(&callee) = lost {
                let name = survey.functions[callee as usize].name.clone();
                refused[number] = Some(Reason::Calls(name));
                again = true;
            }
        }
    }
}

/// Parts of a function, of that `name` in the session, that lie elsewhere.
fn parts(known: &dyn Known, name: &str, own_name: &str) -> Vec<InlinedCopy> {
    let parts = known.parts(own_name).into_iter();
    let named = |code| InlinedCopy {
        name: name.to_owned(),
        code,
    };
    parts.map(named).collect()
}

/// Gives samples in functions that are compiled with their callers only to the nearest of those.
fn give_samples(survey: &Survey, known: &dyn Known, outcome: &mut Outcome) {
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); survey.functions.len()];
    for (number, info) in survey.functions.iter().enumerate() {
        for &callee in &info.functions {
            callers[callee as usize].push(number);
        }
    }
    let chosen: HashMap<String, usize> = outcome
        .functions
        .iter()
        .enumerate()
        .map(|(at, chosen)| (chosen.name.clone(), at))
        .collect();
    for (number, info) in survey.functions.iter().enumerate() {
        let name = known.name(&info.name, info.local);
        let inner = chosen
            .get(&name)
            .is_some_and(|&at| outcome.functions[at].fate == Fate::WithCallers);
        let Some(place) = known.place(&info.name, info.local).filter(|_| inner) else {
            continue;
        };
        let mut seen = HashSet::from([number]);
        let mut queue = VecDeque::from([(number, 0)]);
        let mut nearest = usize::MAX;
        while let Some((function, distance)) = queue.pop_front() {
            if distance > nearest {
                break;
            }
            let info = &survey.functions[function];
            let at = chosen.get(&known.name(&info.name, info.local));
            if let Some(Fate::Adopted { beside, .. }) =
                at.map(|&at| &mut outcome.functions[at].fate)
            {
                beside.push(InlinedCopy {
                    name: name.clone(),
                    code: place.address..place.address + place.size.max(1),
                });
                beside.extend(parts(known, &name, &info.name));
                nearest = distance;
                continue;
            }
            queue.extend(
                callers[function]
                    .iter()
                    .filter(|&&caller| seen.insert(caller))
                    .map(|&caller| (caller, distance + 1)),
            );
        }
    }
}
