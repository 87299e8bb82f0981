//! Turns [`Placed`] into [`Linked`]: looks externals up, copies bytes, fills fields.
//!
//! The order is: look up every external and report all that are missing; copy; fill GOT and PLT;
//! apply relocations; read the tables of constructors and unwind records back out of the result.

use object::LittleEndian;

use crate::error::{LinkError, Missing};
use crate::evaluate::{Field, Fixer};
use crate::frames::{FUNCTION_OFFSET, ID_OFFSET};
use crate::linear::Linear;
use crate::linked::{EhFrame, Ifunc, Init, Linked, MappedSection, TlsTemplate};
use crate::moves::Immovable;
use crate::placed::Placed;
use crate::record::{Effect, Recorder};
use crate::relocation::{DISTANCE, Rule, WORD};
use crate::section::{ArrayKind, Class, Rela, Section, SectionId};
use crate::segment::{Home, Region};
use crate::symbol::{Need, Origin, Resolved};
use crate::unwind;

/// Filler between pieces of code: `int3`.
const TRAP: u8 = 0xcc;

impl<'d> Placed<'d> {
    /// Copies and fixes up the bytes. `resolve` is called once for each symbol from outside; `None`
    /// for a weak one makes its address null.
    ///
    /// # Errors
    ///
    /// Strong symbols that are not found (all of them), a relocation that cannot be applied (the
    /// first), invalid unwind records.
    pub fn fix_up(
        self,
        mut resolve: impl FnMut(&str, Need) -> Option<Resolved>,
    ) -> Result<Linked, LinkError> {
        let externals = self.externals(&mut resolve)?;
        let fixer = Fixer {
            placed: &self,
            graph: &self.laid.graph,
            externals,
        };
        let mut out = fixer.copy();
        fixer.within(&mut out.recorder);
        fixer.tables(&mut out);
        for index in 0..fixer.graph.sections.len() {
            fixer.section(SectionId(index as u32), &mut out)?;
        }
        fixer.records(&mut out)?;
        fixer.finish(out)
    }

    /// Addresses from outside, by plan entry.
    fn externals(
        &self,
        resolve: &mut dyn FnMut(&str, Need) -> Option<Resolved>,
    ) -> Result<Vec<Option<Resolved>>, LinkError> {
        let graph = &self.laid.graph;
        let mut missing = Vec::new();
        let mut externals = Vec::with_capacity(self.laid.plan.entries.len());
        for entry in &self.laid.plan.entries {
            let Some(need) = entry.external else {
                externals.push(None);
                continue;
            };
            let name = graph.symbols[entry.symbol.index()].name;
            let resolved = resolve(name, need);
            if resolved.is_none() && !need.weak {
                let needed_by = graph.needers(entry.symbol);
                missing.push(Missing {
                    symbol: name.into(),
                    needed_by,
                });
            }
            externals.push(resolved);
        }
        if missing.is_empty() {
            Ok(externals)
        } else {
            Err(LinkError::Missing(missing))
        }
    }
}

/// A section or unwind record whose relocations are being applied.
struct FixupTarget {
    home: Home,
    size: usize,
    /// End of the bytes filled so far, by relocations or, in an unwind record, by the linker.
    filled: usize,
}

/// The bytes that are being fixed up.
struct Bytes {
    code: Vec<u8>,
    read_only: Vec<u8>,
    read_write: Vec<u8>,
    template: Vec<u8>,
    recorder: Recorder,
}

impl Bytes {
    fn of(&mut self, region: Region) -> &mut Vec<u8> {
        match region {
            Region::Code => &mut self.code,
            Region::ReadOnly => &mut self.read_only,
            Region::ReadWrite => &mut self.read_write,
            Region::Tls => &mut self.template,
        }
    }

    /// The `size` bytes at a home that the layout assigned.
    fn at(&mut self, home: Home, size: usize) -> &mut [u8] {
        &mut self.of(home.region)[home.offset as usize..][..size]
    }

    fn put_word(&mut self, table: Home, number: u32, word: Linear) {
        let home = Home {
            offset: table.offset + u64::from(number) * 8,
            ..table
        };
        self.at(home, 8).copy_from_slice(&word.value.to_le_bytes());
        self.filled(home, &WORD, word.slope);
    }

    /// Records a field that belongs to one of the image's own tables.
    fn filled(&mut self, home: Home, rule: &Rule, slope: i8) {
        let effect = Effect::plain(0, rule, slope);
        self.recorder.note(home.region, home.offset, &effect);
    }
}

impl Fixer<'_, '_> {
    fn copy(&self) -> Bytes {
        let laid = &self.placed.laid;
        let zeros =
            |cursor: crate::layout::Cursor| vec![0; cursor.content.unwrap_or(cursor.end) as usize];
        let mut code = Vec::with_capacity(laid.code.end as usize);
        code.resize(laid.homes.text_end as usize, TRAP);
        code.resize(laid.code.end as usize, 0);
        let mut out = Bytes {
            code,
            read_only: zeros(laid.read_only),
            read_write: zeros(laid.read_write),
            template: zeros(laid.template),
            recorder: Recorder::default(),
        };
        for (section, home) in self.graph.sections.iter().zip(&laid.homes.sections) {
            if let Some(home) = *home
                && section.is_placed()
                && !section.data.is_empty()
            {
                out.at(home, section.data.len())
                    .copy_from_slice(section.data);
            }
        }
        out
    }

    /// Fills GOT and PLT. Ifunc words stay zero until a resolver has run.
    fn tables(&self, out: &mut Bytes) {
        let homes = &self.placed.laid.homes;
        let plan = &self.placed.laid.plan;
        for entry in &plan.entries {
            if let Some(number) = entry.word {
                // A failed address is reported with its relocation.
                let address = self.address(entry.symbol).unwrap_or(Linear::fixed(0));
                out.put_word(homes.got, number, address);
            }
            if let Some(number) = entry.plt {
                let word = match (entry.ifunc, entry.word) {
                    (Some(ifunc), _) => self.placed.ifunc_word(ifunc),
                    (None, Some(word)) => self.placed.got_word(word),
                    (None, None) => continue,
                };
                let offset = u64::from(number) * crate::got::PLT_ENTRY;
                let home = Home {
                    offset: homes.plt.offset + offset,
                    ..homes.plt
                };
                let distance = word.minus(self.placed.linear(home).plus(6));
                let bytes = out.at(home, 6);
                bytes[..2].copy_from_slice(&[0xff, 0x25]);
                bytes[2..].copy_from_slice(&(distance.value as u32).to_le_bytes());
                let offset = home.offset + 2;
                out.filled(Home { offset, ..home }, &DISTANCE, distance.slope);
            }
            if entry.pair.is_none() && entry.thread_offset.is_none() {
                continue;
            }
            let Ok(tls) = self.thread_local(entry.symbol) else {
                continue;
            };
            if let (Some(number), Ok((module, offset))) = (entry.pair, tls.pair) {
                out.put_word(homes.got, number, Linear::fixed(module));
                out.put_word(homes.got, number + 1, Linear::fixed(offset));
            }
            if let (Some(number), Ok(offset)) = (entry.thread_offset, tls.thread_offset) {
                out.put_word(homes.got, number, Linear::fixed(offset as u64));
            }
        }
        if let (Some(number), Some(tls)) = (plan.module_pair, self.placed.at.tls) {
            out.put_word(homes.got, number, Linear::fixed(tls.module));
        }
    }

    /// Applies the relocations of one section.
    fn section(&self, id: SectionId, out: &mut Bytes) -> Result<(), LinkError> {
        let section = &self.graph.sections[id.index()];
        let Some(home) = self.placed.laid.homes.sections[id.index()] else {
            return Ok(());
        };
        if !section.is_placed() || section.relocations.is_empty() {
            return Ok(());
        }
        let mut target = FixupTarget {
            home,
            size: section.data.len(),
            filled: 0,
        };
        for relocation in section.relocations {
            let at = relocation.r_offset.get(LittleEndian);
            self.relocation(id, section, relocation, out, at, &mut target)?;
        }
        Ok(())
    }

    /// Copies the live unwind records together, joins FDEs with their CIEs and applies their
    /// relocations.
    fn records(&self, out: &mut Bytes) -> Result<(), LinkError> {
        let homes = &self.placed.laid.homes;
        for (record, offset) in self.graph.records.iter().zip(&homes.records) {
            let Some(offset) = *offset else { continue };
            let section = &self.graph.sections[record.section.index()];
            let home = Home {
                offset: homes.eh_frame.offset + offset,
                ..homes.eh_frame
            };
            let bytes = out.at(home, record.size as usize);
            bytes.copy_from_slice(&section.data[record.start as usize..][..record.size as usize]);
            if let Some(cie) = record.cie.and_then(|cie| homes.records[cie]) {
                let distance = (offset + ID_OFFSET - cie) as u32;
                bytes[ID_OFFSET as usize..][..4].copy_from_slice(&distance.to_le_bytes());
            }
            let mut target = FixupTarget {
                home,
                size: record.size as usize,
                filled: FUNCTION_OFFSET as usize,
            };
            for relocation in &section.relocations[record.relocations.clone()] {
                let at = relocation.r_offset.get(LittleEndian) - record.start;
                self.relocation(record.section, section, relocation, out, at, &mut target)?;
            }
        }
        Ok(())
    }

    fn relocation(
        &self,
        id: SectionId,
        section: &Section<'_>,
        relocation: &Rela,
        out: &mut Bytes,
        at: u64,
        target: &mut FixupTarget,
    ) -> Result<(), LinkError> {
        let home = target.home;
        let base = (home.region != Region::Tls).then(|| self.placed.linear(home));
        let mut field = Field {
            bytes: out.at(home, target.size),
            at: at as usize,
            place: base.map(|base| base.plus(at)),
            addend: relocation.r_addend.get(LittleEndian),
        };
        let effect = self
            .apply(section, relocation, &mut field)
            .map_err(|problem| self.graph.relocation_error(id, relocation, problem))?;
        let Some(effect) = effect else { return Ok(()) };
        let offset = home.offset + effect.at as u64;
        out.recorder.note(home.region, offset, &effect);
        if effect.start < target.filled {
            out.recorder.forbid(Immovable::Overlap { offset });
        }
        target.filled = target.filled.max(effect.end);
        Ok(())
    }

    /// Forbids moving if a symbol from outside lies in the code that would move.
    fn within(&self, recorder: &mut Recorder) {
        let (base, size) = (self.placed.at.code, self.placed.laid.code.end);
        for resolved in self.externals.iter().flatten() {
            let slot = resolved.slot.map(|slot| slot.0);
            for address in [Some(resolved.address), slot].into_iter().flatten() {
                if address.wrapping_sub(base) < size {
                    recorder.forbid(Immovable::External { address });
                }
            }
        }
    }

    fn finish(&self, mut out: Bytes) -> Result<Linked, LinkError> {
        let placed = self.placed;
        let laid = &placed.laid;
        let mut linked = Linked {
            text_size: laid.homes.text_end as usize,
            ..Linked::default()
        };
        self.arrays(&mut out, &mut linked);
        if laid.homes.eh_frame_size != 0 {
            let address = placed.address(laid.homes.eh_frame);
            let size = laid.homes.eh_frame_size as usize;
            linked.fdes = unwind::rows(out.at(laid.homes.eh_frame, size), address)?;
            linked.eh_frame = Some(EhFrame { address, size });
        }
        linked.tls = laid.tls().map(|shape| TlsTemplate {
            image: std::mem::take(&mut out.template),
            size: shape.size,
            align: shape.align,
        });
        for entry in &laid.plan.entries {
            let Some(number) = entry.ifunc else { continue };
            let symbol = &self.graph.symbols[entry.symbol.index()];
            let Origin::Section(id) = symbol.origin else {
                continue;
            };
            let Some(home) = laid.homes.sections[id.index()] else {
                continue;
            };
            linked.ifuncs.push(Ifunc {
                word: placed.ifunc_word(number).value,
                resolver: placed.address(home).wrapping_add(symbol.value),
            });
        }
        let mut recorder = std::mem::take(&mut out.recorder);
        if ![&linked.preinit, &linked.init, &linked.fini]
            .iter()
            .all(|list| list.is_empty())
        {
            recorder.forbid(Immovable::Arrays);
        }
        if !linked.ifuncs.is_empty() {
            recorder.forbid(Immovable::Ifuncs);
        }
        linked.escapes = recorder.escapes();
        (linked.moves, linked.immovable) = recorder.finish(laid.code.align);
        if laid.map {
            linked.map = self.map();
        }
        linked.code = out.code;
        linked.read_only = out.read_only;
        linked.read_write = out.read_write;
        Ok(linked)
    }

    /// Reads the arrays of functions back: their fields are relocated by now.
    fn arrays(&self, out: &mut Bytes, linked: &mut Linked) {
        for (section, home) in self
            .graph
            .sections
            .iter()
            .zip(&self.placed.laid.homes.sections)
        {
            let (
                Class::Array {
                    kind,
                    priority,
                    reversed,
                },
                Some(home),
            ) = (section.class, *home)
            else {
                continue;
            };
            let list = match kind {
                ArrayKind::Preinit => &mut linked.preinit,
                ArrayKind::Init => &mut linked.init,
                ArrayKind::Fini => &mut linked.fini,
            };
            let first = list.len();
            for word in out.at(home, section.data.len()).chunks_exact(8) {
                let address = u64::from_le_bytes(word.try_into().unwrap_or_default());
                // The old sections are framed by the words 0 and -1; an absent weak function is 0.
                if address != 0 && address != u64::MAX {
                    list.push(Init {
                        priority,
                        address,
                        object: section.object as usize,
                    });
                }
            }
            if reversed {
                list[first..].reverse();
            }
        }
        linked.init.sort_by_key(|init| init.priority);
        // Destructors run in exactly the reverse order.
        linked.fini.sort_by_key(|fini| fini.priority);
        linked.fini.reverse();
    }

    fn map(&self) -> Vec<MappedSection> {
        let sections = self.graph.sections.iter().enumerate();
        let placed = sections
            .zip(&self.placed.laid.homes.sections)
            .filter_map(|(s, home)| {
                let ((index, section), home) = (s, (*home)?);
                let first = self.graph.objects[section.object as usize].first_section;
                Some(MappedSection {
                    object: section.object,
                    section: index as u32 - first,
                    name: section.name.into(),
                    address: self.placed.address(home),
                    size: if section.class == Class::EhFrame {
                        0
                    } else {
                        section.size
                    },
                })
            });
        placed.collect()
    }
}
