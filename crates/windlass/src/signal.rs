//! Signals to keys: for senders that do not know the run.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use windlass_core::{Payload, SignalId, SignalKey, StepName, Tenant};

use crate::engine::Windlass;
use crate::error::{Error, ErrorKind};
use crate::store::{Mailbox, NewKeySignal, SIGNAL_KEPT, Store};

impl Windlass {
    /// A signal to a key, for whoever [waits](crate::function::Signal::key) for it; await it to
    /// send it.
    ///
    /// The functions of the tenant that wait for the key and name go on, and the first that asks
    /// gets it: each signal is taken once, the oldest first. If none waits, it is kept until one
    /// does, for [30 days](SIGNAL_KEPT) if nothing else is [said](KeySignal::keep_for).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{SignalId, Windlass};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), windlass::Error> {
    /// let windlass = Windlass::memory();
    /// let event = "0190f7a4-41d3-7c52-a3b8-3a1de3b4f0a1".parse().expect("it is an id");
    /// for _delivery in 0..2 {
    ///     // A webhook that is delivered twice is one signal.
    ///     windlass.signal_key("pay_123", "paid", &4_200).tenant("acme").id(event).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a key, name, tenant or time outside its limits,
    /// [`ErrorKind::Payload`] if the value has no JSON form or is too large,
    /// [`ErrorKind::Conflict`] if too many signals wait for this key and name already. One whose
    /// answer is [lost](Error::is_retryable) may have been sent: to repeat it safely, give it an
    /// [`id`](KeySignal::id).
    pub fn signal_key(
        &self,
        key: impl Into<String>,
        name: impl Into<String>,
        value: &(impl Serialize + ?Sized),
    ) -> KeySignal {
        let (key, name) = (key.into(), name.into());
        let value =
            self.store().payload_limit().encode(value).map_err(|error| {
                Error::payload(format_args!("signal {name:?} to key {key:?}"), error)
            });
        KeySignal {
            store: Arc::clone(self.store()),
            id: None,
            tenant: None,
            key,
            name,
            value,
            keep_for: SIGNAL_KEPT,
        }
    }
}

/// A [signal to a key](Windlass::signal_key): set it up, then await it.
#[must_use = "nothing is sent until this is awaited"]
pub struct KeySignal {
    store: Arc<dyn Store>,
    id: Option<SignalId>,
    tenant: Option<String>,
    key: String,
    name: String,
    value: Result<Payload, Error>,
    keep_for: Duration,
}

impl KeySignal {
    /// Whose functions may get it; `default` if not said. The keys of other tenants are other
    /// keys.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// The id of the signal, chosen at random if not said. Sent again with the same id to the
    /// same key while it is kept, it is one signal, also after it was taken.
    pub fn id(mut self, id: SignalId) -> Self {
        self.id = Some(id);
        self
    }

    /// How long it is kept if nobody asks for it; [30 days](SIGNAL_KEPT) if not said, up to a
    /// hundred years.
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep_for = time;
        self
    }

    fn prepare(self) -> Result<(Arc<dyn Store>, NewKeySignal), Error> {
        let to = Mailbox {
            tenant: self.tenant.map(Tenant::new).transpose()?.unwrap_or_default(),
            key: SignalKey::new(self.key)?,
            name: StepName::new(self.name)?,
        };
        let id = self.id.unwrap_or_else(|| SignalId::from_random(fastrand::u128(..)));
        let signal = NewKeySignal { id, to, value: self.value?, keep_for: self.keep_for };
        let limit = self.store.payload_limit();
        signal.check(limit).map_err(|text| Error::new(ErrorKind::Argument, text))?;
        Ok((self.store, signal))
    }
}

impl IntoFuture for KeySignal {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (store, signal) = self.prepare()?;
            Ok(store.signal_key(signal).await?)
        })
    }
}

impl std::fmt::Debug for KeySignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySignal({:?} to {:?})", self.name, self.key)
    }
}
