//! What goes wrong between a verb and the database, sorted by what to do about it.

use super::names::Unnamed;
use crate::store::StoreError;

/// Why a verb did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The verb's own answer.
    #[error(transparent)]
    Answer(#[from] StoreError),
    /// The database refused or could not be reached.
    #[error("{0}")]
    Unavailable(String),
    /// Names that have no number yet; the verb is repeated once they have.
    #[error("names without numbers")]
    Unnamed(Unnamed),
    /// The database answered with an error.
    #[error(transparent)]
    Database(#[from] tokio_postgres::Error),
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::Answer(error) => error,
            Fault::Unnamed(_) => StoreError::Corrupt("names cannot be numbered".to_owned()),
            Fault::Unavailable(text) => StoreError::Unavailable(text),
            Fault::Database(error) => {
                let text = match error.as_db_error() {
                    Some(answer) => format!("{} ({})", answer.message(), answer.code().code()),
                    None => error.to_string(),
                };
                StoreError::Unavailable(text)
            }
        }
    }
}
