//! Times as PostgreSQL keeps them: microseconds since the year 2000.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use windlass_core::Timestamp;

/// 2000-01-01 in microseconds since 1970-01-01.
const EPOCH: i64 = 946_684_800_000_000;

/// A time in a column or a parameter. What lies beyond PostgreSQL's calendar becomes
/// its `infinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(pub(super) Timestamp);

/// The last microsecond that PostgreSQL's calendar has, counted from 2000.
const LAST: i64 = 9_223_371_331_199_999_999;

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = self.0.as_micros().saturating_sub(EPOCH);
        let is_never = micros > LAST || self.0 == Timestamp::MAX;
        let micros = if is_never { i64::MAX } else { micros };
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<At, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(At(Timestamp::from_micros(micros.saturating_add(EPOCH))))
    }

    accepts!(TIMESTAMPTZ);
}
