//! The server of `demos/live`, and a client that takes each reply apart: it must be whole, and one
//! that the old source or the new one makes.

mod process;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::process::{Server, Spent};

/// The C source; with `FIXED` defined it is the new one.
pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/server.c")
}

/// By which source a reply was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// As the program was built.
    Old,
    /// The fix.
    New,
}

impl Version {
    /// Its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Version::Old => "old",
            Version::New => "new",
        }
    }

    /// The score of a word.
    pub fn score(self, word: &str) -> u64 {
        let rounds: u64 = (0..400).map(|round| round % 7 + 1).sum();
        let letters = match self {
            Version::Old => &word.as_bytes()[..word.len().saturating_sub(1)],
            Version::New => word.as_bytes(),
        };
        rounds * letters.iter().map(|&letter| u64::from(letter)).sum::<u64>()
    }
}

/// A request that was not answered as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// There was no reply.
    #[error("`{asked}` failed")]
    Failed {
        /// The request.
        asked: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The reply is none that one of the sources makes.
    #[error("a torn reply to `{asked}`: {reply:?}")]
    Torn {
        /// The request.
        asked: String,
        /// The reply that came.
        reply: String,
    },
}

/// A connection, on which one request is made after the other.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    reply: String,
}

impl Client {
    /// Connects; replies are waited for so long.
    ///
    /// # Errors
    /// The socket's.
    pub fn connect(socket: &Path, limit: Duration) -> io::Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        let replies = BufReader::new(stream.try_clone()?);
        Ok(Client {
            stream,
            replies,
            reply: String::new(),
        })
    }

    /// Sends a line; the next line that comes, as it is.
    ///
    /// # Errors
    /// [`Wrong::Failed`].
    pub fn line(&mut self, asked: &str) -> Result<&str, Wrong> {
        let failed = |cause| Wrong::Failed {
            asked: asked.to_owned(),
            cause,
        };
        let line = format!("{asked}\n");
        self.stream.write_all(line.as_bytes()).map_err(failed)?;
        self.reply.clear();
        match self.replies.read_line(&mut self.reply) {
            Ok(_) if self.reply.ends_with('\n') => Ok(self.reply.trim_end_matches('\n')),
            Ok(_) => Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// Asks; who answered, and what stands between the words that say so.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn ask(&mut self, asked: &str) -> Result<(Version, &str), Wrong> {
        let reply = self.line(asked)?;
        whole(reply).ok_or_else(|| torn(asked, reply))
    }

    /// Has a word scored; who did it.
    ///
    /// # Errors
    /// [`Wrong`], also if the score is another one's.
    pub fn score(&mut self, word: &str) -> Result<Version, Wrong> {
        let (version, text) = self.ask(word)?;
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            [_, worth, _] if *worth == version.score(word).to_string() => Ok(version),
            _ => Err(torn(word, text)),
        }
    }

    /// Keeps a value under a key; who did it.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<Version, Wrong> {
        self.expect(&format!("set {key} {value}"), "stored")
    }

    /// Asks for the value of a key, which must be this one; who answered.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn get(&mut self, key: &str, value: &str) -> Result<Version, Wrong> {
        self.expect(&format!("get {key}"), &format!("value {value}"))
    }

    /// Asks what has one answer; who gave it.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn expect(&mut self, asked: &str, answer: &str) -> Result<Version, Wrong> {
        match self.ask(asked)? {
            (version, text) if text == answer => Ok(version),
            (_, text) => Err(torn(asked, text)),
        }
    }
}

fn torn(asked: &str, reply: &str) -> Wrong {
    Wrong::Torn {
        asked: asked.to_owned(),
        reply: reply.to_owned(),
    }
}

/// A reply that one source made from its first to its last word.
fn whole(reply: &str) -> Option<(Version, &str)> {
    let all = [Version::Old, Version::New].into_iter();
    all.filter_map(|version| {
        let name = version.name();
        let text = reply.strip_prefix(name)?.strip_suffix(name)?;
        Some((version, text.strip_prefix(' ')?.strip_suffix(' ')?))
    })
    .next()
}

/// A function's row of `uruk swap PID --explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explained {
    /// The tier it runs at.
    pub tier: u8,
    /// How many versions of it were published.
    pub published: u64,
}

impl Explained {
    /// The row of a function in the table; none if it has none.
    pub fn of(table: &str, function: &str) -> Option<Explained> {
        table.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let tier = words.next()?.parse().ok()?;
            let published = words.next()?.parse().ok()?;
            let named = words.nth(1)? == function;
            named.then_some(Explained { tier, published })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Explained, Version, whole};

    #[test]
    fn a_function_has_a_row() {
        let table = "tier published taken-back function\n   0         0          0 main (m)\n   \
                     2         3          1 answer (m)\n   - x: stays native\n";
        let answer = Explained {
            tier: 2,
            published: 3,
        };
        assert_eq!(Explained::of(table, "answer"), Some(answer));
        assert_eq!(Explained::of(table, "main"), Some(Explained::default()));
        assert_eq!(Explained::of(table, "other"), None);
    }

    #[test]
    fn replies_are_whole_or_torn() {
        assert_eq!(whole("old stored old"), Some((Version::Old, "stored")));
        let value = Some((Version::New, "value a b"));
        assert_eq!(whole("new value a b new"), value);
        for torn in [
            "old stored new",
            "old",
            "old old",
            "oldold",
            "stored old",
            "",
        ] {
            assert_eq!(whole(torn), None, "{torn}");
        }
    }

    #[test]
    fn the_old_source_leaves_out_a_letter() {
        assert_eq!(Version::New.score("a"), Version::Old.score("ab"));
        assert_eq!((Version::Old.score(""), Version::Old.score("a")), (0, 0));
    }
}
