//! Makes a [`ModuleSummary`] from a module's bytes, equal for each symbol to the one that `scan`
//! makes of LLVM's reading.
//!
//! Unsound modules are left to LLVM, which reports the error. The checks cover the sources of a
//! summary and of the data unit: names, linkage and its requirements, groups, targets of aliases
//! and resolvers, and the tables `llvm.*`. LLVM's verifier knows more (attributes, metadata, types
//! of intrinsics). Its errors appear when LLVM first reads the module, in the operation that needs
//! it.
//!
//! # Why
//! LLVM takes 22 ms for the symbol tables of Lua, and has to be loaded for any.

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_bitcode::Source;
use uruk_bitcode::ir::{
    Attribute, Attributes, ComdatKind, Constant, Details, Global, GlobalKind, Linkage as IrLinkage,
    Module, Type, ValueId, Visibility,
};

use super::constants::{ConstantOrGlobal, Constants};
use crate::origin;
use crate::summary::{
    Kind, LARGE, Linkage, ModuleSummary, PAGE, Placement, SAFE_STACK, Structor, SymbolId,
    SymbolInfo, versions,
};

/// The release whose bitcode LLVM reads without changes.
pub(super) const RELEASE: u32 = 22;

/// LLVM's number of `alwaysinline` in bitcode.
const ALWAYS_INLINE: u32 = 2;

/// LLVM's number of `safestack` in bitcode.
const HAS_SAFE_STACK: u32 = 44;

/// Longest chain of aliases; cycles end there.
const DEPTH: u32 = 64;

/// The summary of a module, and the symbol of each global; `None` if LLVM has to read it.
pub(super) fn summarize(source: &Source) -> Option<(ModuleSummary, Box<[SymbolId]>)> {
    let module = &*source.module;
    if module.release != RELEASE
        || !origin::is_ours(&module.triple)
        || origin::strange_part(&module.layout).is_some()
        || !module.attributes.iter().all(features_are_sound)
    {
        return None;
    }
    let symbols = super::order(module);
    let reading = Reading {
        module,
        constants: Constants { module },
        symbols: &symbols,
        sizes: may_be_large(&module.types).then(|| uruk_lower::Sizes::of(&module.types)),
    };
    let mut summary = ModuleSummary {
        symbols: vec![NOTHING; symbols.len()],
        has_inline_asm: !module.assembly.is_empty(),
        versions: versions(&module.assembly),
        ..ModuleSummary::default()
    };
    for (number, &id) in symbols.iter().enumerate() {
        summary.symbols[id.index()] = reading.describe(number as u32)?;
    }
    let mut names = FxHashSet::default();
    let mut named = summary.symbols.iter().filter(|info| !info.name.is_empty());
    if !named.all(|info| names.insert(&*info.name)) {
        return None;
    }
    let safe_stack = (module.globals.iter())
        .any(|global| global.kind == GlobalKind::Function && reading.has(global, HAS_SAFE_STACK));
    summary.implied.extend(safe_stack.then_some(SAFE_STACK));
    reading.group(&mut summary);
    reading.read_llvm_tables(&mut summary)?;
    Some((summary, symbols))
}

const NOTHING: SymbolInfo = SymbolInfo {
    name: String::new(),
    kind: Kind::Function,
    linkage: Linkage::Declared,
    placement: Placement::None,
    hidden: false,
    odr: false,
    comdat: None,
    used: false,
    constant: false,
    always_inline: false,
    zeros: 0,
};

/// Whether some array type could make a large variable.
fn may_be_large(types: &[Type]) -> bool {
    let is_long = |ty: &Type| matches!(ty, Type::Array(count, _) if *count >= 1 << 8);
    types.iter().any(is_long)
}

/// Checks that features of the processor are written with a sign.
fn features_are_sound(attributes: &Attributes) -> bool {
    attributes.function.iter().all(|attribute| match attribute {
        Attribute::Text(name, features) if &**name == "target-features" => {
            let mut features = features.split(',').filter(|_| !features.is_empty());
            features.all(|feature| feature.starts_with(['+', '-']))
        }
        _ => true,
    })
}

struct Reading<'m> {
    module: &'m Module,
    constants: Constants<'m>,
    symbols: &'m [SymbolId],
    /// Only for a module with possibly large variables.
    sizes: Option<uruk_lower::Sizes>,
}

impl<'m> Reading<'m> {
    fn get(&self, number: u32) -> Option<(&'m Global, &'m Details)> {
        let module = self.module;
        let at = number as usize;
        Some((module.globals.get(at)?, module.details.get(at)?))
    }

    /// The properties of one symbol that need no other symbols, without its group.
    fn describe(&self, number: u32) -> Option<SymbolInfo> {
        let (global, details) = self.get(number)?;
        let name = super::plain_name(self.module, global)?;
        self.check(global, details)?;
        let (kind, placement) = self.kind_and_place(number)?;
        let mut linkage = linkage_of(details.linkage);
        if !global.is_definition && linkage.is_definition() {
            linkage = Linkage::Declared;
        }
        if name.starts_with("llvm.") {
            // Intrinsics whose names contain those of structs are renamed if the structs are.
            if name.contains(".s_") || name.contains("sl_s") {
                return None;
            }
            if !matches!(linkage, Linkage::Local | Linkage::Appending) {
                linkage = Linkage::Declared;
            }
        }
        linkage = linkage.of_one_named(name);
        Some(SymbolInfo {
            name: name.to_owned(),
            kind,
            linkage,
            placement: match linkage.is_definition() {
                true => placement,
                false => Placement::None,
            },
            hidden: linkage == Linkage::Local || details.visibility == Visibility::Hidden,
            odr: matches!(details.linkage, IrLinkage::LinkOnceOdr | IrLinkage::WeakOdr),
            comdat: None,
            used: false,
            constant: details.is_constant,
            always_inline: global.kind == GlobalKind::Function && self.has(global, ALWAYS_INLINE),
            zeros: self.zeros(global, details).unwrap_or_default(),
        })
    }

    /// See [`SymbolInfo::zeros`].
    fn zeros(&self, global: &Global, details: &Details) -> Option<u64> {
        let value = details.initializer?;
        let is_plain = global.kind == GlobalKind::Variable
            && !global.is_thread_local
            && details.section.is_none()
            && !matches!(details.linkage, IrLinkage::Common | IrLinkage::Appending);
        if !is_plain || !self.constants.is_zero(value) {
            return None;
        }
        let (size, align) = self.sizes.as_ref()?.of_type(global.ty)?;
        let align = details.align.max(align.into());
        (size >= LARGE && align <= PAGE).then_some(size)
    }

    /// Whether a function has an enum attribute.
    fn has(&self, global: &Global, attribute: u32) -> bool {
        let attributes = self.module.attributes(global.attributes);
        attributes.function.contains(&Attribute::Flag(attribute))
    }

    /// Whether LLVM's verifier would accept a global by itself.
    fn check(&self, global: &Global, details: &Details) -> Option<()> {
        use IrLinkage as L;
        let module = self.module;
        let is_local = matches!(details.linkage, L::Internal | L::Private);
        let fits = match (global.kind, global.is_definition) {
            (GlobalKind::Variable | GlobalKind::Function, false) => {
                matches!(details.linkage, L::External | L::ExternalWeak) && details.comdat.is_none()
            }
            (GlobalKind::Function, true) => {
                !matches!(details.linkage, L::ExternalWeak | L::Common | L::Appending)
            }
            (GlobalKind::Variable, true) => details.linkage != L::ExternalWeak,
            (GlobalKind::Alias | GlobalKind::Ifunc, _) => !matches!(
                details.linkage,
                L::ExternalWeak | L::Common | L::Appending | L::AvailableExternally
            ),
        };
        let exists =
            |index: Option<u32>, count: usize| index.is_none_or(|at| (at as usize) < count);
        let is_ascii = |index: Option<u32>, list: &[Box<str>]| {
            index.is_none_or(|at| list.get(at as usize).is_some_and(|it| it.is_ascii()))
        };
        let sound = fits
            && exists(details.comdat, module.comdats.len())
            && is_ascii(details.section, &module.sections)
            && is_ascii(details.collector, &module.collectors)
            && !(is_local && details.visibility != Visibility::Default)
            && !details.is_unusual
            && (global.attributes.0 as usize) < module.attributes.len();
        let is_function = matches!(module.ty(global.ty), Type::Function(..));
        let typed = match global.kind {
            GlobalKind::Function => is_function,
            GlobalKind::Variable => !is_function && self.check_value(global, details),
            GlobalKind::Alias => true,
            GlobalKind::Ifunc => is_function,
        };
        (sound && typed).then_some(())
    }

    /// Whether a variable's initializer is allowed.
    fn check_value(&self, global: &Global, details: &Details) -> bool {
        let Some(value) = details.initializer else {
            return true;
        };
        let of_type = self.constants.type_of(value) == Some(global.ty);
        match details.linkage {
            IrLinkage::Common => {
                let null = matches!(
                    self.constants.find(value),
                    Some(ConstantOrGlobal::Constant(Constant::Null))
                ) || self.constants.is_zero(value);
                of_type && null && !details.is_constant && details.comdat.is_none()
            }
            IrLinkage::Appending => of_type && matches!(self.module.ty(global.ty), Type::Array(..)),
            _ => of_type,
        }
    }

    /// The kind of a global, and where it is compiled if it is defined.
    fn kind_and_place(&self, number: u32) -> Option<(Kind, Placement)> {
        let (global, details) = self.get(number)?;
        Some(match global.kind {
            GlobalKind::Function => {
                let collector = details
                    .collector
                    .map(|at| &self.module.collectors[at as usize]);
                let is_in_tables = collector
                    .is_some_and(|it| ["erlang", "ocaml", "shadow-stack"].contains(&&**it));
                match details.has_prefix || is_in_tables {
                    true => (Kind::Function, Placement::DataUnit),
                    false => (Kind::Function, Placement::Own),
                }
            }
            GlobalKind::Variable if global.is_thread_local => {
                (Kind::ThreadLocal, Placement::DataUnit)
            }
            GlobalKind::Variable => (Kind::Data, Placement::DataUnit),
            GlobalKind::Alias => {
                let (base, exact) = self.aliased(number)?;
                let base = Some(base);
                (Kind::Alias { base, exact }, Placement::DataUnit)
            }
            GlobalKind::Ifunc => {
                let resolver = self.base(global.aliasee?)?;
                self.check_resolver(resolver)?;
                let resolver = Some(self.symbols[resolver as usize]);
                (Kind::Ifunc { resolver }, Placement::None)
            }
        })
    }

    /// The defined symbol that an alias is of; true if it is exactly that symbol, not a place in it.
    fn aliased(&self, number: u32) -> Option<(SymbolId, bool)> {
        let aliasee = self.get(number)?.0.aliasee?;
        let base = self.base(aliasee)?;
        let mut end = base;
        for _ in 0..DEPTH {
            let (global, details) = self.get(end)?;
            match global.kind {
                GlobalKind::Alias => end = self.base(global.aliasee?)?,
                _ if !global.is_definition || details.linkage == IrLinkage::AvailableExternally => {
                    return None;
                }
                _ => return Some((self.symbols[base as usize], aliasee.0 == base)),
            }
        }
        None
    }

    /// Checks that a resolver is a defined function, possibly through an alias.
    fn check_resolver(&self, mut number: u32) -> Option<()> {
        for _ in 0..DEPTH {
            let (global, _) = self.get(number)?;
            match global.kind {
                GlobalKind::Alias => number = self.base(global.aliasee?)?,
                GlobalKind::Function if global.is_definition => return Some(()),
                _ => return None,
            }
        }
        None
    }

    /// The global an address constant is based on, through casts and offsets.
    fn base(&self, value: ValueId) -> Option<u32> {
        self.constants.base(value)
    }

    /// Groups: the least name of a member is a group's key; see `scan`.
    fn group(&self, summary: &mut ModuleSummary) {
        let mut groups = FxHashMap::default();
        let mut numbers = vec![0; self.symbols.len()];
        for (number, id) in self.symbols.iter().enumerate() {
            numbers[id.index()] = number;
        }
        let ModuleSummary {
            symbols, comdats, ..
        } = summary;
        for (info, &number) in symbols.iter_mut().zip(&numbers) {
            let group = self.module.details[number].comdat;
            let Some(group) = group.filter(|_| info.linkage.is_definition()) else {
                continue;
            };
            if self.module.comdats[group as usize] == ComdatKind::NoDuplicates {
                continue;
            }
            let index = *groups.entry(group).or_insert_with(|| {
                comdats.push(String::new());
                (comdats.len() - 1) as u32
            });
            let key = &mut comdats[index as usize];
            if info.linkage != Linkage::Local && (key.is_empty() || info.name < *key) {
                key.clone_from(&info.name);
            }
            info.comdat = Some(index);
        }
    }

    fn globals(&self) -> impl Iterator<Item = (usize, (&'m Global, &'m Details))> {
        let module = self.module;
        module.globals.iter().zip(&module.details).enumerate()
    }

    fn read_llvm_tables(&self, summary: &mut ModuleSummary) -> Option<()> {
        for (number, (global, details)) in self.globals() {
            let index = self.symbols[number].index();
            if summary.symbols[index].linkage != Linkage::Appending {
                continue;
            }
            let name = summary.symbols[index].name.clone();
            let used = matches!(&*name, "llvm.used" | "llvm.compiler.used");
            let elements = match details.initializer.and_then(|it| self.constants.find(it)) {
                Some(ConstantOrGlobal::Constant(Constant::Aggregate(elements))) => &elements[..],
                Some(ConstantOrGlobal::Constant(Constant::Null)) if !used => &[],
                None => &[],
                _ => return None,
            };
            match name.as_str() {
                _ if used => {
                    for &element in elements {
                        // An element must be a symbol, not a place in one.
                        let &base = self.symbols.get(element.index())?;
                        let info = &mut summary.symbols[base.index()];
                        if info.name.is_empty() {
                            return None;
                        }
                        info.used = true;
                    }
                }
                "llvm.global_ctors" | "llvm.global_dtors" => {
                    self.check_structors(global)?;
                    for &element in elements {
                        let structor = self.structor(element)?;
                        match name.as_str() {
                            "llvm.global_ctors" => summary.constructors.extend(structor),
                            _ => summary.destructors.extend(structor),
                        }
                    }
                }
                // Unknown arrays are only an error once they are emitted.
                _ => {}
            }
        }
        Some(())
    }

    /// Whether a table of constructors has the required type.
    fn check_structors(&self, global: &Global) -> Option<()> {
        let Type::Array(_, element) = *self.module.ty(global.ty) else {
            return None;
        };
        let Type::Struct(fields, false) = self.module.ty(element) else {
            return None;
        };
        let fields: Vec<_> = fields.iter().map(|&ty| self.module.ty(ty)).collect();
        let wanted = [&Type::Integer(32), &Type::Pointer(0), &Type::Pointer(0)];
        (fields == wanted).then_some(())
    }

    /// Elements of the tables are `{ i32, ptr, ptr }` structs; one without a function is skipped.
    fn structor(&self, element: ValueId) -> Option<Option<Structor>> {
        let found = self.constants.find(element)?;
        if matches!(found, ConstantOrGlobal::Constant(Constant::Null)) {
            return Some(None);
        }
        let ConstantOrGlobal::Constant(Constant::Aggregate(fields)) = found else {
            return None;
        };
        let &[priority, function, key] = &fields[..] else {
            return None;
        };
        let priority = match self.constants.find(priority)? {
            ConstantOrGlobal::Constant(Constant::Integer(words)) => words[0] as u32,
            ConstantOrGlobal::Constant(Constant::Null) => 0,
            _ => return None,
        };
        let is_null = |it| {
            matches!(
                self.constants.find(it),
                Some(ConstantOrGlobal::Constant(Constant::Null))
            )
        };
        let symbol = |it| Some(self.symbols[self.base(it)? as usize]);
        if is_null(function) {
            return Some(None);
        }
        Some(Some(Structor {
            priority,
            function: symbol(function)?,
            key: match is_null(key) {
                true => None,
                false => Some(symbol(key)?),
            },
        }))
    }
}

fn linkage_of(linkage: IrLinkage) -> Linkage {
    match linkage {
        IrLinkage::External => Linkage::Strong,
        IrLinkage::AvailableExternally => Linkage::Available,
        IrLinkage::LinkOnce | IrLinkage::LinkOnceOdr | IrLinkage::Weak | IrLinkage::WeakOdr => {
            Linkage::Weak
        }
        IrLinkage::Appending => Linkage::Appending,
        IrLinkage::Internal | IrLinkage::Private => Linkage::Local,
        IrLinkage::ExternalWeak => Linkage::DeclaredWeak,
        IrLinkage::Common => Linkage::Common,
    }
}
