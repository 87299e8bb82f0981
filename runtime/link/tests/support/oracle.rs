//! The oracle of a link. It reads the objects again through another interface (`object`'s
//! high-level one), decodes the linked instructions with iced-x86 and the unwind records with
//! gimli. For every relocated place it checks that the processor's access reaches the target in the
//! source.
//!
//! It knows the places of sections (`Linked::map`) and of externals; everything else it computes by
//! itself, from instructions if there are any. So a rewritten instruction is checked by its effect,
//! not by its bytes.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::elf;
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SymbolSection,
};
use uruk_link::Resolved;

use super::site::Site;
use super::{Image, MODULE, STATIC_OFFSET, frames};

pub type File<'d> = ElfFile64<'d, object::Endianness>;

/// The meaning of a relocation, from the symbol tables alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// An address in memory.
    At(u64),
    /// An address, where callers may go through the word instead.
    Stub(u64, u64),
    /// An ifunc: callers must reach the content of a word that the resolver fills.
    Ifunc { resolver: u64 },
    /// A thread-local: module, offset in it, offset from the thread pointer.
    Thread {
        module: u64,
        offset: u64,
        from_pointer: Option<i64>,
    },
    /// In a section that is not in the image.
    Gone,
}

impl Meaning {
    pub fn address(self) -> u64 {
        match self {
            Meaning::At(address) | Meaning::Stub(address, _) => address,
            other => panic!("{other:?} has no plain address"),
        }
    }
}

pub struct Oracle<'i, 'd> {
    pub image: &'i Image,
    pub files: Vec<File<'d>>,
    /// By object and section index.
    homes: HashMap<(u32, u32), u64>,
    /// Winning definitions of global names.
    globals: HashMap<String, Meaning>,
    /// Start of the GOT, learned from the first place that depends on it.
    pub got: std::cell::Cell<Option<u64>>,
}

/// Panics, naming the place, if anything in the image is wrong.
pub fn check(image: &Image, files: &[&[u8]]) {
    let files: Vec<_> = files
        .iter()
        .map(|bytes| File::parse(*bytes).expect("parsed once"))
        .collect();
    let homes = image
        .linked
        .map
        .iter()
        .map(|m| ((m.object, m.section), m.address))
        .collect();
    let mut oracle = Oracle {
        image,
        files,
        homes,
        globals: HashMap::new(),
        got: std::cell::Cell::new(None),
    };
    oracle.find_globals();
    for number in 0..oracle.files.len() {
        // Accesses to the GOT first: others are relative to it.
        for got_sites in [true, false] {
            oracle.sections(number as u32, got_sites);
        }
    }
    frames::check(&oracle);
}

impl<'d> Oracle<'_, 'd> {
    pub fn home(&self, object: u32, section: usize) -> Option<u64> {
        self.homes.get(&(object, section as u32)).copied()
    }

    fn find_globals(&mut self) {
        let mut strengths: HashMap<String, u32> = HashMap::new();
        for (number, file) in self.files.iter().enumerate() {
            for symbol in file.symbols() {
                if symbol.is_local() || symbol.is_undefined() {
                    continue;
                }
                let name = symbol.name().expect("names are text");
                if self.image.world.discard.contains(&name) {
                    continue;
                }
                let meaning = self.local_meaning(number as u32, &symbol);
                let strength = match (symbol.is_common(), symbol.is_weak()) {
                    _ if meaning == Meaning::Gone => continue,
                    (true, _) => 2,
                    (_, true) => 1,
                    _ => 3,
                };
                if strength > strengths.get(name).copied().unwrap_or(0) {
                    strengths.insert(name.into(), strength);
                    self.globals.insert(name.into(), meaning);
                }
            }
        }
    }

    /// The place of a symbol with a definition of its own.
    fn local_meaning(
        &self,
        object: u32,
        symbol: &object::read::elf::ElfSymbol64<'d, '_, object::Endianness>,
    ) -> Meaning {
        let name = symbol.name().expect("names are text");
        let file = &self.files[object as usize];
        match symbol.section() {
            SymbolSection::Absolute => Meaning::At(symbol.address()),
            SymbolSection::Common => Meaning::At(self.image.address(name)),
            SymbolSection::Section(index) => {
                let Some(home) = self.home(object, index.0) else {
                    return Meaning::Gone;
                };
                let section = file.section_by_index(index).expect("there");
                let at = home + symbol.address();
                let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                    panic!("not an ELF section")
                };
                if sh_flags.0 & elf::SHF_TLS.0 != 0 {
                    let from_pointer = Some(STATIC_OFFSET + at as i64);
                    return Meaning::Thread {
                        module: MODULE,
                        offset: at,
                        from_pointer,
                    };
                }
                if symbol.elf_symbol().st_type() == elf::STT_GNU_IFUNC {
                    return Meaning::Ifunc { resolver: at };
                }
                Meaning::At(at)
            }
            other => panic!("symbol {name} in {other:?}"),
        }
    }

    /// The meaning of a relocation of `object` against `target`.
    pub fn meaning(&self, object: u32, target: RelocationTarget) -> (Meaning, String) {
        let RelocationTarget::Symbol(index) = target else {
            return (Meaning::At(0), String::new());
        };
        let symbol = self.files[object as usize]
            .symbol_by_index(index)
            .expect("there");
        let name = symbol.name().expect("names are text").to_string();
        if symbol.is_local() {
            return (self.local_meaning(object, &symbol), name);
        }
        if let Some(meaning) = self.globals.get(&name) {
            return (*meaning, name);
        }
        for (prefix, end) in [("__start_", false), ("__stop_", true)] {
            if let Some(bounds) = name.strip_prefix(prefix).and_then(|rest| self.bounds(rest)) {
                return (Meaning::At(if end { bounds.1 } else { bounds.0 }), name);
            }
        }
        if name == "_TLS_MODULE_BASE_" {
            let from_pointer = Some(STATIC_OFFSET);
            return (
                Meaning::Thread {
                    module: MODULE,
                    offset: 0,
                    from_pointer,
                },
                name,
            );
        }
        if name == "_GLOBAL_OFFSET_TABLE_" {
            return (Meaning::At(self.got.get().unwrap_or(0)), name);
        }
        let meaning = match self
            .image
            .world
            .resolve(&name, symbol.is_weak() && symbol.is_undefined())
        {
            None => Meaning::At(0),
            Some(Resolved {
                tls: Some((module, offset)),
                static_tls,
                ..
            }) => Meaning::Thread {
                module,
                offset,
                from_pointer: static_tls,
            },
            Some(Resolved {
                address,
                slot: Some(slot),
                ..
            }) => Meaning::Stub(address, slot.0),
            Some(Resolved { address, .. }) => Meaning::At(address),
        };
        (meaning, name)
    }

    fn bounds(&self, section: &str) -> Option<(u64, u64)> {
        let named = || {
            self.image
                .linked
                .map
                .iter()
                .filter(|m| m.name.as_ref() == section)
        };
        let start = named().map(|m| m.address).min()?;
        let end = named().map(|m| m.address + m.size).max()?;
        let inside = |m: &&uruk_link::MappedSection| (start..end).contains(&m.address);
        let strangers = self.image.linked.map.iter().filter(inside);
        let strangers = strangers.filter(|m| m.size != 0 && m.name.as_ref() != section);
        assert_eq!(
            strangers.count(),
            0,
            "only sections of the name between its bounds"
        );
        Some((start, end))
    }

    fn sections(&self, object: u32, got_sites: bool) {
        let file = &self.files[object as usize];
        for section in file.sections() {
            let Some(home) = self.home(object, section.index().0) else {
                continue;
            };
            let name = section.name().expect("names are text");
            if name == ".eh_frame" {
                continue;
            }
            let mapped = self.image.linked.map.iter();
            let mapped =
                mapped.filter(|m| (m.object, m.section as usize) == (object, section.index().0));
            assert_eq!(mapped.count(), 1);
            assert_eq!(home % section.align().max(1), 0, "{name} is aligned");
            let code = section.kind() == object::SectionKind::Text;
            let stream = if code {
                self.decode(home, section.size() as usize)
            } else {
                Vec::new()
            };
            for (offset, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    panic!("not an ELF relocation")
                };
                let tells_got = matches!(r_type, elf::R_X86_64_GOTPC32 | elf::R_X86_64_GOTPC64);
                if tells_got != got_sites {
                    continue;
                }
                let (meaning, symbol) = self.meaning(object, relocation.target());
                let site = Site {
                    oracle: self,
                    label: format!("{object}.o {name}+{offset:#x} type {} {symbol}", r_type.0),
                    place: home + offset,
                    offset,
                    addend: relocation.addend(),
                    kind: r_type,
                    meaning,
                    section_bytes: section.data().expect("bytes"),
                    in_template: matches!(section.kind(), object::SectionKind::Tls),
                };
                if meaning == Meaning::Gone && name.starts_with(".gcc_except_table") {
                    continue;
                }
                let size = match relocation.target() {
                    RelocationTarget::Symbol(index) => {
                        file.symbol_by_index(index).expect("there").size()
                    }
                    _ => 0,
                };
                site.check(&stream, size);
            }
        }
    }

    /// All instructions from `start` on; invalid bytes count as one each.
    fn decode(&self, start: u64, size: usize) -> Vec<Instruction> {
        let Some(bytes) = self.image.bytes(start, size) else {
            return Vec::new();
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut stream = Vec::new();
        while decoder.can_decode() {
            stream.push(decoder.decode());
        }
        stream
    }
}
