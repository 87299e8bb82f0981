//! Binds the symbols of all files of an image, once, before anything is compiled.
//!
//! Pure: the input is summaries, the output one [`ModulePlan`] per module and the list of
//! definitions. The rules are a static linker's: one strong definition; a strong one beats weak and
//! common ones; of equals the first file's wins ([`choose`]); a COMDAT group is kept or dropped as
//! a whole by its key. Weak definitions yield to those of the surroundings
//! ([`weak`](crate::load::weak)), unless the image has a strong one. Local symbols get a suffix
//! that makes their link names unique in the image, except those assembly may name.

use std::collections::HashMap;

use uruk_codegen::{Access, Import, Linkage, ModulePlan, ModuleSummary, SymbolId};

use crate::code::names::Definition;
use crate::code::static_names::LOCAL_MARKER;
use crate::error::Error;
use crate::load::apart::{self, ZeroVariable};
use crate::load::choose::{Rank, Winner, choose, is_data};
use crate::load::input::Input;
use crate::load::weak::Surroundings;

/// The outcome of binding.
#[derive(Debug)]
pub(crate) struct Binding {
    /// By input; empty plans for objects.
    pub(crate) plans: Vec<ModulePlan>,
    /// By input and symbol: constructors and destructors whose group or variable lost.
    pub(super) dropped_keys: Vec<Vec<bool>>,
    /// Names that the surroundings define in place of the image's weak definitions.
    pub(crate) yielded: Vec<(Box<str>, Definition)>,
    /// Variables with memory of their own.
    pub(crate) apart: Vec<ZeroVariable>,
}

/// Binds `inputs` in file order. `provided` tells whether the surroundings define a name of which
/// only copies for the optimizer exist; `surroundings` find the definitions to which weak ones
/// yield. `image` is the image's number in its session.
///
/// # Errors
/// [`Error::DuplicateSymbol`] with both files.
pub(crate) fn bind(
    image: u64,
    inputs: &[Input<'_>],
    provided: &dyn Fn(&str) -> bool,
    surroundings: &Surroundings,
) -> Result<Binding, Error> {
    let lost = losing_groups(inputs);
    let mut winners = choose(inputs, &lost, provided, surroundings)?;
    let yielded = winners.extract_if(|_, winner| winner.yields_to.is_some());
    let mut yielded: Vec<(Box<str>, Definition)> = yielded
        .filter_map(|(name, winner)| Some((name.into(), winner.yields_to?)))
        .collect();
    yielded.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let kept_names = local_names_kept(inputs, &winners);
    let mut plans = Vec::new();
    let mut dropped_keys = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let Input::Module { summary, .. } = input else {
            plans.push(ModulePlan::default());
            dropped_keys.push(Vec::new());
            continue;
        };
        let imports: Vec<Import> = (0..summary.symbols.len())
            .map(|i| {
                import(
                    (image, index),
                    SymbolId(i as u32),
                    summary,
                    &winners,
                    &kept_names,
                )
            })
            .collect();
        let dropped = summary.symbols.iter().zip(&imports).map(|(info, import)| {
            let lost = info.comdat.is_some_and(|g| lost[index][g as usize]);
            lost || (info.linkage.is_definition() && !import.defined)
        });
        dropped_keys.push(dropped.collect());
        plans.push(ModulePlan::new(imports));
    }
    let apart = apart::choose(inputs, &mut plans);
    Ok(Binding {
        plans,
        dropped_keys,
        yielded,
        apart,
    })
}

/// For every module and group: true if an earlier file has the same group.
fn losing_groups(inputs: &[Input<'_>]) -> Vec<Vec<bool>> {
    let mut owner: HashMap<&str, usize> = HashMap::new();
    let mut lost = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let Input::Module { summary, .. } = input else {
            lost.push(Vec::new());
            continue;
        };
        lost.push(
            summary
                .comdats
                .iter()
                .map(|key| !key.is_empty() && *owner.entry(key).or_insert(index) != index)
                .collect(),
        );
    }
    lost
}

/// Local names that assembly may use, if they are unambiguous in the image.
fn local_names_kept<'a>(
    inputs: &'a [Input<'a>],
    winners: &HashMap<&str, Winner>,
) -> HashMap<&'a str, u32> {
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for input in inputs {
        let Input::Module { summary, .. } = input else {
            continue;
        };
        for info in &summary.symbols {
            if info.linkage == Linkage::Local && info.used && !winners.contains_key(&*info.name) {
                *uses.entry(&info.name).or_default() += 1;
            }
        }
    }
    uses
}

fn import(
    (image, input): (u64, usize),
    id: SymbolId,
    summary: &ModuleSummary,
    winners: &HashMap<&str, Winner>,
    kept: &HashMap<&str, u32>,
) -> Import {
    let info = &summary.symbols[id.index()];
    if info.linkage == Linkage::Local {
        let keep = info.used && kept.get(&*info.name) == Some(&1) && !info.name.is_empty();
        let name = if keep {
            info.name.clone()
        } else {
            local_link_name(&info.name, image, input, id)
        };
        let near = is_data(summary, id, 0);
        let access = if near { Access::Near } else { Access::Indirect };
        return Import {
            name: name.into(),
            access,
            defined: true,
            bound: true,
            replaced: false,
        };
    }
    let winner = winners.get(&*info.name);
    let defined = info.linkage.is_definition()
        && winner.is_some_and(|w| {
            (w.input == input && w.symbol == Some(id))
                // All tentative definitions are passed to the linker, which merges sizes.
                || (info.linkage == Linkage::Common && w.rank == Rank::Common)
        });
    let access = match winner {
        Some(winner) if winner.data => Access::Near,
        _ => Access::Indirect,
    };
    Import {
        name: info.name.clone().into(),
        access,
        defined,
        bound: winner.is_some(),
        replaced: false,
    }
}

pub(crate) fn local_link_name(name: &str, image: u64, input: usize, id: SymbolId) -> String {
    format!("{name}{LOCAL_MARKER}{image}.{input}.{}", id.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::static_names::display_name;
    use uruk_codegen::{Kind, Placement, SymbolInfo};

    fn symbol(name: &str, kind: Kind, linkage: Linkage) -> SymbolInfo {
        SymbolInfo {
            name: name.to_owned(),
            kind,
            linkage,
            placement: if linkage.is_definition() {
                Placement::Own
            } else {
                Placement::None
            },
            hidden: linkage == Linkage::Local,
            odr: false,
            comdat: None,
            used: false,
            constant: false,
            always_inline: false,
            zeros: 0,
        }
    }

    fn module(symbols: Vec<SymbolInfo>) -> ModuleSummary {
        ModuleSummary {
            symbols,
            ..ModuleSummary::default()
        }
    }

    /// One line per import: name, access, defined.
    fn check(modules: &[ModuleSummary]) -> Result<String, Error> {
        let inputs: Vec<_> = modules
            .iter()
            .map(|summary| Input::Module { file: "m", summary })
            .collect();
        let surroundings = Surroundings::with(&["there"]);
        let binding = bind(7, &inputs, &|name| name == "provided", &surroundings)?;
        let lines = binding.plans.iter().flat_map(|p| &p.imports).map(|i| {
            format!(
                "{} {:?} {}",
                i.name,
                i.access,
                if i.defined { "defined" } else { "import" }
            )
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn strong_beats_an_earlier_weak_definition() {
        let weak = module(vec![symbol("f", Kind::Function, Linkage::Weak)]);
        let strong = module(vec![symbol("f", Kind::Function, Linkage::Strong)]);
        assert_eq!(
            check(&[weak, strong.clone()]).unwrap(),
            "f Indirect import\nf Indirect defined"
        );
    }

    #[test]
    fn the_first_weak_definition_wins() {
        let weak = module(vec![symbol("f", Kind::Function, Linkage::Weak)]);
        let out = check(&[weak.clone(), weak]).unwrap();
        assert_eq!(out, "f Indirect defined\nf Indirect import");
    }

    #[test]
    fn a_copy_for_the_optimizer_counts_only_where_nothing_else_is() {
        let copies = || {
            module(vec![
                symbol("f", Kind::Function, Linkage::Available),
                symbol("provided", Kind::Function, Linkage::Available),
            ])
        };
        let out = check(&[copies()]).unwrap();
        assert_eq!(out, "f Indirect defined\nprovided Indirect import");
        let weak = module(vec![symbol("f", Kind::Function, Linkage::Weak)]);
        let out = check(&[copies(), weak]).unwrap();
        assert_eq!(
            out,
            "f Indirect import\nprovided Indirect import\nf Indirect defined"
        );
    }

    #[test]
    fn two_strong_definitions_are_an_error() {
        let strong = module(vec![symbol("f", Kind::Function, Linkage::Strong)]);
        let error = check(&[strong.clone(), strong]).unwrap_err();
        assert!(matches!(error, Error::DuplicateSymbol { .. }), "{error}");
    }

    #[test]
    fn equal_local_names_stay_apart_and_keep_their_display_name() {
        let local = module(vec![symbol("s", Kind::Data, Linkage::Local)]);
        let out = check(&[local.clone(), local]).unwrap();
        assert_eq!(out, "s.uruk.7.0.0 Near defined\ns.uruk.7.1.0 Near defined");
        assert_eq!(display_name("uruk.body.s.uruk.7.1.0"), "s");
    }

    #[test]
    fn data_of_another_file_is_near_and_data_of_nobody_is_not() {
        let user = module(vec![
            symbol("d", Kind::Data, Linkage::Declared),
            symbol("stdout", Kind::Data, Linkage::Declared),
        ]);
        let owner = module(vec![symbol("d", Kind::Data, Linkage::Strong)]);
        let out = check(&[user, owner]).unwrap();
        assert_eq!(out, "d Near import\nstdout Indirect import\nd Near defined");
    }

    #[test]
    fn a_group_is_dropped_as_a_whole() {
        let grouped = |strong| {
            let mut a = symbol("a", Kind::Function, Linkage::Weak);
            a.comdat = Some(0);
            let mut b = symbol("b", Kind::Data, strong);
            b.comdat = Some(0);
            let mut m = module(vec![a, b]);
            m.comdats.push(String::from("a"));
            m
        };
        let out = check(&[grouped(Linkage::Weak), grouped(Linkage::Strong)]).unwrap();
        assert_eq!(
            out,
            "a Indirect defined\nb Near defined\na Indirect import\nb Near import"
        );
    }

    #[test]
    fn tentative_definitions_all_reach_the_linker_unless_a_real_one_exists() {
        let common = module(vec![symbol("c", Kind::Data, Linkage::Common)]);
        let real = module(vec![symbol("c", Kind::Data, Linkage::Strong)]);
        let both = check(&[common.clone(), common.clone()]).unwrap();
        assert_eq!(both, "c Near defined\nc Near defined");
        assert_eq!(
            check(&[common, real]).unwrap(),
            "c Near import\nc Near defined"
        );
    }

    #[test]
    fn what_is_weak_yields_to_the_surroundings_unless_something_strong_counts() {
        let weak = module(vec![symbol("there", Kind::Data, Linkage::Weak)]);
        let mut strong = module(vec![symbol("there", Kind::Data, Linkage::Strong)]);
        assert_eq!(
            check(&[weak.clone(), weak.clone()]).unwrap(),
            "there Indirect import\nthere Indirect import"
        );
        assert_eq!(
            check(&[weak, strong.clone()]).unwrap(),
            "there Near import\nthere Near defined"
        );
        strong.symbols[0].comdat = Some(0);
        strong.comdats.push(String::from("there"));
        assert_eq!(check(&[strong]).unwrap(), "there Indirect import");
    }

    #[test]
    fn a_constructor_goes_with_the_variable_that_yielded() {
        let both = ["there", "here"].map(|name| symbol(name, Kind::Data, Linkage::Weak));
        let summary = module(both.to_vec());
        let inputs = [Input::Module {
            file: "m",
            summary: &summary,
        }];
        let binding = bind(7, &inputs, &|_| false, &Surroundings::with(&["there"])).unwrap();
        assert_eq!(binding.dropped_keys, [[true, false]]);
    }
}
