//! The keys of `windlass top`.

#[cfg(unix)]
use std::io::{IsTerminal as _, Read as _};

#[cfg(unix)]
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Help,
    Pause,
    NextView,
    PreviousView,
}

/// Returns the keys in what a terminal sent. Other keys are ignored.
fn parse(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let key = match first {
            b'q' | b'Q' => Key::Quit,
            b'?' | b'h' => Key::Help,
            b' ' | b'p' => Key::Pause,
            b'\t' => Key::NextView,
            0x1b => match behind {
                [b'[' | b'O', code, after @ ..] => {
                    rest = after;
                    match code {
                        b'B' | b'C' => Key::NextView,
                        b'A' | b'D' | b'Z' => Key::PreviousView,
                        _ => continue,
                    }
                }
                _ => continue,
            },
            _ => continue,
        };
        keys.push(key);
    }
    keys
}

/// The keys that are pressed, while it lives. Dropped, the terminal is as it was.
pub(super) struct Keys {
    pressed: mpsc::UnboundedReceiver<Key>,
    #[cfg(unix)]
    before: Option<Termios>,
}

impl Keys {
    /// Reads keys one by one if standard input is a terminal, and none otherwise.
    #[cfg(unix)]
    pub(super) fn listen() -> anyhow::Result<Self> {
        let (sender, pressed) = mpsc::unbounded_channel();
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Keys { pressed, before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut changed = before.clone();
        // Without waiting for a line, and without printing it. Ctrl-C stays a signal.
        changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &changed)?;
        let keys = Keys { pressed, before: Some(before) };
        // A read cannot be cancelled, so the thread ends with the process.
        std::thread::Builder::new().name("windlass-keys".to_owned()).spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = std::io::stdin().read(&mut bytes) {
                for key in parse(bytes.get(..count).unwrap_or_default()) {
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(keys)
    }

    /// Reads no keys: there is no way to read them one by one here.
    #[cfg(not(unix))]
    pub(super) fn listen() -> anyhow::Result<Self> {
        Ok(Keys { pressed: mpsc::unbounded_channel().1 })
    }

    /// Waits for the next key; for ever if there are none. Cancel safe.
    pub(super) async fn next(&mut self) -> Key {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

#[cfg(unix)]
impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_others_are_ignored() {
        assert_eq!(parse(b"q? \t"), [Key::Quit, Key::Help, Key::Pause, Key::NextView]);
        assert_eq!(
            parse(b"\x1b[C\x1b[A\x1b[Z"),
            [Key::NextView, Key::PreviousView, Key::PreviousView]
        );
        assert_eq!(parse(b"x\x1b[5~\x1b"), []);
    }
}
