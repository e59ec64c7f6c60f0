//! Random bits for ids that must not be guessable.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Returns 128 bits of the operating system's secure generator.
///
/// # Panics
///
/// If the operating system has no randomness.
#[doc(hidden)]
pub fn secure_bits() -> u128 {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has randomness");
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use crate::Windlass;

    #[test]
    fn ids_of_runs_do_not_follow_from_the_state_of_a_generator() {
        let random_part = || {
            fastrand::seed(7);
            Windlass::memory().new_run_id().as_uuid().as_u128() << 66
        };
        assert_ne!(random_part(), random_part());
    }
}
