//! What calls carry to say who asks.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use windlass_core::Secret;

use super::options::TokenSource;
use crate::error::{Error, ErrorKind};

/// The most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4_096;

/// How often the file of a token is looked at, at most: it is small and near, and whoever calls
/// more often is not to pay for it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Says who asks, with every call.
#[derive(Clone, Default)]
pub(super) struct Bearer(Option<Arc<Token>>);

struct Token {
    file: Option<PathBuf>,
    look_every: Duration,
    state: Mutex<State>,
}

struct State {
    value: MetadataValue<Ascii>,
    /// How often it has changed.
    version: u64,
    looked_at: Instant,
    /// Why what the file says now is not used; said once.
    refused: Option<String>,
}

impl Bearer {
    /// Reads the token.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a file that cannot be read, and for what cannot be a token.
    pub(super) fn new(source: Option<&TokenSource>) -> Result<Self, Error> {
        let refuse = |text| Error::new(ErrorKind::Argument, text);
        let (value, file) = match source {
            None => return Ok(Bearer(None)),
            Some(TokenSource::Given(token)) => {
                let value = value(token.expose()).map_err(|why| format!("the token {why}"));
                (value.map_err(refuse)?, None)
            }
            Some(TokenSource::File(path)) => (read(path).map_err(refuse)?, Some(path.clone())),
        };
        let state = State { value, version: 0, looked_at: Instant::now(), refused: None };
        let state = Mutex::new(state);
        Ok(Bearer(Some(Arc::new(Token { file, look_every: LOOK_EVERY, state }))))
    }

    /// How often the token has changed so far: whoever showed it before can show the new one.
    pub(super) fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, |token| token.current().version)
    }
}

impl Token {
    /// The token as its file says it now.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.file else { return state };
        if state.looked_at.elapsed() < self.look_every {
            return state;
        }
        state.looked_at = Instant::now();
        match read(path) {
            Ok(value) => {
                state.refused = None;
                if value != state.value {
                    state.value = value;
                    state.version += 1;
                }
            }
            // Someone may be about to write it.
            Err(error) => {
                if state.refused.as_ref() != Some(&error) {
                    tracing::warn!(%error, "the token that was read before stays in use");
                    state.refused = Some(error);
                }
            }
        }
        state
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            let value = token.current().value.clone();
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.0.as_ref().map(|_| Secret::new(""));
        f.debug_tuple("Bearer").field(&token).finish()
    }
}

fn read(path: &Path) -> Result<MetadataValue<Ascii>, String> {
    let wrong = |why: String| format!("the token of file {path:?} {why}");
    let mut text = String::new();
    let file = File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    // One more than may be there, and the end of a line.
    let mut file = file.take(TOKEN_BYTES_MAX as u64 + 3);
    file.read_to_string(&mut text).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    value(text.trim()).map_err(|why| wrong(why.to_owned()))
}

/// What is said of a token. What is wrong with it does not repeat it.
fn value(token: &str) -> Result<MetadataValue<Ascii>, &'static str> {
    if token.is_empty() {
        return Err("is empty");
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err("is too long");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has characters that no token has");
    }
    let value: Result<MetadataValue<Ascii>, _> = format!("Bearer {token}").parse();
    let mut value = value.map_err(|_| "has characters that no token has")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is gone with the test.
    struct TokenFile(PathBuf);

    impl TokenFile {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("windlass-token-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).expect("it can be written");
            TokenFile(path)
        }
    }

    impl Drop for TokenFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn said(bearer: &mut Bearer) -> String {
        let request = bearer.call(Request::new(())).expect("it never refuses");
        let value = request.metadata().get("authorization").expect("it is said");
        assert!(!format!("{value:?}").contains("wl_"), "it is hidden: {value:?}");
        value.to_str().expect("it is text").to_owned()
    }

    #[test]
    fn a_new_token_is_said_once_its_file_has_it_and_the_old_one_while_it_is_broken() {
        let file = TokenFile::new("new", "wl_one\n");
        let source = TokenSource::File(file.0.clone());
        let mut bearer = Bearer::new(Some(&source)).expect("it is a token");
        let token = bearer.0.as_mut().and_then(Arc::get_mut).expect("nobody else has it");
        token.look_every = Duration::ZERO;
        assert_eq!((said(&mut bearer).as_str(), bearer.version()), ("Bearer wl_one", 0));
        for broken in ["", "two words", "\u{fc}"] {
            std::fs::write(&file.0, broken).expect("it is ours");
            assert_eq!((said(&mut bearer).as_str(), bearer.version()), ("Bearer wl_one", 0));
        }
        std::fs::write(&file.0, "wl_two").expect("it is ours");
        assert_eq!((said(&mut bearer).as_str(), bearer.version()), ("Bearer wl_two", 1));
        assert_eq!(bearer.version(), 1, "it changed once");
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_without_being_repeated() {
        let long = "SECRET".repeat(TOKEN_BYTES_MAX);
        let longest = "x".repeat(TOKEN_BYTES_MAX);
        for (text, why) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("SECRET SECRET", "characters that no token has"),
            ("SECRET\r\nevil: 1", "characters that no token has"),
            (&long, "is too long"),
        ] {
            let file = TokenFile::new("wrong", text);
            let given = TokenSource::Given(text.trim().into());
            for source in [given, TokenSource::File(file.0.clone())] {
                let error = Bearer::new(Some(&source)).expect_err(why);
                assert_eq!(error.kind(), ErrorKind::Argument);
                let error = error.to_string();
                assert!(error.contains(why) && !error.contains("SECRET"), "{error}");
            }
        }
        Bearer::new(Some(&TokenSource::Given(longest.into()))).expect("it just fits");
        let missing = TokenSource::File("/no/token".into());
        let error = Bearer::new(Some(&missing)).expect_err("it is not there").to_string();
        assert!(error.contains("\"/no/token\" cannot be read: No such file"), "{error}");
    }
}
