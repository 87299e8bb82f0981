//! Parses the text that [`super::write`] writes.
//!
//! The parser accepts more than is written: values and blocks may have any names, numbers may
//! be negative, undeclared symbols are [`Reach::Indirect`], and `;` begins a comment. Values are
//! numbered in the order of the text.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::names::Named;
use super::tokens::{Token, tokens};
use super::{
    Argument, Block, BlockData, Extension, Function, Instruction, Line, NO_LINE, Operand, Operands,
    Parameter, Passing, Reach, Returned, Symbol, SymbolData, Type, Value,
};

/// Error of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// The reason: a constant text.
    pub what: &'static str,
}

pub(super) type Parsed<T> = Result<T, &'static str>;

/// Parses a function.
///
/// # Errors
/// The first line that cannot be parsed. The function is not checked ([`super::check`]).
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let all = tokens(line).ok_or(ParseError {
            line: line_number,
            what: "a character that fits nowhere",
        })?;
        if !all.is_empty() {
            lines.push((line_number, all));
        }
    }
    let mut names = Names::default();
    let mut function = Function::default();
    for (line, tokens) in &lines {
        let line = *line;
        collect(tokens, &mut names).map_err(|what| ParseError { line, what })?;
    }
    for (line, tokens) in lines {
        let mut reader = LineReader {
            tokens: &tokens,
            at: 0,
            names: &names,
            function: &mut function,
        };
        let read = reader.line().and_then(|()| match reader.peek() {
            None => Ok(()),
            Some(_) => Err("more than an instruction has"),
        });
        read.map_err(|what| ParseError { line, what })?;
    }
    Ok(function)
}

/// Numbers of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    values: HashMap<String, Value>,
    blocks: HashMap<String, Block>,
}

impl Names {
    fn value(&mut self, name: &str) -> Parsed<()> {
        let number = Value(self.values.len() as u32);
        match self.values.insert(name.to_string(), number) {
            None => Ok(()),
            Some(_) => Err("a name that another value has"),
        }
    }

    fn block(&mut self, name: &str) -> Parsed<()> {
        let number = Block(self.blocks.len() as u32);
        match self.blocks.insert(name.to_string(), number) {
            None => Ok(()),
            Some(_) => Err("a name that another block has"),
        }
    }
}

/// Numbers parameters, results and blocks of a line in advance, as uses may come first.
fn collect(tokens: &[Token], names: &mut Names) -> Parsed<()> {
    let values: &[Token] = match tokens {
        [Token::Word(word), Token::Mark(':')] => return names.block(word),
        [Token::Word(word), rest @ ..] if word == "function" => rest,
        [Token::Value(_), ..] => {
            let end = tokens.iter().position(|token| *token == Token::Mark('='));
            &tokens[..end.unwrap_or(0)]
        }
        _ => &[],
    };
    for token in values {
        if let Token::Value(name) = token {
            names.value(name)?;
        }
    }
    Ok(())
}

/// The parser of one line.
pub(super) struct LineReader<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
    pub(super) names: &'a Names,
    pub(super) function: &'a mut Function,
}

impl LineReader<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn next(&mut self) -> Parsed<Token> {
        let token = self.tokens.get(self.at).ok_or("the line ends too early")?;
        self.at += 1;
        Ok(token.clone())
    }

    /// Consumes the mark, if it is next.
    pub(super) fn mark(&mut self, mark: char) -> bool {
        let is = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(is);
        is
    }

    pub(super) fn need(&mut self, mark: char, what: &'static str) -> Parsed<()> {
        self.mark(mark).then_some(()).ok_or(what)
    }

    /// Consumes the word, if it is next.
    pub(super) fn is(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Word(next)) if next == word);
        self.at += usize::from(is);
        is
    }

    pub(super) fn word(&mut self) -> Parsed<String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            _ => Err("a word is missing"),
        }
    }

    /// Consumes a word of a table, if it is next.
    pub(super) fn named<T: Named>(&mut self) -> Option<T> {
        let Some(Token::Word(word)) = self.peek() else {
            return None;
        };
        let found = T::of_word(word)?;
        self.at += 1;
        Some(found)
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self) -> Parsed<T> {
        match self.next()? {
            Token::Number(number) => T::try_from(number).map_err(|_| "a number out of range"),
            _ => Err("a number is missing"),
        }
    }

    pub(super) fn ty(&mut self) -> Parsed<Type> {
        type_of_word(&self.word()?).ok_or("no type")
    }

    pub(super) fn block(&mut self) -> Parsed<Block> {
        let word = self.word()?;
        self.names.blocks.get(&word).copied().ok_or("no such block")
    }

    pub(super) fn symbol(&mut self) -> Parsed<Symbol> {
        match self.next()? {
            Token::Symbol(name, 0) => Ok(self.symbol_of(&name)),
            _ => Err("a symbol is missing"),
        }
    }

    fn symbol_of(&mut self, name: &str) -> Symbol {
        let symbols = &mut self.function.symbols;
        let known = symbols.iter().position(|one| &*one.name == name);
        let index = known.unwrap_or_else(|| {
            symbols.push(SymbolData {
                name: name.into(),
                reach: Reach::Indirect,
                is_weak: false,
            });
            symbols.len() - 1
        });
        Symbol(index as u32)
    }

    /// An operand of a type: constants are truncated to it.
    pub(super) fn operand(&mut self, ty: Type) -> Parsed<Operand> {
        Ok(match self.next()? {
            Token::Value(name) => {
                let value = self.names.values.get(&name);
                Operand::Value(*value.ok_or("no such value")?)
            }
            Token::Number(number) => {
                let mask = match ty {
                    Type::Int(bits) if bits < 64 => (1u64 << bits) - 1,
                    _ => u64::MAX,
                };
                Operand::Int(number as u64 & mask)
            }
            Token::Float(bits) => Operand::Float(bits),
            Token::Wide(index) => Operand::Wide(index),
            Token::Symbol(name, offset) => Operand::Address(self.symbol_of(&name), offset),
            Token::Label(name) => {
                let block = self.names.blocks.get(&name);
                Operand::Label(*block.ok_or("no such block")?)
            }
            Token::Word(word) if word == "undef" => Operand::Undef,
            _ => return Err("an operand is missing"),
        })
    }

    /// Operands with commas between them, to the line's end or a mark or word.
    pub(super) fn operands(&mut self, ty: Type) -> Parsed<Operands> {
        let mut all = Operands::new();
        let ends = |token: Option<&Token>| match token {
            None | Some(Token::Mark(_) | Token::Line(_)) => true,
            Some(Token::Word(word)) => word != "undef",
            Some(_) => false,
        };
        while !ends(self.peek()) {
            all.push(self.operand(ty)?);
            if !self.mark(',') {
                break;
            }
        }
        Ok(all)
    }

    /// Exactly `N` operands.
    pub(super) fn exactly<const N: usize>(&mut self, ty: Type) -> Parsed<[Operand; N]> {
        let all = self.operands(ty)?;
        <[Operand; N]>::try_from(all.as_slice()).map_err(|_| "another number of operands")
    }

    pub(super) fn passing(&mut self) -> Parsed<Passing> {
        for (word, passing) in [
            ("sext", Passing::SignExtended),
            ("zext", Passing::ZeroExtended),
            ("paired", Passing::Paired),
            ("sret", Passing::Result),
            ("nest", Passing::Nest),
        ] {
            if self.is(word) {
                return Ok(passing);
            }
        }
        if !self.is("memory") {
            return Ok(Passing::Plain);
        }
        let size = self.number()?;
        Ok(Passing::Memory {
            size,
            align: self.align()?,
        })
    }

    pub(super) fn align(&mut self) -> Parsed<u32> {
        self.is("align").then_some(()).ok_or("no alignment")?;
        self.number()
    }

    /// ` -> i32 zext, f64`.
    pub(super) fn returns(&mut self) -> Parsed<SmallVec<[Returned; 2]>> {
        let mut all = SmallVec::new();
        if self.peek() != Some(&Token::Arrow) {
            return Ok(all);
        }
        self.at += 1;
        loop {
            let ty = self.ty()?;
            let extension = match (self.is("sext"), self.is("zext")) {
                (true, _) => Some(Extension::Sign),
                (_, true) => Some(Extension::Zero),
                _ => None,
            };
            all.push(Returned { ty, extension });
            if !self.mark(',') {
                return Ok(all);
            }
        }
    }

    /// `(i32 %0, i64 %1 sext)`.
    pub(super) fn arguments(&mut self) -> Parsed<Vec<Argument>> {
        self.need('(', "no arguments")?;
        let mut all = Vec::new();
        while !self.mark(')') {
            let ty = self.ty()?;
            let operand = self.operand(ty)?;
            let passing = self.passing()?;
            all.push(Argument {
                operand,
                ty,
                passing,
            });
            let more = self.mark(',') || self.peek() == Some(&Token::Mark(')'));
            more.then_some(()).ok_or("no end of arguments")?;
        }
        Ok(all)
    }

    fn line(&mut self) -> Parsed<()> {
        match self.tokens {
            [Token::Word(_), Token::Mark(':')] => {
                self.at = 2;
                let end = self.function.instructions.len() as u32;
                self.function.blocks.push(BlockData {
                    instructions: end..end,
                    successors: SmallVec::new(),
                });
                return Ok(());
            }
            [Token::Word(word), Token::Mark('('), ..] if word == "function" => {
                self.at = 1;
                return self.signature();
            }
            _ => {}
        }
        match self.function.blocks.is_empty() {
            true => self.header(),
            false => self.instruction(),
        }
    }

    fn signature(&mut self) -> Parsed<()> {
        self.need('(', "no parameters")?;
        while !self.mark(')') {
            if self.peek() == Some(&Token::Dots) {
                self.at += 1;
                self.function.is_variadic = true;
                continue;
            }
            let ty = self.ty()?;
            if !matches!(self.next()?, Token::Value(_)) {
                return Err("a parameter without a name");
            }
            let passing = self.passing()?;
            self.function.parameters.push(Parameter { ty, passing });
            self.function.types.push(ty);
            let more = self.mark(',') || self.peek() == Some(&Token::Mark(')'));
            more.then_some(()).ok_or("no end of parameters")?;
        }
        self.function.returns = self.returns()?.into_vec();
        Ok(())
    }

    /// A line before the first block.
    fn header(&mut self) -> Parsed<()> {
        match self.word()?.as_str() {
            "symbol" => {
                let symbol = self.symbol()?;
                let reach = self.named().ok_or("no reach")?;
                let is_weak = self.is("weak");
                let data = &mut self.function.symbols[symbol.index()];
                (data.reach, data.is_weak) = (reach, is_weak);
            }
            "wide" => {
                let digits = match self.next()? {
                    Token::Word(digits) => digits,
                    Token::Number(number) => {
                        // Digits that look decimal: letters may follow as a separate word.
                        let tail = self.word().unwrap_or_default();
                        format!("{number}{tail}")
                    }
                    _ => return Err("no digits"),
                };
                let wide = u128::from_str_radix(&digits, 16).map_err(|_| "no digits")?;
                self.function.wide.push(wide.to_le_bytes());
            }
            "line" => {
                let (line, column, file) = (self.number()?, self.number()?, self.number()?);
                self.function.lines.push(Line { line, column, file });
            }
            "probes" => self.function.probes_stack = true,
            "nounwind" => self.function.no_unwind = true,
            "personality" => self.function.personality = Some(self.symbol()?),
            "counters" => self.function.counting.counters = Some(self.symbol()?),
            "loops" => self.function.counting.loops = Some(self.symbol()?),
            "latch" => {
                let block = self.block()?;
                self.function.counting.latches.push(block);
            }
            "head" => self.head()?,
            _ => return Err("no such line before the first block"),
        }
        Ok(())
    }

    fn instruction(&mut self) -> Parsed<()> {
        let first = self.function.types.len() as u32;
        let mut results = 0;
        if matches!(self.peek(), Some(Token::Value(_))) {
            loop {
                match self.next()? {
                    Token::Value(_) => results += 1,
                    _ => return Err("a result without a name"),
                }
                match self.next()? {
                    Token::Mark(',') => {}
                    Token::Mark('=') => break,
                    _ => return Err("no `=` behind the results"),
                }
            }
        }
        let mut successors = SmallVec::new();
        let op = self.op(&mut successors)?;
        let line = match self.peek() {
            Some(&Token::Line(line)) => {
                self.at += 1;
                line
            }
            _ => NO_LINE,
        };
        let types = op.results();
        if results != types.len() && results != 0 {
            return Err("another number of results");
        }
        self.function.types.extend(types.into_iter().take(results));
        self.function.instructions.push(Instruction {
            op,
            results: first..first + results as u32,
            line,
        });
        let end = self.function.instructions.len() as u32;
        let block = self.function.blocks.last_mut().ok_or("no block")?;
        block.instructions.end = end;
        block.successors.extend(successors);
        Ok(())
    }
}

/// A type by its word.
fn type_of_word(word: &str) -> Option<Type> {
    Some(match word {
        "ptr" => Type::PTR,
        "f32" => Type::F32,
        "f64" => Type::F64,
        "f80" => Type::F80,
        "v128" => Type::V128,
        "v64" => Type::V64,
        _ => {
            let bits = word.strip_prefix('i')?.parse().ok()?;
            (1..=64).contains(&bits).then_some(Type::Int(bits))?
        }
    })
}
