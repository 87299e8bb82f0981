//! Turns a [`Graph`] into [`Laid`]: every live section gets a segment and an offset in it.
//!
//! | segment | contents, in this order |
//! |---|---|
//! | code | text, PLT; with `merge_read_only` also all of read-only and the GOT |
//! | read-only | constants, relocated constants, arrays of constructors, `.eh_frame` |
//! | read-write | GOT, ifunc words, data; then the zero-filled tail: `.bss`, common |
//! | thread-local template | `.tdata`; then the zero-filled tail: `.tbss`, thread-local common |
//!
//! Constants that lie apart (`apart.rs`) are in no segment.
//!
//! Within one row sections keep the order of objects and of sections in them; those bounded by
//! `__start_` and `__stop_` symbols come last, side by side. The zero-filled tails exist as numbers
//! only, never as bytes.

use object::LittleEndian;

use crate::apart::{self, Constant};
use crate::error::LinkError;
use crate::got::{self, Hint, PLT_ENTRY, Plan};
use crate::graph::Graph;
use crate::relocation;
use crate::section::{Class, Section, SectionId};
use crate::segment::{Home, Region, Segment, SegmentShape, TlsShape};
use crate::symbol::{Kind, Origin, SymbolId};

/// Options of the layout.
#[derive(Debug, Clone, Copy)]
pub struct LayoutOptions {
    /// Constants, unwind records, exception tables and the GOT go into the code segment: one
    /// allocation that is moved and freed as a whole. Only writable data and the words of ifuncs
    /// stay outside of it.
    pub merge_read_only: bool,
    /// All segments will lie within 2 GiB of each other, so that no GOT words
    /// are needed between them. Otherwise words are planned.
    pub segments_near: bool,
    /// Limit of the bytes with content in each segment: an object of a few
    /// kilobytes can ask for many gigabytes of alignment.
    pub max_size: u64,
    /// Fill in [`crate::Linked::map`].
    pub map: bool,
    /// Constants in sections whose names begin with this lie apart from the image: see
    /// [`Laid::constants`].
    pub apart: Option<&'static str>,
}

impl Default for LayoutOptions {
    fn default() -> Self {
        LayoutOptions {
            merge_read_only: false,
            segments_near: true,
            max_size: 1 << 30,
            map: false,
            apart: None,
        }
    }
}

/// The homes of everything that is placed.
#[derive(Debug)]
pub(crate) struct Homes {
    /// By section.
    pub(crate) sections: Vec<Option<Home>>,
    /// By unwind record: offset in the image's table.
    pub(crate) records: Vec<Option<u64>>,
    /// By bounded run: start and size.
    pub(crate) bounds: Vec<(Home, u64)>,
    /// Sorted by symbol.
    pub(crate) commons: Vec<(SymbolId, Home)>,
    pub(crate) eh_frame: Home,
    /// Size with the word that ends the table; zero if there are no records.
    pub(crate) eh_frame_size: u64,
    pub(crate) plt: Home,
    pub(crate) got: Home,
    pub(crate) ifunc_words: Home,
    /// End of text and PLT in the code segment.
    pub(crate) text_end: u64,
}

/// An image whose segments have sizes, and no addresses yet.
#[derive(Debug)]
pub struct Laid<'d> {
    pub(crate) graph: Graph<'d>,
    pub(crate) plan: Plan,
    pub(crate) homes: Homes,
    pub(crate) code: Cursor,
    pub(crate) read_only: Cursor,
    pub(crate) read_write: Cursor,
    pub(crate) template: Cursor,
    pub(crate) map: bool,
    pub(crate) apart: Vec<Constant<'d>>,
}

impl<'d> Graph<'d> {
    /// Lays the image out.
    ///
    /// # Errors
    ///
    /// A relocation of unknown type or outside of its section; a segment
    /// larger than the options allow.
    pub fn layout(self, options: &LayoutOptions) -> Result<Laid<'d>, LinkError> {
        self.layout_with(options, |_| Hint::Unknown)
    }

    /// Like [`Graph::layout`], with a `hint` about each external symbol, to leave out GOT words and
    /// PLT entries that will not be needed.
    ///
    /// # Errors
    ///
    /// Like [`Graph::layout`].
    pub fn layout_with(
        self,
        options: &LayoutOptions,
        mut hint: impl FnMut(&str) -> Hint,
    ) -> Result<Laid<'d>, LinkError> {
        let live = self.live_records();
        let plan = got::plan(&self, &live, options.segments_near, &mut hint)?;
        let apart = match options.apart {
            Some(prefix) => apart::find(&self, prefix, &plan)?,
            None => Vec::new(),
        };
        Layouter::new(&self, options).run(&plan, &live).map(
            |(homes, [code, read_only, read_write, template])| Laid {
                graph: self,
                plan,
                homes,
                code,
                read_only,
                read_write,
                template,
                map: options.map,
                apart,
            },
        )
    }
}

impl<'d> Laid<'d> {
    /// The room that a segment needs.
    pub fn segment(&self, segment: Segment) -> SegmentShape {
        match segment {
            Segment::Code => self.code.shape(),
            Segment::ReadOnly => self.read_only.shape(),
            Segment::ReadWrite => self.read_write.shape(),
        }
    }

    /// The room that thread-locals need, if the image has any.
    pub fn tls(&self) -> Option<TlsShape> {
        let shape = self.template.shape();
        let size = shape.size + shape.zero_fill;
        (size != 0).then_some(TlsShape {
            size,
            align: shape.align,
            file_size: shape.size,
        })
    }

    /// The constants that lie apart from the image, each after those it refers to.
    pub fn constants(&self) -> &[Constant<'d>] {
        &self.apart
    }

    /// The constants in the code segment: the names of their sections. The flag tells whether a
    /// section holds only addresses in the segment's text, or distances to it.
    pub fn constants_inside(&self) -> impl Iterator<Item = (&'d str, bool)> + '_ {
        let sections = self.graph.sections.iter().zip(&self.homes.sections);
        sections.filter_map(|(section, home)| {
            let constant = matches!(section.class, Class::ReadOnly | Class::RelRo);
            let inside = home.is_some_and(|home| home.region == Region::Code);
            (constant && inside).then(|| (section.name, self.is_table(section)))
        })
    }

    fn is_table(&self, section: &Section<'_>) -> bool {
        let mut covered = 0;
        for relocation in section.relocations {
            let kind = relocation.r_type(LittleEndian, false).0;
            let width = relocation::rule(kind).map_or(0, |rule| rule.width as u64);
            let target = self.graph.target(section.object, relocation);
            let origin = target.map(|id| self.graph.symbols[id.index()].origin);
            match origin {
                Ok(Origin::Section(id)) if self.graph.sections[id.index()].class == Class::Text => {
                    covered += width;
                }
                _ => return false,
            }
        }
        covered == section.size
    }

    /// The number of the constant made from a section.
    pub(crate) fn number_of(&self, id: SectionId) -> Option<usize> {
        self.apart.iter().position(|other| other.is_of(id))
    }

    /// The bytes of `constant` at the address `at`, with its references going to `targets`: the
    /// addresses of its referents, in order. The entry of a reference to the constant itself is
    /// ignored.
    ///
    /// # Errors
    ///
    /// A value that does not fit into its field.
    pub fn fill(
        &self,
        constant: &Constant<'d>,
        at: u64,
        targets: &[u64],
    ) -> Result<Vec<u8>, LinkError> {
        constant.fill(&self.graph, at, targets)
    }
}

/// The end of a segment under construction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    name: Segment,
    region: Region,
    limit: u64,
    pub(crate) end: u64,
    /// End of the bytes with content, once that is known.
    pub(crate) content: Option<u64>,
    pub(crate) align: u64,
}

/// Upper bound of an image's size, zeros included: the address space has 47 bits.
const MAX_TOTAL: u64 = 1 << 46;

impl Cursor {
    fn new(region: Region, limit: u64) -> Cursor {
        let name = match region {
            Region::Code => Segment::Code,
            Region::ReadOnly => Segment::ReadOnly,
            Region::ReadWrite | Region::Tls => Segment::ReadWrite,
        };
        Cursor {
            name,
            region,
            limit: limit.min(MAX_TOTAL),
            end: 0,
            content: None,
            align: 1,
        }
    }

    fn put(&mut self, size: u64, align: u64) -> Result<Home, LinkError> {
        self.align = self.align.max(align);
        let aligned = self.end.checked_next_multiple_of(align);
        let end = aligned.and_then(|start| Some((start, start.checked_add(size)?)));
        match end {
            Some((start, end)) if end <= self.limit => {
                self.end = end;
                Ok(Home {
                    region: self.region,
                    offset: start,
                })
            }
            _ => Err(LinkError::TooLarge {
                segment: self.name,
                limit: self.limit,
            }),
        }
    }

    /// Ends the bytes with content: from here on all are zeros.
    fn begin_zeros(&mut self) {
        self.content = Some(self.end);
        self.limit = MAX_TOTAL;
    }

    fn shape(&self) -> SegmentShape {
        let size = self.content.unwrap_or(self.end);
        SegmentShape {
            size: size as usize,
            zero_fill: (self.end - size) as usize,
            align: self.align as usize,
        }
    }
}

struct Layouter<'g, 'd> {
    graph: &'g Graph<'d>,
    options: LayoutOptions,
    sections: Vec<Option<Home>>,
    bounds: Vec<(Home, u64)>,
}

impl<'g, 'd> Layouter<'g, 'd> {
    fn new(graph: &'g Graph<'d>, options: &LayoutOptions) -> Self {
        let nowhere = (
            Home {
                region: Region::ReadWrite,
                offset: 0,
            },
            0,
        );
        Layouter {
            graph,
            options: *options,
            sections: vec![None; graph.sections.len()],
            bounds: vec![nowhere; graph.bounds.len()],
        }
    }

    fn run(mut self, plan: &Plan, live: &[bool]) -> Result<(Homes, [Cursor; 4]), LinkError> {
        let limit = self.options.max_size;
        let mut code = Cursor::new(Region::Code, limit);
        self.class(&mut code, |class| class == Class::Text)?;
        let plt = code.put(
            u64::from(plan.plt_entries) * PLT_ENTRY,
            table_align(plan.plt_entries),
        )?;
        let text_end = code.end;

        let merge = self.options.merge_read_only;
        let mut constants = if merge {
            code
        } else {
            Cursor::new(Region::ReadOnly, limit)
        };
        self.class(&mut constants, |class| class == Class::ReadOnly)?;
        self.class(&mut constants, |class| class == Class::RelRo)?;
        self.class(&mut constants, |class| matches!(class, Class::Array { .. }))?;
        let (records, eh_frame, eh_frame_size) = self.records(&mut constants, live)?;
        let mut read_write = Cursor::new(Region::ReadWrite, limit);
        let got_size = u64::from(plan.words) * 8;
        let cursor = if merge {
            &mut constants
        } else {
            &mut read_write
        };
        let got = cursor.put(got_size, table_align(plan.words))?;
        let mut read_only = Cursor::new(Region::ReadOnly, limit);
        if merge {
            code = constants;
        } else {
            read_only = constants;
        }

        let ifunc_words = read_write.put(
            u64::from(plan.ifunc_words) * 8,
            table_align(plan.ifunc_words),
        )?;
        self.class(&mut read_write, |class| class == Class::Data)?;
        read_write.begin_zeros();
        self.class(&mut read_write, |class| class == Class::ZeroFill)?;
        let mut commons = self.commons(&mut read_write, |kind| kind != Kind::Tls)?;

        let mut template = Cursor::new(Region::Tls, limit);
        self.class(&mut template, |class| class == Class::TlsData)?;
        template.begin_zeros();
        self.class(&mut template, |class| class == Class::TlsZeroFill)?;
        commons.extend(self.commons(&mut template, |kind| kind == Kind::Tls)?);
        commons.sort_unstable_by_key(|(symbol, _)| *symbol);

        let homes = Homes {
            sections: self.sections,
            records,
            bounds: self.bounds,
            commons,
            eh_frame,
            eh_frame_size,
            plt,
            got,
            ifunc_words,
            text_end,
        };
        Ok((homes, [code, read_only, read_write, template]))
    }

    /// Places the live sections of one class.
    fn class(
        &mut self,
        cursor: &mut Cursor,
        is_meant: impl Fn(Class) -> bool,
    ) -> Result<(), LinkError> {
        let graph = self.graph;
        for (index, section) in graph.sections.iter().enumerate() {
            let apart = self.options.apart;
            let apart = apart.is_some_and(|prefix| apart::is_apart(section, prefix));
            let meant = is_meant(section.class) && section.is_placed() && !apart;
            if meant && (graph.bounds.is_empty() || !section.is_bounded()) {
                self.sections[index] = Some(cursor.put(section.size, section.align)?);
            }
        }
        for (index, bound) in graph.bounds.iter().enumerate() {
            if !is_meant(bound.class) {
                continue;
            }
            let mut start = None;
            for &member in &bound.members {
                let section = &graph.sections[member.index()];
                if section.is_placed() {
                    let home = cursor.put(section.size, section.align)?;
                    self.sections[member.index()] = Some(home);
                    start.get_or_insert(home);
                }
            }
            let start = start.unwrap_or(Home {
                region: cursor.region,
                offset: cursor.end,
            });
            self.bounds[index] = (start, cursor.end - start.offset);
        }
        Ok(())
    }

    /// Places the live unwind records one after the other, and the end of the table.
    fn records(
        &mut self,
        cursor: &mut Cursor,
        live: &[bool],
    ) -> Result<(Vec<Option<u64>>, Home, u64), LinkError> {
        let mut size = 0u64;
        let mut records = Vec::with_capacity(live.len());
        for (record, live) in self.graph.records.iter().zip(live) {
            records.push(live.then_some(size));
            if *live {
                size = size.saturating_add(record.size);
            }
        }
        if size == 0 {
            return Ok((
                records,
                Home {
                    region: cursor.region,
                    offset: cursor.end,
                },
                0,
            ));
        }
        size = size.saturating_add(4);
        let home = cursor.put(size, 8)?;
        for (index, section) in self.graph.sections.iter().enumerate() {
            if section.class == Class::EhFrame {
                self.sections[index] = Some(home);
            }
        }
        Ok((records, home, size))
    }

    fn commons(
        &self,
        cursor: &mut Cursor,
        is_meant: impl Fn(Kind) -> bool,
    ) -> Result<Vec<(SymbolId, Home)>, LinkError> {
        let mut homes = Vec::new();
        for (index, symbol) in self.graph.symbols.iter().enumerate() {
            let own = symbol.origin == Origin::Common && symbol.canonical.index() == index;
            if own && is_meant(symbol.kind) {
                homes.push((
                    symbol.canonical,
                    cursor.put(symbol.size, symbol.value.max(1))?,
                ));
            }
        }
        Ok(homes)
    }
}

/// Alignment of a table of 8-byte entries; an empty one needs none.
fn table_align(count: u32) -> u64 {
    if count == 0 { 1 } else { 8 }
}
