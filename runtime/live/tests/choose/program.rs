//! A program of which only names are known.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use uruk::live::rebound::{FunctionInfo, PlainResult, PlainType, Survey, VariableInfo};
use uruk_live::choose::{Known, Outcome, Text, choose, session_name};
use uruk_live::program::symbols::{Place, PlaceKind};

/// The module's number.
const MODULE: usize = 3;

/// A program that has what it is told.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) places: HashMap<&'static str, Place>,
    pub(crate) without_room: HashSet<u64>,
    pub(crate) taken: HashSet<&'static str>,
    pub(crate) unmentioned: HashSet<u64>,
    pub(crate) taking: HashSet<u64>,
    /// Functions whose result, in `rax`, native code uses.
    pub(crate) giving: HashSet<u64>,
    /// Local functions that the compiler recorded.
    pub(crate) recorded: HashSet<&'static str>,
    pub(crate) without_object: bool,
    pub(crate) copied: HashSet<&'static str>,
    pub(crate) elsewhere: HashMap<&'static str, u64>,
    /// Places of the string that is there twice, by the functions that mention them.
    pub(crate) mentioning: HashMap<u64, Vec<u64>>,
    /// Targets of functions whose code is one jump, by their addresses.
    pub(crate) jumps: HashMap<u64, u64>,
}

impl Program {
    pub(crate) fn with(self, name: &'static str, kind: PlaceKind, address: u64) -> Program {
        self.with_size(name, kind, address, 4)
    }

    pub(crate) fn with_size(
        mut self,
        name: &'static str,
        kind: PlaceKind,
        address: u64,
        size: u64,
    ) -> Program {
        let place = Place {
            address,
            size,
            kind,
            weak: false,
            exported: true,
        };
        self.places.insert(name, place);
        self
    }
}

impl Known for Program {
    fn name(&self, name: &str, local: bool) -> String {
        session_name(name, local, MODULE)
    }

    fn address(&self, name: &str) -> Option<u64> {
        self.elsewhere.get(name).copied()
    }

    fn is_elsewhere(&self, name: &str) -> bool {
        self.elsewhere.contains_key(name)
    }

    fn place(&self, name: &str, _local: bool) -> Option<Place> {
        self.places.get(name).copied()
    }

    fn distance(&self, place: Place) -> Option<i64> {
        Some(place.address as i64 - 100)
    }

    fn mentioned(&self, place: Place, _bytes: &[u8]) -> Vec<u64> {
        let found = self.mentioning.get(&place.address);
        found.cloned().unwrap_or_default()
    }

    fn string(&self, bytes: &[u8]) -> Text {
        match bytes {
            b"known\0" => Text::At(7),
            b"twice\0" => Text::Several,
            _ => Text::Nowhere,
        }
    }

    fn mentions(&self, address: u64) -> bool {
        !self.unmentioned.contains(&address)
    }

    fn keeps_type(&self, name: &str) -> bool {
        self.recorded.contains(name)
    }

    fn takes(&self, place: Place, _plain: PlainType) -> bool {
        self.taking.contains(&place.address)
    }

    fn uses_results(&self, _place: Place) -> Vec<(u64, PlainResult)> {
        let giving = self.giving.iter();
        giving
            .map(|&address| (address, PlainResult::Word))
            .collect()
    }

    fn has_object(&self) -> bool {
        !self.without_object
    }

    fn may_be_copied(&self, name: &str) -> bool {
        self.without_object || self.copied.contains(name)
    }

    fn jump(&self, place: Place) -> Option<u64> {
        self.jumps.get(&place.address).copied()
    }

    fn parts(&self, _name: &str) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn has_room(&self, entry: u64) -> bool {
        !self.without_room.contains(&entry)
    }

    fn is_there(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn is_taken(&self, name: &str) -> bool {
        self.taken.contains(name)
    }
}

/// A function, and a local one that only it calls.
pub(crate) fn caller_and_inner() -> [FunctionInfo; 2] {
    let caller = FunctionInfo {
        functions: vec![1],
        ..function("caller")
    };
    let inner = FunctionInfo {
        local: true,
        ..function("inner")
    };
    [caller, inner]
}

pub(crate) fn function(name: &str) -> FunctionInfo {
    FunctionInfo {
        name: name.to_owned(),
        defined: true,
        ..FunctionInfo::default()
    }
}

pub(crate) fn variable(name: &str) -> VariableInfo {
    VariableInfo {
        name: name.to_owned(),
        defined: true,
        local: true,
        size: 4,
        ..VariableInfo::default()
    }
}

pub(crate) fn chosen(
    functions: Vec<FunctionInfo>,
    variables: Vec<VariableInfo>,
    program: &Program,
) -> Outcome {
    let survey = Survey {
        functions,
        variables,
        ..Survey::default()
    };
    choose(&survey, program)
}
