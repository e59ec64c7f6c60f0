//! A text that must not be shown.

use std::fmt;

/// A password, a token or a key. Whoever shows it shows `***`, in errors, logs, panics and settings
/// alike: the text itself is had by [`expose`](Secret::expose) only.
///
/// ```
/// use windlass_core::Secret;
///
/// let secret = Secret::new("hunter2");
/// assert_eq!(format!("{secret:?} {secret}"), "*** ***");
/// assert_eq!(secret.expose(), "hunter2");
/// ```
#[derive(Clone)]
pub struct Secret(Box<str>);

/// What is shown in its place.
pub const HIDDEN: &str = "***";

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }

    /// The text, for whoever needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.into())
    }
}
