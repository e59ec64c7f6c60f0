//! What is set for the whole database, in the one row of `windlass.settings`.

use windlass_core::PayloadLimit;

use super::fault::Fault;
use super::options::PostgresOptions;
use super::pool::{Pool, sql};
use crate::Error;
use crate::store::StoreError;

sql!(PAYLOAD_LIMIT, "payload_limit.sql", []);
sql!(SET_PAYLOAD_LIMIT, "set_payload_limit.sql", [INT4]);

/// Sets the limit on payloads if the options say so; answers the one that holds.
pub(super) async fn payload_limit(
    options: &PostgresOptions,
    pool: &Pool,
) -> Result<PayloadLimit, Error> {
    let wanted = options.payload_limit_to_set()?;
    let mut retries = pool.retries("payload_limit");
    loop {
        match payload_limit_once(pool, wanted).await {
            Err(fault) if retries.again(&fault).await => continue,
            answer => return answer.map_err(|fault| StoreError::from(fault).into()),
        }
    }
}

async fn payload_limit_once(
    pool: &Pool,
    wanted: Option<PayloadLimit>,
) -> Result<PayloadLimit, Fault> {
    let mut connection = pool.get().await?;
    if let Some(limit) = wanted {
        let bytes = i32::try_from(limit.get()).unwrap_or(i32::MAX);
        connection.query(&SET_PAYLOAD_LIMIT, &[&bytes]).await?;
        return Ok(limit);
    }
    let rows = connection.query(&PAYLOAD_LIMIT, &[]).await?;
    let Some(bytes) = rows.first().map(|row| row.get::<_, i32>(0)) else {
        return Ok(PayloadLimit::default());
    };
    let limit = usize::try_from(bytes).ok().and_then(PayloadLimit::new);
    let wrong = || StoreError::Corrupt(format!("windlass.settings has a payload_limit of {bytes}"));
    Ok(limit.ok_or_else(wrong)?)
}
