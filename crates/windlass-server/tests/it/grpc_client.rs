//! A store behind a server answers what the store answers.
