//! Computes the value of one field: letters of `relocation.rs` to numbers, numbers to bytes.

use object::LittleEndian;

use crate::error::Problem;
use crate::graph::Graph;
use crate::linear::Linear;
use crate::placed::Placed;
use crate::record::{Effect, Leak};
use crate::relax::{self, AccessForm};
use crate::relocation::{self, Expression, Rule};
use crate::section::{Class, Rela, Section};
use crate::segment::Region;
use crate::symbol::{Bind, Kind, Origin, Resolved, Symbol, SymbolId};

/// The field of one relocation.
pub(crate) struct Field<'b> {
    /// The section's or record's bytes.
    pub(crate) bytes: &'b mut [u8],
    /// Start of the field in the bytes.
    pub(crate) at: usize,
    /// `P`, unless the field is in the thread-local template.
    pub(crate) place: Option<Linear>,
    pub(crate) addend: i64,
}

impl Field<'_> {
    fn place(&self) -> Result<Linear, Problem> {
        self.place.ok_or(Problem::RelativeInTemplate)
    }

    /// Stores `value` if it fits into the field.
    fn put(&mut self, rule: &Rule, value: Linear) -> Result<Effect, Problem> {
        let Linear { value, slope } = value;
        if !rule.takes(value) {
            let bits = 8 * rule.width as u32;
            return Err(Problem::OutOfRange {
                value: value as i64,
                bits,
            });
        }
        let field = self
            .bytes
            .get_mut(self.at..)
            .and_then(|rest| rest.get_mut(..rule.width));
        let field = field.ok_or(Problem::OutsideSection)?;
        field.copy_from_slice(&value.to_le_bytes()[..rule.width]);
        Ok(Effect::plain(self.at, rule, slope))
    }
}

/// The place of a thread-local variable, as far as it is known.
pub(crate) struct ThreadLocal {
    pub(crate) pair: Result<(u64, u64), Problem>,
    pub(crate) thread_offset: Result<i64, Problem>,
}

/// A placed image and the addresses of its externals: everything that a field's value depends on.
pub(crate) struct Fixer<'p, 'd> {
    pub(crate) placed: &'p Placed<'d>,
    pub(crate) graph: &'p Graph<'d>,
    /// By plan entry.
    pub(crate) externals: Vec<Option<Resolved>>,
}

impl Fixer<'_, '_> {
    /// Fills one field; `None` if the relocation does nothing.
    pub(crate) fn apply(
        &self,
        section: &Section<'_>,
        relocation: &Rela,
        field: &mut Field<'_>,
    ) -> Result<Option<Effect>, Problem> {
        let kind = relocation.r_type(LittleEndian, false).0;
        let rule = relocation::rule(kind).ok_or(Problem::UnknownType(kind))?;
        let mut symbol = self.graph.target(section.object, relocation)?;
        if section.class == Class::EhFrame {
            // A record describes the code here, even if its name is preempted.
            symbol = self.graph.own_definition(symbol);
        }
        let result = match rule.expression {
            Expression::Nothing => return Ok(None),
            Expression::RelaxableWord => self.relaxable(rule, section, symbol, field),
            Expression::Descriptor => {
                let offset = self.thread_local(symbol)?.thread_offset? as u64;
                // The addend is the -4 of the displacement; a plain number has none.
                let value = offset.wrapping_add(field.addend as u64).wrapping_add(4);
                if !rule.takes(value) {
                    return Err(Problem::OutOfRange {
                        value: value as i64,
                        bits: 32,
                    });
                }
                relax::descriptor(field.bytes, field.at, value)
                    .map(|()| Effect::plain(field.at, rule, 0).rewriting(3))
            }
            Expression::DescriptorCall => {
                // Without an offset the `lea` before it has failed already.
                self.thread_local(symbol)?.thread_offset?;
                let call = Effect::plain(field.at, rule, 0);
                relax::descriptor_call(field.bytes, field.at).map(|()| Effect {
                    end: field.at + 2,
                    ..call
                })
            }
            Expression::Module => {
                let module = self.thread_local(symbol)?.pair?.0;
                field.put(rule, Linear::fixed(module))
            }
            _ => {
                let value = self.value(rule, section, symbol, field);
                value.and_then(|value| field.put(rule, value.plus(field.addend as u64)))
            }
        };
        match result {
            Err(Problem::Discarded) if may_dangle(section) => Ok(None),
            Err(problem) => Err(problem),
            Ok(effect) => Ok(Some(Effect {
                leak: self.leak(rule, section, symbol, field),
                escapes: self.escapes(rule, section, symbol, field),
                ..effect
            })),
        }
    }

    /// Whether the program can get an address in the image's own code from the field. It cannot
    /// from branches, unwind records and relative jump tables. A relative table of functions is
    /// detected by its `PLT32`.
    fn leak(
        &self,
        rule: &Rule,
        section: &Section<'_>,
        symbol: SymbolId,
        field: &Field<'_>,
    ) -> Option<Leak> {
        let here = &self.graph.symbols[symbol.index()];
        let Origin::Section(target) = here.origin else {
            return None;
        };
        let text = self.graph.sections[target.index()].class == Class::Text;
        if !text || section.class == Class::EhFrame || may_dangle(section) {
            return None;
        }
        let code = section.class == Class::Text;
        let (gives, bias) = match rule.expression {
            Expression::Absolute | Expression::FromGot => (true, 0),
            Expression::Relative => (code && !relax::is_branch(section.data, field.at), 4),
            Expression::Branch => (!code, 0),
            Expression::Word | Expression::WordFromGot => (true, 4),
            Expression::RelaxableWord => {
                let form = relax::form(section.data, field.at, field.addend);
                (
                    !code || matches!(form, AccessForm::Load | AccessForm::Other),
                    4,
                )
            }
            _ => (false, 0),
        };
        if !gives {
            return None;
        }
        let offset = here.value.wrapping_add(field.addend as u64);
        let offset = offset.wrapping_add(bias);
        let starts = |s: &Symbol<'_>| {
            s.origin == here.origin && s.kind == Kind::Function && s.value == offset
        };
        let function = offset == 0 || self.graph.symbols.iter().any(starts);
        Some(if function {
            Leak::Function
        } else {
            Leak::Label
        })
    }

    /// Whether the program can get an address of the image's own from the field: of code, as
    /// [`Fixer::leak`] tells, or of data, by `lea` or as a number. Operands of loads and stores do
    /// not count.
    fn escapes(
        &self,
        rule: &Rule,
        section: &Section<'_>,
        symbol: SymbolId,
        field: &Field<'_>,
    ) -> bool {
        let text = match self.graph.symbols[symbol.index()].origin {
            Origin::Section(id) => self.graph.sections[id.index()].class == Class::Text,
            Origin::Undefined | Origin::Absolute => return false,
            _ => false,
        };
        if section.class == Class::EhFrame || may_dangle(section) {
            return false;
        }
        let code = section.class == Class::Text;
        match rule.expression {
            Expression::Absolute
            | Expression::FromGot
            | Expression::BranchFromGot
            | Expression::Got
            | Expression::Word
            | Expression::WordFromGot => true,
            Expression::RelaxableWord => {
                let form = relax::form(section.data, field.at, field.addend);
                !code || matches!(form, AccessForm::Load | AccessForm::Other)
            }
            // Jump tables hold distances to labels.
            Expression::Relative if !code => !text,
            Expression::Relative => relax::is_address(section.data, field.at),
            Expression::Branch => !code,
            _ => false,
        }
    }

    /// The expression of the rule, without `+ A`.
    fn value(
        &self,
        rule: &Rule,
        section: &Section<'_>,
        symbol: SymbolId,
        field: &Field<'_>,
    ) -> Result<Linear, Problem> {
        let got = self.placed.linear(self.placed.laid.homes.got);
        let entry = self.placed.laid.plan.entry(symbol);
        Ok(match rule.expression {
            Expression::Absolute => self.address(symbol)?,
            Expression::Relative | Expression::Branch => {
                self.distance(rule, section, symbol, field)?
            }
            Expression::Word => {
                self.address(symbol)?;
                self.word(entry.and_then(|e| e.word))?.minus(field.place()?)
            }
            Expression::WordFromGot => {
                self.address(symbol)?;
                self.word(entry.and_then(|e| e.word))?.minus(got)
            }
            Expression::Got => got.minus(field.place()?),
            Expression::FromGot | Expression::BranchFromGot => self.address(symbol)?.minus(got),
            Expression::Size => Linear::fixed(self.graph.symbols[symbol.index()].size),
            Expression::ModuleOffset
            | Expression::ThreadOffset
            | Expression::ModuleAndOffsetWords
            | Expression::ModuleWords
            | Expression::ThreadOffsetWord => self.thread_local_value(rule, symbol, field)?,
            Expression::Nothing
            | Expression::RelaxableWord
            | Expression::Descriptor
            | Expression::DescriptorCall
            | Expression::Module
            | Expression::DynamicOnly => return Err(Problem::DynamicOnly),
        })
    }

    /// The GOT word of that number.
    fn word(&self, number: Option<u32>) -> Result<Linear, Problem> {
        number
            .map(|number| self.placed.got_word(number))
            .ok_or(Problem::NotPlanned)
    }

    /// The distance from the place to the symbol, or to its PLT entry if the symbol is out of reach
    /// and the entry can replace it.
    fn distance(
        &self,
        rule: &Rule,
        section: &Section<'_>,
        symbol: SymbolId,
        field: &Field<'_>,
    ) -> Result<Linear, Problem> {
        let (place, target) = (field.place()?, self.address(symbol)?);
        let direct = target.minus(place);
        if rule.takes(direct.plus(field.addend as u64).value) {
            return Ok(direct);
        }
        // The entry stands for the start of the function only. In tables the addend is the offset
        // of the field from the base of the distance.
        let function = || self.external(symbol).is_some_and(|it| it.function);
        let whole = match section.class {
            _ if rule.expression == Expression::Branch => true,
            Class::Text => {
                let branch = || relax::is_branch(section.data, field.at);
                field.addend == -4 && (branch() || function())
            }
            Class::EhFrame => field.addend == 0,
            _ => function(),
        };
        let plt = if whole {
            self.placed.plt_entry(symbol)
        } else {
            None
        };
        Ok(plt.map_or(direct, |entry| entry.minus(place)))
    }

    /// Like [`Self::value`], for the expressions of thread-locals.
    fn thread_local_value(
        &self,
        rule: &Rule,
        symbol: SymbolId,
        field: &Field<'_>,
    ) -> Result<Linear, Problem> {
        let plan = &self.placed.laid.plan;
        let entry = plan.entry(symbol);
        Ok(match rule.expression {
            Expression::ModuleOffset => Linear::fixed(self.thread_local(symbol)?.pair?.1),
            Expression::ThreadOffset => {
                Linear::fixed(self.thread_local(symbol)?.thread_offset? as u64)
            }
            Expression::ModuleAndOffsetWords => {
                self.thread_local(symbol)?.pair?;
                self.word(entry.and_then(|e| e.pair))?.minus(field.place()?)
            }
            Expression::ModuleWords => {
                self.placed.at.tls.ok_or(Problem::NoTlsPlace)?;
                self.word(plan.module_pair)?.minus(field.place()?)
            }
            Expression::ThreadOffsetWord => {
                self.thread_local(symbol)?.thread_offset?;
                self.word(entry.and_then(|e| e.thread_offset))?
                    .minus(field.place()?)
            }
            _ => return Err(Problem::DynamicOnly),
        })
    }

    /// Fills an access through the GOT whose instruction may not need the word.
    fn relaxable(
        &self,
        rule: &Rule,
        section: &Section<'_>,
        symbol: SymbolId,
        field: &mut Field<'_>,
    ) -> Result<Effect, Problem> {
        let place = field.place()?;
        let address = self.address(symbol)?;
        let plan = &self.placed.laid.plan;
        let entry = plan.entry(symbol);
        let word = entry
            .and_then(|e| e.word)
            .map(|number| self.placed.got_word(number));
        let ifunc = entry
            .and_then(|e| e.ifunc)
            .map(|number| self.placed.ifunc_word(number));
        let form = match section.class {
            Class::Text => relax::form(section.data, field.at, field.addend),
            _ => AccessForm::Other,
        };
        let here = &self.graph.symbols[symbol.index()];
        let external = here.origin == Origin::Undefined;
        let absent = external && self.external(symbol).is_none();
        let fixed = here.origin == Origin::Absolute || absent;
        let Linear {
            value: distance,
            slope,
        } = address.minus(place);
        // The shortest reach of all forms: S-P-4 and S-P-3 both fit.
        let reachable = !fixed
            && ifunc.is_none()
            && rule.takes(distance.wrapping_sub(4))
            && rule.takes(distance.wrapping_sub(3));
        let through = |word: Linear| word.plus(field.addend as u64).minus(place);
        let direct = Effect::plain(field.at, rule, slope).rewriting(2);
        match form {
            AccessForm::Call | AccessForm::Jump => {
                let slot = self.external(symbol).and_then(|resolved| resolved.slot);
                if let Some(slot) = slot.map(|slot| Linear::fixed(slot.0)).or(ifunc)
                    && rule.takes(through(slot).value)
                {
                    return field.put(rule, through(slot));
                }
                // Calls of an external with a planned word stay indirect, although the word never
                // changes: so they keep one length of path.
                if reachable && (!external || word.is_none()) {
                    if form == AccessForm::Jump {
                        relax::direct_jump(field.bytes, field.at, distance);
                        return Ok(Effect {
                            at: field.at - 1,
                            ..direct
                        });
                    }
                    let padded = here.name == "__tls_get_addr";
                    let before = relax::direct_call(field.bytes, field.at, distance, padded);
                    return Ok(direct.rewriting(before));
                }
            }
            AccessForm::Load if reachable => {
                relax::address(field.bytes, field.at, distance);
                return Ok(direct);
            }
            AccessForm::Load | AccessForm::Other => {}
        }
        field.put(rule, through(word.ok_or(Problem::NotPlanned)?))
    }

    fn external(&self, symbol: SymbolId) -> Option<Resolved> {
        self.placed
            .laid
            .plan
            .index(symbol)
            .and_then(|index| self.externals[index])
    }

    /// `S`: the address to which references to the symbol go.
    pub(crate) fn address(&self, symbol: SymbolId) -> Result<Linear, Problem> {
        let placed = self.placed;
        let here = &self.graph.symbols[symbol.index()];
        match here.origin {
            Origin::Undefined if here.bind == Bind::Local => Ok(Linear::fixed(0)),
            Origin::Undefined => match self.external(symbol) {
                Some(Resolved {
                    address: 0,
                    tls: Some(_),
                    ..
                }) => Err(Problem::ThreadLocal),
                Some(resolved) => Ok(Linear::fixed(resolved.address)),
                None => Ok(Linear::fixed(0)),
            },
            Origin::Absolute => Ok(Linear::fixed(here.value)),
            Origin::Common if here.kind == Kind::Tls => Err(Problem::ThreadLocal),
            Origin::Common => placed.common(symbol).ok_or(Problem::Discarded),
            Origin::GotBase => Ok(placed.linear(placed.laid.homes.got)),
            Origin::TemplateBase => Err(Problem::ThreadLocal),
            Origin::Bound { bound, end } => {
                let (home, size) = placed.laid.homes.bounds[bound as usize];
                Ok(placed.linear(home).plus(if end { size } else { 0 }))
            }
            Origin::Section(_) if here.kind == Kind::Ifunc => {
                placed.plt_entry(symbol).ok_or(Problem::Discarded)
            }
            Origin::Section(id) => match placed.laid.homes.sections[id.index()] {
                Some(home) if home.region == Region::Tls => Err(Problem::ThreadLocal),
                Some(home) => Ok(placed.linear(home).plus(here.value)),
                None => {
                    let start = placed.constant(id).ok_or(Problem::Discarded)?;
                    Ok(Linear::fixed(start).plus(here.value))
                }
            },
        }
    }

    /// `M`, `D` and `T` of the symbol.
    pub(crate) fn thread_local(&self, symbol: SymbolId) -> Result<ThreadLocal, Problem> {
        let here = &self.graph.symbols[symbol.index()];
        match here.origin {
            Origin::Section(id) => {
                let home = self.placed.laid.homes.sections[id.index()].ok_or(Problem::Discarded)?;
                if home.region != Region::Tls {
                    return Err(Problem::NotThreadLocal);
                }
                Ok(self.own_thread_local(home.offset.wrapping_add(here.value)))
            }
            Origin::Common if here.kind == Kind::Tls => {
                let offset = self.placed.common(symbol).ok_or(Problem::Discarded)?;
                Ok(self.own_thread_local(offset.value))
            }
            Origin::TemplateBase => Ok(self.own_thread_local(0)),
            Origin::Undefined if here.bind != Bind::Local => Ok(match self.external(symbol) {
                None => ThreadLocal {
                    pair: Ok((0, 0)),
                    thread_offset: Ok(0),
                },
                Some(resolved) => ThreadLocal {
                    pair: resolved.tls.ok_or(Problem::NotThreadLocal),
                    thread_offset: resolved.static_tls.ok_or(match resolved.tls {
                        Some(_) => Problem::NoStaticOffset,
                        None => Problem::NotThreadLocal,
                    }),
                },
            }),
            _ => Err(Problem::NotThreadLocal),
        }
    }

    /// The thread-local variable at `offset` in the image's template.
    fn own_thread_local(&self, offset: u64) -> ThreadLocal {
        let tls = self.placed.at.tls.ok_or(Problem::NoTlsPlace);
        let start = tls.and_then(|tls| tls.static_offset.ok_or(Problem::NoStaticOffset));
        ThreadLocal {
            pair: tls.map(|tls| (tls.module, offset)),
            thread_offset: start.map(|start| start.wrapping_add(offset as i64)),
        }
    }
}

/// Whether references of the section to discarded code are expected: an exception table shared by
/// all functions of an object may refer to functions that lost to another object's.
fn may_dangle(section: &Section<'_>) -> bool {
    section.name.starts_with(".gcc_except_table")
}
