//! The symbols that a module defines and needs, as plain data, without its bodies.
//!
//! The order of [`ModuleSummary::symbols`] is the order of the module's symbol
//! table, so a [`SymbolId`] means the same symbol in every [`Reader`](crate::Reader)
//! of the same bytes.

use uruk_base::allocated::{of_block, of_vec};

/// A body is emitted under its function's link name with this prefix, so that the
/// plain name always means the canonical address, also inside the body itself.
pub const BODY_PREFIX: &str = "uruk.body.";

/// Index of a symbol in its module's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolId(pub u32);

impl SymbolId {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function.
    Function,
    /// A variable or constant.
    Data,
    /// A thread-local variable.
    ThreadLocal,
    /// Another name of `base`, or of a place inside it.
    Alias {
        /// The symbol it names, if it could be determined.
        base: Option<SymbolId>,
        /// True if the alias names exactly `base`, not a place inside it.
        exact: bool,
    },
    /// A function chosen at load time by a resolver.
    Ifunc {
        /// The resolver function.
        resolver: Option<SymbolId>,
    },
}

/// Linkage, reduced to the distinctions of the binding rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// Defined here, the one definition.
    Strong,
    /// Defined here, gives way to a strong one, else the first is chosen.
    Weak,
    /// A tentative definition; the largest wins, a real definition beats it.
    Common,
    /// Defined here, invisible to other modules.
    Local,
    /// Defined elsewhere.
    Declared,
    /// Defined elsewhere or null.
    DeclaredWeak,
    /// A copy of a definition elsewhere, for the optimizer; it is used if nothing else defines the
    /// name.
    Available,
    /// `llvm.*` tables that are read, never emitted.
    Appending,
}

impl Linkage {
    /// True if this module holds a definition.
    pub fn is_definition(self) -> bool {
        matches!(
            self,
            Linkage::Strong | Linkage::Weak | Linkage::Common | Linkage::Local | Linkage::Available
        )
    }

    /// The linkage of a global with that name. A definition without a name is local, with any
    /// linkage: no other module can name it. LLVM's code generation names such globals
    /// `__unnamed_1`, `__unnamed_2`, in each module anew, so two modules could not be linked.
    pub(crate) fn of_one_named(self, name: &str) -> Linkage {
        match name.is_empty() && self.is_definition() {
            true => Linkage::Local,
            false => self,
        }
    }
}

/// Where a definition is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// A function with a unit of its own behind a stub.
    Own,
    /// Part of the module's data unit, compiled when the image starts. Functions
    /// are here when they cannot be split from data: prefix data, tables for garbage
    /// collectors.
    DataUnit,
    /// Nothing is emitted: declarations, intrinsics, `llvm.*` tables.
    None,
}

/// One symbol of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolInfo {
    /// Name in the module; empty for unnamed ones.
    pub name: String,
    /// The kind of symbol.
    pub kind: Kind,
    /// Its linkage.
    pub linkage: Linkage,
    /// The unit in which it is compiled.
    pub placement: Placement,
    /// True if only its own dylib may find it: hidden and local definitions.
    pub hidden: bool,
    /// True for weak definitions that are all equal by a rule of the language.
    pub odr: bool,
    /// Group that is kept or dropped as a whole, an index local to the module.
    pub comdat: Option<u32>,
    /// True if `llvm.used` or `llvm.compiler.used` lists it: assembly may name it.
    pub used: bool,
    /// True for constants.
    pub constant: bool,
    /// True for `alwaysinline` functions: their bodies are copied into callers.
    pub always_inline: bool,
    /// Bytes of a variable that begins as zeros and may lie anywhere, in no section of its own; 0
    /// for other symbols, and for variables under [`LARGE`].
    pub zeros: u64,
}

/// Size from which a variable may get memory of its own, in bytes.
pub const LARGE: u64 = 1 << 20;

/// The alignment of memory of its own, in bytes.
pub(crate) const PAGE: u64 = 4096;

/// One entry of `llvm.global_ctors` or `llvm.global_dtors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Structor {
    /// Lower runs earlier at start, later at exit.
    pub priority: u32,
    /// The function to call.
    pub function: SymbolId,
    /// Dropped when this symbol's definition lost to another module's.
    pub key: Option<SymbolId>,
}

/// The thread-local by which code compiled with `-fsanitize=safe-stack` finds its second stack; the
/// run-time library's constructors make that stack.
pub(crate) const SAFE_STACK: &str = "__safestack_unsafe_stack_ptr";

/// The symbols and tables of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleSummary {
    /// The symbol table.
    pub symbols: Vec<SymbolInfo>,
    /// Entries of `llvm.global_ctors`, in file order.
    pub constructors: Vec<Structor>,
    /// Entries of `llvm.global_dtors`, in file order.
    pub destructors: Vec<Structor>,
    /// True if the module has module-level assembly. It goes with the data unit, whose local
    /// symbols may then be what functions declare by name.
    pub has_inline_asm: bool,
    /// Names that the assembly binds to a version (`.symver`), and the names with it.
    pub versions: Vec<(Box<str>, Box<str>)>,
    /// Names that the module does not mention, but its code will: those of run-time libraries that
    /// must be present from the start.
    pub implied: Vec<&'static str>,
    /// Keys of COMDAT groups, by group index: the least name of a member.
    pub comdats: Vec<String>,
}

impl ModuleSummary {
    /// Bytes allocated for the summary, without itself.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.symbols.iter().map(|symbol| &symbol.name);
        let names = names
            .chain(&self.comdats)
            .map(|name| of_block(name.capacity()));
        let versions = self.versions.iter();
        let versions =
            versions.map(|(name, version)| of_block(name.len()) + of_block(version.len()));
        of_vec(&self.symbols)
            + of_vec(&self.constructors)
            + of_vec(&self.destructors)
            + of_vec(&self.versions)
            + of_vec(&self.implied)
            + of_vec(&self.comdats)
            + names.sum::<usize>()
            + versions.sum::<usize>()
    }
}

/// Names and versions of the lines `.symver NAME, NAME@VERSION` of assembly.
pub(crate) fn versions(assembly: &str) -> Vec<(Box<str>, Box<str>)> {
    let statements = assembly.split(['\n', ';']).map(str::trim);
    let words = statements.filter_map(|line| line.strip_prefix(".symver")?.split_once(','));
    words
        .filter_map(|(name, versioned)| {
            let versioned = versioned.split(',').next()?.trim().trim_matches('"');
            // The last two of three marks apply only if the name is defined.
            let versioned = versioned.replace("@@@", "@");
            let name = name.trim().trim_matches('"');
            versioned
                .contains('@')
                .then(|| (name.into(), versioned.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn versions_are_read_from_assembly() {
        let text = "nop\n\t.symver memcpy, memcpy@GLIBC_2.2.5\n.symver a,\"b@@V\";.symver c, d";
        let found = versions(text);
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found, [("memcpy", "memcpy@GLIBC_2.2.5"), ("a", "b@@V")]);
    }
}
