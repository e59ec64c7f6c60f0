//! Verbs that are called again.

/// Calls a verb, and repeats it when the database interrupted it or a name had no number. Each try
/// has a span, which says how many items there are: one, if nothing is said.
macro_rules! repeat {
    ($store:ident . $once:ident ( $($argument:expr),* )) => {
        repeat!($store.$once($($argument),*), 1)
    };
    ($store:ident . $once:ident ( $($argument:expr),* ), $items:expr) => {{
        let mut retries = $store.pool.retries(stringify!($once));
        loop {
            let span = crate::spans::verb(stringify!($once), $items);
            let tried = tracing::Instrument::instrument($store.$once($($argument),*), span);
            let fault = match tried.await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Unnamed(unnamed)) => match $store.pool.assign_numbers(&unnamed).await {
                    Ok(()) => continue,
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            $store.learn_from(&fault);
            if !retries.again(&fault).await {
                return Err(fault.into());
            }
        }
    }};
}
pub(super) use repeat;

/// Calls a verb that moves many runs, and repeats it without those that it stops at.
macro_rules! without_unsound {
    ($store:ident, $call:expr) => {
        loop {
            let answer: Result<_, Fault> = async { $call }.await;
            match answer {
                Err(fault) if $store.unsound.leave_out(&fault) => {}
                other => return Ok(other?),
            }
        }
    };
}
pub(super) use without_unsound;
