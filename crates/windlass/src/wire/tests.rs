//! What is said is what is understood.
