//! Tells the panics of simulated handlers from those of the engine.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Once;

/// What handlers panic with when the seed says so.
pub(crate) const EXPECTED_PANIC: &str = "simulated panic";

thread_local! {
    /// Each seed runs on one thread from its beginning to its end.
    static UNEXPECTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Silences the panics of handlers, and notes all others for [`take_unexpected`].
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if message(info) == EXPECTED_PANIC {
                return;
            }
            let noted = UNEXPECTED.try_with(|noted| {
                if let Ok(mut noted) = noted.try_borrow_mut() {
                    noted.push(info.to_string());
                }
            });
            if noted.is_err() {
                usual(info);
            }
        }));
    });
}

/// The panics on this thread since it was last asked.
pub(crate) fn take_unexpected() -> Vec<String> {
    UNEXPECTED.with(|noted| std::mem::take(&mut *noted.borrow_mut()))
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or_default()
}
