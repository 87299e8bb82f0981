//! The oracle's part for one relocated place: the access of the processor there.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::elf;

use super::MODULE;
use super::oracle::{Meaning, Oracle};

/// One relocated place.
pub struct Site<'o, 'i, 'd> {
    pub oracle: &'o Oracle<'i, 'd>,
    pub label: String,
    pub place: u64,
    pub offset: u64,
    pub addend: i64,
    pub kind: elf::RelocationType,
    pub meaning: Meaning,
    pub section_bytes: &'o [u8],
    pub in_template: bool,
}

impl Site<'_, '_, '_> {
    fn field(&self, width: usize) -> u64 {
        let image = self.oracle.image;
        let template = image.linked.tls.as_ref().map(|tls| tls.image.as_slice());
        let bytes = if self.in_template {
            template.and_then(|bytes| bytes.get(self.place as usize..)?.get(..width))
        } else {
            image.bytes(self.place, width)
        };
        let bytes = bytes.unwrap_or_else(|| panic!("{}: outside of the image", self.label));
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    fn signed(&self, width: usize) -> u64 {
        let shift = 64 - 8 * width as u32;
        ((self.field(width) << shift) as i64 >> shift) as u64
    }

    fn expect(&self, got: u64, wanted: u64) {
        assert_eq!(
            got, wanted,
            "{}: {got:#x} instead of {wanted:#x}",
            self.label
        );
    }

    /// `S`, where an ifunc's is a PLT entry that jumps through its word.
    fn is_target(&self, address: u64, wanted_offset: i64) {
        let target = address.wrapping_sub(wanted_offset as u64);
        match self.meaning {
            Meaning::Ifunc { resolver } => {
                let word = self.plt_word(target);
                assert!(self.is_filled(word, resolver), "{}: PLT entry", self.label)
            }
            meaning => self.expect(target, meaning.address()),
        }
    }

    /// Whether `word` is one that `resolver` fills.
    fn is_filled(&self, word: Option<u64>, resolver: u64) -> bool {
        let mut ifuncs = self.oracle.image.linked.ifuncs.iter();
        ifuncs.any(|ifunc| Some(ifunc.word) == word && ifunc.resolver == resolver)
    }

    /// The word that the PLT entry at `address` jumps through, if there is one.
    fn plt_word(&self, address: u64) -> Option<u64> {
        let bytes = self.oracle.image.bytes(address, 6)?;
        let jump = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (jump.code() == Code::Jmp_rm64 && jump.is_ip_rel_memory_operand())
            .then(|| jump.ip_rel_memory_address())
    }

    /// Whether a control transfer to `address` reaches the meaning.
    fn transfers_to(&self, address: u64, wanted_offset: i64) {
        if let Some(word) = self.plt_word(address) {
            match self.meaning {
                Meaning::Ifunc { resolver } => {
                    assert!(
                        self.is_filled(Some(word), resolver),
                        "{}: PLT entry",
                        self.label
                    );
                    return;
                }
                meaning if meaning.address() != address => {
                    let target = self.oracle.image.word(word).expect("the PLT's word");
                    return self.expect(target, meaning.address());
                }
                _ => {}
            }
        }
        self.is_target(address, wanted_offset);
    }

    pub fn check(&self, stream: &[Instruction], size: u64) {
        let covering = stream
            .iter()
            .find(|i| (i.ip()..i.next_ip()).contains(&self.place));
        match self.kind {
            elf::R_X86_64_NONE => {}
            elf::R_X86_64_64 => self.is_target(self.field(8), self.addend),
            elf::R_X86_64_32 => self.is_target(self.field(4), self.addend),
            elf::R_X86_64_32S => self.is_target(self.signed(4), self.addend),
            elf::R_X86_64_16 | elf::R_X86_64_8 => {
                let width = if self.kind == elf::R_X86_64_8 { 1 } else { 2 };
                let wanted = self.meaning.address().wrapping_add(self.addend as u64);
                self.expect(self.field(width), wanted & ((1 << (8 * width)) - 1));
            }
            elf::R_X86_64_PC8 => self.relative(1),
            elf::R_X86_64_PC16 => self.relative(2),
            elf::R_X86_64_PC64 => self.relative(8),
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => match covering {
                Some(instruction) => self.direct(instruction),
                None => {
                    let reached = self.signed(4).wrapping_add(self.place);
                    self.transfers_to(reached.wrapping_sub(self.addend as u64), 0);
                }
            },
            elf::R_X86_64_GOTPCREL
            | elf::R_X86_64_GOTPCRELX
            | elf::R_X86_64_REX_GOTPCRELX
            | elf::R_X86_64_CODE_4_GOTPCRELX => match covering {
                Some(instruction) => self.through_got(instruction),
                None => self.word_at(self.signed(4).wrapping_add(self.place)),
            },
            elf::R_X86_64_GOTPCREL64 => self.word_at(self.field(8).wrapping_add(self.place)),
            elf::R_X86_64_GOTPC32 => self.learn_got(self.signed(4)),
            elf::R_X86_64_GOTPC64 => self.learn_got(self.field(8)),
            elf::R_X86_64_GOT32 => self.word_at(self.signed(4).wrapping_add(self.got())),
            elf::R_X86_64_GOT64 | elf::R_X86_64_GOTPLT64 => {
                self.word_at(self.field(8).wrapping_add(self.got()));
            }
            elf::R_X86_64_GOTOFF64 | elf::R_X86_64_PLTOFF64 => {
                let reached = self.field(8).wrapping_add(self.got());
                self.transfers_to(reached.wrapping_sub(self.addend as u64), 0);
            }
            elf::R_X86_64_SIZE32 => {
                self.expect(self.field(4), size.wrapping_add(self.addend as u64));
            }
            elf::R_X86_64_SIZE64 => {
                self.expect(self.field(8), size.wrapping_add(self.addend as u64));
            }
            _ => self.thread_local(covering),
        }
    }

    fn got(&self) -> u64 {
        self.oracle
            .got
            .get()
            .expect("something tells where the GOT is")
    }

    fn learn_got(&self, distance: u64) {
        let got = distance
            .wrapping_add(self.place)
            .wrapping_sub(self.addend as u64);
        if let Some(known) = self.oracle.got.replace(Some(got)) {
            self.expect(got, known);
        }
    }

    fn relative(&self, width: usize) {
        let reached = self.signed(width).wrapping_add(self.place);
        self.is_target(reached, self.addend);
    }

    /// A word in memory that must hold the symbol's address.
    fn word_at(&self, address_and_addend: u64) {
        let address = address_and_addend.wrapping_sub(self.addend as u64);
        assert_eq!(address % 8, 0, "{}: GOT words are aligned", self.label);
        let word = self.oracle.image.word(address);
        let word = word.unwrap_or_else(|| panic!("{}: no word at {address:#x}", self.label));
        self.is_target(word, 0);
    }

    /// The address that an instruction branches to or accesses.
    fn operand(&self, instruction: &Instruction) -> u64 {
        if instruction.is_ip_rel_memory_operand() {
            return instruction.ip_rel_memory_address();
        }
        let branch = matches!(
            instruction.op0_kind(),
            OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
        );
        assert!(
            branch,
            "{}: `{instruction}` has no relative operand",
            self.label
        );
        assert_eq!(
            instruction.op0_kind(),
            OpKind::NearBranch64,
            "{}: width",
            self.label
        );
        instruction.near_branch_target()
    }

    fn direct(&self, instruction: &Instruction) {
        let reached = self.operand(instruction);
        // The processor counts from the end of the instruction, the field from its place.
        let meant = self
            .addend
            .wrapping_add((instruction.next_ip() - self.place) as i64);
        if instruction.op0_kind() == OpKind::NearBranch64 {
            self.transfers_to(reached, meant);
        } else {
            self.is_target(reached, meant);
        }
    }

    fn through_got(&self, instruction: &Instruction) {
        let before = &self.section_bytes[..self.offset as usize];
        let label = &self.label;
        let image = self.oracle.image;
        let reached = self.operand(instruction);
        match before {
            [.., 0xff, 0x15 | 0x25] => {
                let jump = before.ends_with(&[0x25]);
                let wanted = if jump { Mnemonic::Jmp } else { Mnemonic::Call };
                assert_eq!(instruction.mnemonic(), wanted, "{label}");
                if instruction.op0_kind() == OpKind::NearBranch64 {
                    return self.transfers_to(reached, 0);
                }
                assert_eq!(reached % 8, 0, "{label}: words are aligned");
                match self.meaning {
                    Meaning::Stub(_, slot) if slot == reached => {}
                    Meaning::Ifunc { resolver } if self.is_filled(Some(reached), resolver) => {}
                    _ => self.is_target(image.word(reached).expect(label), 0),
                }
            }
            [.., 0x8b, _] if instruction.mnemonic() == Mnemonic::Lea => {
                assert_eq!(instruction.memory_index(), iced_x86::Register::None);
                self.is_target(reached, 0);
            }
            _ => {
                let same = Decoder::with_ip(
                    64,
                    &self.section_bytes[(self.offset - (self.place - instruction.ip())) as usize..],
                    instruction.ip(),
                    DecoderOptions::NONE,
                )
                .decode();
                assert_eq!(same.code(), instruction.code(), "{label}: stays the same");
                // With an immediate behind it the field is not the last part.
                let late = instruction.next_ip() as i64 - self.place as i64 + self.addend;
                let reached = reached.wrapping_sub(late as u64);
                assert_eq!(reached % 8, 0, "{label}: words are aligned");
                self.is_target(image.word(reached).expect(label), 0);
            }
        }
    }

    fn thread_local(&self, covering: Option<&Instruction>) {
        let label = &self.label;
        let image = self.oracle.image;
        let Meaning::Thread {
            module,
            offset,
            from_pointer,
        } = self.meaning
        else {
            if self.kind == elf::R_X86_64_TLSLD {
                let word = self.operand(covering.expect(label));
                assert_eq!(
                    (image.word(word), image.word(word + 8)),
                    (Some(MODULE), Some(0))
                );
                return;
            }
            panic!("{label}: {:?} is not thread-local", self.meaning)
        };
        let from_pointer = || from_pointer.unwrap_or_else(|| panic!("{label}: not static")) as u64;
        let plus = |value: u64| value.wrapping_add(self.addend as u64);
        match self.kind {
            elf::R_X86_64_TLSGD => {
                let word = self.operand(covering.expect(label));
                assert_eq!(image.word(word), Some(module), "{label}");
                assert_eq!(image.word(word + 8), Some(offset), "{label}");
            }
            elf::R_X86_64_TLSLD => {
                let word = self.operand(covering.expect(label));
                assert_eq!(
                    (image.word(word), image.word(word + 8)),
                    (Some(MODULE), Some(0))
                );
            }
            elf::R_X86_64_DTPMOD64 => self.expect(self.field(8), module),
            elf::R_X86_64_DTPOFF64 => self.expect(self.field(8), plus(offset)),
            elf::R_X86_64_DTPOFF32 => self.expect(self.signed(4), plus(offset)),
            elf::R_X86_64_TPOFF32 => self.expect(self.signed(4), plus(from_pointer())),
            elf::R_X86_64_TPOFF64 => self.expect(self.field(8), plus(from_pointer())),
            elf::R_X86_64_GOTTPOFF => {
                let word = self.operand(covering.expect(label));
                assert_eq!(image.word(word), Some(from_pointer()), "{label}");
            }
            elf::R_X86_64_GOTPC32_TLSDESC => {
                let instruction = covering.expect(label);
                assert_eq!(
                    instruction.mnemonic(),
                    Mnemonic::Mov,
                    "{label}: {instruction}"
                );
                self.expect(instruction.immediate(1), from_pointer());
            }
            elf::R_X86_64_TLSDESC_CALL => {
                assert_eq!(covering.expect(label).mnemonic(), Mnemonic::Nop, "{label}");
            }
            other => panic!("{label}: the oracle does not know type {}", other.0),
        }
    }
}
