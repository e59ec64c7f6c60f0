//! What was said of why a worker is refused, so that it is said once.

use crate::store::StoreError;

/// The last refusal. A worker that is not let in asks for as long as it lives: whoever reads the
/// log needs to know why once, and again only when the reason changes.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<StoreError>,
}

impl Refusals {
    /// Whether an error is a refusal that was seen before. Other errors are never old.
    pub(super) fn is_old(&mut self, error: &StoreError) -> bool {
        if !error.is_refusal() {
            return false;
        }
        let is_old = self.last.as_ref() == Some(error);
        self.last = Some(error.clone());
        is_old
    }

    /// The worker was let in.
    pub(super) fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_new_once_for_each_reason_and_again_after_an_end() {
        let refused = |why: &str| StoreError::Unauthenticated(why.to_owned());
        let away = StoreError::Unavailable("gone".to_owned());
        let mut refusals = Refusals::default();
        assert!(!refusals.is_old(&refused("expired")));
        assert!(refusals.is_old(&refused("expired")));
        assert!(!refusals.is_old(&away) && !refusals.is_old(&away));
        assert!(refusals.is_old(&refused("expired")), "it is the same as before the outage");
        assert!(!refusals.is_old(&refused("revoked")));
        assert!(!refusals.is_old(&StoreError::Forbidden("revoked".to_owned())));
        refusals.reset();
        assert!(!refusals.is_old(&StoreError::Forbidden("revoked".to_owned())));
    }
}
