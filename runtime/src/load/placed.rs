//! An image between its placement and its bytes, and the data that it reports then.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_link::{Kind as LinkKind, LinkError, Linked, Placed, Placement};

use crate::code::holding::ImageThreadLocals;
use crate::code::names::{Definition, NewName};
use crate::error::Error;
use crate::host::listed::VariableRanges;
use crate::load::image::{BodyRanges, Image, YieldedVariables};
use crate::load::labels::{AssemblyModule, Labelled};
use crate::load::own::OwnDefinitions;
use crate::load::weak;
use crate::version::drafts::Drafts;

/// An image that was placed.
pub(crate) struct PlacedImage<'g> {
    pub(super) own: Option<OwnDefinitions>,
    pub(super) thread_locals: ImageThreadLocals,
    /// Bytes and alignment of thread-locals for which there is no fixed place.
    pub(super) unfixed: Option<(usize, usize)>,
    pub(super) drafts: Drafts,
    pub(crate) placed: Placed<'g>,
}

impl PlacedImage<'_> {
    /// The module word of its thread-locals.
    pub(crate) fn tls_module(&self) -> Option<u64> {
        self.thread_locals.place.map(|place| place.module)
    }
}

/// Whether the memory of an image stays as long as its tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    Always,
    /// Only if the program may hold an address in it that is not a function's.
    IfHeld,
}

impl Stay {
    /// Names of functions by address, for an image that may be freed.
    pub(super) fn functions(self, placed: &Placed<'_>) -> HashMap<u64, String> {
        match self {
            Stay::Always => HashMap::new(),
            Stay::IfHeld => names_by_address(placed),
        }
    }
}

/// Converts a link's error; it contains the needs of thread-locals if those fail.
pub(super) fn of_thread_locals(cause: LinkError, unfixed: Option<(usize, usize)>) -> Error {
    match unfixed.filter(|_| cause.wants_fixed_thread_locals()) {
        Some((size, align)) => Error::ThreadLocals {
            size,
            align,
            cause: Arc::new(cause),
        },
        None => cause.into(),
    }
}

/// The exports of an image.
#[derive(Default)]
pub(super) struct ImageExports {
    pub(super) names: Vec<NewName>,
    /// Starts and ends of sections.
    pub(super) bounds: Vec<NewName>,
    pub(super) labelled: Vec<Labelled>,
}

impl ImageExports {
    pub(super) fn of(
        image: &Image,
        placed: &PlacedImage<'_>,
        assembled: &[AssemblyModule],
    ) -> ImageExports {
        let tls_module = placed.tls_module();
        let placed = &placed.placed;
        let bounds = placed.bounds();
        let bounds: Vec<NewName> = bounds
            .map(|(name, address)| NewName::strong(name, Definition::Address(address)))
            .collect();
        let mut names = names_of(placed, tls_module, &image.hidden());
        let assembled = assembled.iter();
        let mut labelled: Vec<Labelled> = assembled
            .map(|one| Labelled::new(one, image.suffix(), placed, tls_module))
            .collect();
        names.extend(labelled.iter_mut().flat_map(Labelled::take_names));
        ImageExports {
            names,
            bounds,
            labelled,
        }
    }

    pub(super) fn any(&self) -> bool {
        !self.names.is_empty() || !self.bounds.is_empty()
    }
}

/// Definitions that other files reach by a stub or by another variable: name, kind, size, place.
pub(super) struct Preempted(Vec<(Box<str>, LinkKind, u64, u64)>);

impl Preempted {
    pub(super) fn of(placed: &Placed<'_>) -> Preempted {
        let preempted = placed.preempted().map(|(place, at)| {
            let definition = place.definition;
            let name = definition.name.into();
            (name, definition.kind, definition.size, at)
        });
        Preempted(preempted.collect())
    }

    /// The extents of functions, and the bytes of variables.
    pub(super) fn told(
        self,
        linked: &Linked,
        starts: &Placement,
    ) -> (BodyRanges, YieldedVariables) {
        let bytes = |at: u64, size: u64| -> Vec<u8> {
            let segments = [
                (starts.code, &linked.code),
                (starts.read_only, &linked.read_only),
                (starts.read_write, &linked.read_write),
            ];
            let inside = segments.iter().find_map(|(start, bytes)| {
                let from = usize::try_from(at.checked_sub(*start)?).ok()?;
                bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?)
            });
            inside.map(<[u8]>::to_vec).unwrap_or_default()
        };
        let mut bodies = HashMap::new();
        let mut yielded = Vec::new();
        for (name, kind, size, at) in self.0 {
            match kind {
                LinkKind::Function => {
                    bodies.insert(name, at..at + size.max(1));
                }
                LinkKind::Data => yielded.push((name, bytes(at, size))),
                _ => {}
            }
        }
        (bodies, yielded)
    }
}

/// The exports of an image, except those that yield.
pub(crate) fn names_of(
    placed: &Placed<'_>,
    tls_module: Option<u64>,
    hidden: &HashSet<Box<str>>,
) -> Vec<NewName> {
    let shared = placed.definitions().filter(|(d, _)| !weak::is_own(d));
    let names = shared.map(|(definition, address)| {
        let meaning = match (definition.kind, tls_module) {
            (LinkKind::Tls, Some(module)) => Definition::Tls {
                module,
                offset: address,
            },
            _ => Definition::Address(address),
        };
        NewName {
            name: definition.name.into(),
            definition: meaning,
            weak: definition.binding != uruk_link::Binding::Strong,
            hidden: definition.hidden || hidden.contains(definition.name),
        }
    });
    names.collect()
}

/// Names of functions by address.
fn names_by_address(placed: &Placed<'_>) -> HashMap<u64, String> {
    let named = placed.functions();
    named.map(|(at, name)| (at, name.to_owned())).collect()
}

/// Extents of exported variables; of a program only, as other images are not searched for them.
pub(super) fn extents_of(placed: &Placed<'_>, of_program: bool) -> VariableRanges {
    if !of_program {
        return VariableRanges::default();
    }
    let shared = placed
        .definitions()
        .filter(|(definition, _)| definition.kind == LinkKind::Data && !definition.hidden);
    VariableRanges(
        shared
            .map(|(definition, at)| at..at.saturating_add(definition.size))
            .collect(),
    )
}

/// Names and sizes of variables.
pub(super) fn variables_of(placed: &Placed<'_>) -> Vec<(String, u64)> {
    let definitions = placed.definitions().map(|(definition, _)| definition);
    definitions
        .filter(|definition| definition.kind == LinkKind::Data)
        .map(|definition| (definition.name.to_owned(), definition.size))
        .collect()
}
