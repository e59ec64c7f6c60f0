//! Tokens: what those who use a server show it to say who they are.
//!
//! A token is one word, `wl_<kind>_<id>_<secret><checksum>`: whoever finds it in a log or a
//! repository knows what it is, a search finds it, and one that was mistyped or cut is known
//! without asking anyone. The id is no secret: lists and logs show it. The secret has 256 random
//! bits; where it comes from and how it is kept is not decided here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// How every token begins.
pub const TOKEN_PREFIX: &str = "wl_";

/// The random bytes of a secret.
pub const SECRET_BYTES: usize = 32;

const ID_BYTES: usize = 10;
const ID_CHARS: usize = 16;
const SECRET_CHARS: usize = 52;
const CHECKSUM_CHARS: usize = 7;

/// Digits that survive being read aloud, sorted and put into a file name.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// What someone may do at a server. A token has one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads the metrics of a server, and nothing else.
    Metrics,
    /// Looks at runs, schedules and dead letters, and changes nothing.
    Viewer,
    /// A program: registers workflows, starts runs, sends signals, and works on tasks.
    Worker,
    /// A person who looks after runs: starts, cancels, retries, redrives, signals, schedules.
    Operator,
    /// Everything, tokens and shares of tenants included.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 5] =
        [Role::Metrics, Role::Viewer, Role::Worker, Role::Operator, Role::Admin];

    /// Its name in stored data, in tokens and in what people see.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Viewer => "viewer",
            Role::Worker => "worker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Role {
    type Err = TokenError;

    fn from_str(word: &str) -> Result<Self, TokenError> {
        let role = Role::ALL.into_iter().find(|role| role.word() == word);
        role.ok_or_else(|| TokenError::Role(word.chars().take(40).collect()))
    }
}

/// The roles of a token: at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles(u8);

impl Roles {
    /// These roles; none if there are none.
    pub fn of(roles: impl IntoIterator<Item = Role>) -> Option<Self> {
        let bits = roles.into_iter().fold(0, |bits, role| bits | role.bit());
        (bits != 0).then_some(Roles(bits))
    }

    /// Whether this is one of them.
    pub fn has(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// All of them, the weakest first.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }

    /// The one that may do most, which is the kind of the token.
    pub fn strongest(self) -> Role {
        self.iter().last().unwrap_or(Role::Metrics)
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Self {
        Roles(role.bit())
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Role::word).collect();
        f.pad(&words.join(","))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a token: 16 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; ID_CHARS]);

impl TokenId {
    /// An id of 80 random bits.
    pub fn from_random(random: u128) -> Self {
        let mut id = [0; ID_CHARS];
        let text = encode(&random.to_be_bytes()[..ID_BYTES]);
        id.copy_from_slice(&text.as_bytes()[..ID_CHARS]);
        TokenId(id)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let bytes: [u8; ID_CHARS] =
            text.as_bytes().try_into().map_err(|_| TokenError::Id(text.len()))?;
        let are_digits = bytes.iter().all(|byte| DIGITS.contains(byte));
        are_digits.then_some(TokenId(bytes)).ok_or(TokenError::Id(ID_CHARS))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is no token. None of them repeats the text, which may be most of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It does not look like one.
    #[error("it is not of the form wl_<kind>_<id>_<secret>")]
    Form,
    /// Its checksum is not that of the rest.
    #[error("its checksum is wrong: it was mistyped or cut")]
    Checksum,
    /// An id has other characters, or another number of them.
    #[error(
        "an id of a token has 16 letters and digits from a to z and 2 to 7, not {0} characters like these"
    )]
    Id(usize),
    /// There is no such role.
    #[error("{0:?} is not a role; those are metrics, viewer, worker, operator and admin")]
    Role(String),
}

/// A token, as it is shown once and kept by whoever uses it.
#[derive(Clone, Debug)]
pub struct Token {
    kind: Role,
    id: TokenId,
    secret: Secret,
}

impl Token {
    /// A token of a kind with an id and 256 bits that nobody can guess.
    pub fn new(kind: Role, id: TokenId, secret: &[u8; SECRET_BYTES]) -> Self {
        Token { kind, id, secret: Secret::from(encode(secret)) }
    }

    /// Reads a token. Whether anyone gave it out is not known here.
    ///
    /// # Errors
    ///
    /// [`TokenError`] for what is none, or is not whole.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let mut parts = text.splitn(4, '_');
        let (prefix, kind, id) = (parts.next(), parts.next(), parts.next());
        let tail = parts.next().ok_or(TokenError::Form)?;
        if prefix != Some("wl") || !text.is_ascii() {
            return Err(TokenError::Form);
        }
        if tail.len() != SECRET_CHARS + CHECKSUM_CHARS {
            return Err(TokenError::Checksum);
        }
        let (body, sum) = text.split_at(text.len() - CHECKSUM_CHARS);
        if checksum(body) != sum {
            return Err(TokenError::Checksum);
        }
        let kind = kind.unwrap_or_default().parse().map_err(|_| TokenError::Form)?;
        let id = id.unwrap_or_default().parse().map_err(|_| TokenError::Form)?;
        Ok(Token { kind, id, secret: Secret::from(&tail[..SECRET_CHARS]) })
    }

    /// What kind of token it says it is.
    pub fn kind(&self) -> Role {
        self.kind
    }

    /// Its id.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// What only its owner knows.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The whole token, for its owner.
    pub fn text(&self) -> Secret {
        let body = format!("{TOKEN_PREFIX}{}_{}_{}", self.kind, self.id, self.secret.expose());
        let sum = checksum(&body);
        Secret::from(body + &sum)
    }
}

/// Five bits a character, the first bits first; what is left over is filled up with zeros.
fn encode(bytes: &[u8]) -> String {
    let bit = |place: usize| bytes.get(place / 8).map_or(0, |byte| byte >> (7 - place % 8) & 1);
    let digit = |from: usize| (from..from + 5).fold(0, |digit, place| digit << 1 | bit(place));
    let digits = (0..bytes.len() * 8).step_by(5).map(digit);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// CRC-32 as zip and Ethernet have it. It finds mistakes, and keeps nobody out.
fn checksum(text: &str) -> String {
    let mut sum = u32::MAX;
    for byte in text.bytes() {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    encode(&(!sum).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::new(Role::Operator, TokenId::from_random(7 << 60), &[0xa5; SECRET_BYTES])
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let text = token().text();
        let read = Token::parse(text.expose()).unwrap();
        assert_eq!((read.kind(), read.id()), (Role::Operator, token().id()));
        assert_eq!(read.secret().expose(), token().secret().expose());
        assert_eq!(read.text().expose(), text.expose());
        assert_eq!(text.expose().len(), "wl_operator_".len() + 16 + 1 + 52 + 7);
    }

    #[test]
    fn tokens_that_were_given_out_are_read_for_ever() {
        // As made by another program, with base32 and CRC-32 of its own.
        let text = "wl_operator_aaaaaaaaaaaaa4aa_uws2ljnfuws2ljnfuws2ljnfuws2ljnfuws2ljnfuws2ljnfuwsq\
            3oa5sey";
        assert_eq!(token().text().expose(), text);
        assert_eq!(Token::parse(text).unwrap().id(), token().id());
        // The checksum of "123456789" is the one that every description of CRC-32 has.
        assert_eq!(checksum("123456789"), encode(&0xcbf4_3926_u32.to_be_bytes()));
    }

    #[test]
    fn every_character_that_is_another_one_is_noticed() {
        let text = token().text().expose().to_owned();
        for place in 0..text.len() {
            for other in ['a', 'b', '2', 'A', '_', ' ', '\0', 'é'] {
                let mut wrong: Vec<char> = text.chars().collect();
                if wrong[place] == other {
                    continue;
                }
                wrong[place] = other;
                let wrong: String = wrong.into_iter().collect();
                assert!(Token::parse(&wrong).is_err(), "{place}: {wrong}");
            }
            assert!(Token::parse(&text[..place]).is_err(), "cut at {place}");
        }
        assert!(Token::parse(&format!("{text}a")).is_err());
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let token = token();
        let shown = format!("{token:?} {:?} {}", token.text(), token.text());
        assert!(!shown.contains(token.secret().expose()) && shown.contains("***"), "{shown}");
        let error = Token::parse(&token.text().expose()[..60]).unwrap_err().to_string();
        assert!(!error.contains("uws2k"), "{error}");
    }

    #[test]
    fn roles_are_a_set_that_is_never_empty() {
        assert_eq!(Roles::of([]), None);
        let roles = Roles::of([Role::Operator, Role::Worker, Role::Worker]).unwrap();
        assert_eq!(roles.to_string(), "worker,operator");
        assert_eq!(roles.strongest(), Role::Operator);
        assert!(roles.has(Role::Worker) && !roles.has(Role::Admin));
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert_eq!(Roles::from(role).iter().collect::<Vec<_>>(), [role]);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
