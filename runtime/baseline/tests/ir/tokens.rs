//! Splits lines of the text form into tokens.

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// `add`, `i32`, `b4`.
    Word(String),
    /// `%name`.
    Value(String),
    /// `@name+8`.
    Symbol(String, i64),
    /// `&b4`.
    Label(String),
    /// `-5`.
    Number(i128),
    /// `#3ff0000000000000`.
    Float(u64),
    /// `$0`.
    Wide(u32),
    /// `!7`.
    Line(u32),
    /// `->`.
    Arrow,
    /// `...`.
    Dots,
    /// One of `(),[]:=`.
    Mark(char),
}

/// Splits a line; ignores a comment after `;`. `None` if a character begins no token.
pub(super) fn tokens(line: &str) -> Option<Vec<Token>> {
    let mut all = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Some(all);
        };
        let after = &rest[first.len_utf8()..];
        let (token, left) = match first {
            ';' => return Some(all),
            '%' => word(after).map(|(word, left)| (Token::Value(word), left))?,
            '&' => word(after).map(|(word, left)| (Token::Label(word), left))?,
            '@' => symbol(after)?,
            '#' => {
                let (digits, left) = word(after)?;
                (Token::Float(u64::from_str_radix(&digits, 16).ok()?), left)
            }
            '$' => {
                let (digits, left) = word(after)?;
                (Token::Wide(digits.parse().ok()?), left)
            }
            '!' => {
                let (digits, left) = word(after)?;
                (Token::Line(digits.parse().ok()?), left)
            }
            '-' if after.starts_with('>') => (Token::Arrow, &after[1..]),
            '.' => (Token::Dots, rest.strip_prefix("...")?),
            '-' | '0'..='9' => {
                let (digits, left) = number(rest)?;
                (Token::Number(digits), left)
            }
            '(' | ')' | '[' | ']' | ',' | ':' | '=' => (Token::Mark(first), after),
            _ => word(rest).map(|(word, left)| (Token::Word(word), left))?,
        };
        all.push(token);
        rest = left;
    }
}

/// A word at the front, and the rest.
fn word(text: &str) -> Option<(String, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    let end = text.find(|c| !plain(c)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_string(), &text[end..]))
}

/// A number at the front, with or without a sign, and the rest.
fn number(text: &str) -> Option<(i128, &str)> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let count = digits.find(|c: char| !c.is_ascii_digit());
    let end = text.len() - digits.len() + count.unwrap_or(digits.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// A symbol and its offset, behind the `@`.
fn symbol(text: &str) -> Option<(Token, &str)> {
    let (name, left) = match text.strip_prefix('"') {
        Some(quoted) => {
            let (name, left) = quoted.split_once('"')?;
            (name.to_string(), left)
        }
        None => word(text)?,
    };
    if !left.starts_with(['+', '-']) || left.starts_with("->") {
        return Some((Token::Symbol(name, 0), left));
    }
    let (offset, left) = number(left)?;
    Some((Token::Symbol(name, i64::try_from(offset).ok()?), left))
}
