//! The symbol and the numbers of the ELF specification for reading the dynamic loader's tables, in
//! the types of its fields.

pub(crate) const DT_NEEDED: u64 = 1;
pub(super) const DT_PLTRELSZ: u64 = 2;
pub(super) const DT_STRTAB: u64 = 5;
pub(super) const DT_SYMTAB: u64 = 6;
pub(super) const DT_RELA: u64 = 7;
pub(super) const DT_RELASZ: u64 = 8;
pub(crate) const DT_SONAME: u64 = 14;
pub(super) const DT_SYMBOLIC: u64 = 16;
pub(super) const DT_JMPREL: u64 = 23;
pub(super) const DT_FLAGS: u64 = 30;
pub(super) const DT_GNU_HASH: u64 = 0x6fff_fef5;
pub(super) const DT_VERSYM: u64 = 0x6fff_fff0;

pub(super) const DF_SYMBOLIC: u64 = 2;

pub(super) const R_64: u32 = 1;
pub(super) const R_GLOB_DAT: u32 = 6;
pub(super) const R_JUMP_SLOT: u32 = 7;

pub(super) const SHN_UNDEF: u16 = 0;
pub(super) const SHN_ABS: u16 = 0xfff1;

pub(super) const STB_LOCAL: u8 = 0;
pub(super) const STB_GLOBAL: u8 = 1;
pub(super) const STB_WEAK: u8 = 2;
pub(super) const STB_GNU_UNIQUE: u8 = 10;

pub(super) const STT_NOTYPE: u8 = 0;
pub(super) const STT_OBJECT: u8 = 1;
pub(super) const STT_FUNC: u8 = 2;
pub(super) const STT_COMMON: u8 = 5;
pub(super) const STT_TLS: u8 = 6;
pub(super) const STT_GNU_IFUNC: u8 = 10;

pub(super) const STV_PROTECTED: u8 = 3;

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ElfSymbol {
    pub(super) name: u32,
    pub(super) info: u8,
    pub(super) other: u8,
    pub(super) section: u16,
    pub(super) value: u64,
    pub(super) size: u64,
}

const _: () = assert!(size_of::<ElfSymbol>() == 24);
