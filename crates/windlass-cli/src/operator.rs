//! Who does something by hand.

use serde_json::Value;
use windlass::store::{Action, refusal};
use windlass::{ActionId, RunId, Tenant, Windlass};

/// What commands that change something by hand are told of who does it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OperatorArguments {
    /// Name for the audit log
    #[arg(long = "by", value_name = "NAME", default_value_t = whoever())]
    by: String,
}

impl OperatorArguments {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.by
    }

    /// Logs an action before it is done. [`Noted::settle`] logs if it was refused.
    pub(crate) async fn note(
        &self,
        windlass: &Windlass,
        action: Action,
        about: impl Into<About>,
        detail: Option<&Value>,
    ) -> Result<Noted, windlass::Error> {
        let About { tenant, run } = about.into();
        let by = self.by.clone();
        let entry = windlass.note_action_for(tenant.clone(), &by, action, run, detail).await?;
        Ok(Noted { windlass: windlass.clone(), by, action, tenant, run, entry })
    }
}

/// An action that was logged and is being done.
#[must_use = "an action that is refused is to be logged as refused"]
pub(crate) struct Noted {
    windlass: Windlass,
    by: String,
    action: Action,
    tenant: Option<Tenant>,
    run: Option<RunId>,
    /// `None` if a server keeps the log.
    entry: Option<ActionId>,
}

impl Noted {
    /// Logs that the action was refused, if it was. An action whose outcome is not known stays as it
    /// was logged.
    pub(crate) async fn settle<T, E: Into<anyhow::Error>>(
        self,
        done: Result<T, E>,
    ) -> anyhow::Result<T> {
        let error: anyhow::Error = match done {
            Ok(done) => return Ok(done),
            Err(error) => error.into(),
        };
        let is_refusal =
            error.downcast_ref::<windlass::Error>().is_none_or(|error| error.kind().is_definite());
        if let (Some(entry), true) = (self.entry, is_refusal) {
            let detail = refusal(entry, &error.to_string());
            let Noted { windlass, by, action, tenant, run, .. } = self;
            let noted = windlass.note_action_for(tenant, &by, action, run, Some(&detail)).await;
            if let Err(failed) = noted {
                return Err(error.context(format!("the refusal was not logged: {failed}")));
            }
        }
        Err(error)
    }
}

/// What something is done to.
pub(crate) struct About {
    /// Whose it is; none for what all tenants share.
    tenant: Option<Tenant>,
    run: Option<RunId>,
}

impl About {
    /// What all tenants share.
    pub(crate) fn all() -> Self {
        About { tenant: None, run: None }
    }

    /// A tenant's run.
    pub(crate) fn run(tenant: Tenant, run: RunId) -> Self {
        About { tenant: Some(tenant), run: Some(run) }
    }
}

impl From<Option<Tenant>> for About {
    fn from(tenant: Option<Tenant>) -> Self {
        About { tenant, run: None }
    }
}

/// The user's name and that of the machine, such as `anna@ops-1`.
fn whoever() -> String {
    let word = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = word("USER").or_else(|| word("LOGNAME")).or_else(|| word("USERNAME"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = kernel.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let host = host.or_else(|| word("HOSTNAME")).or_else(|| word("COMPUTERNAME"));
    let name = format!(
        "{}@{}",
        user.unwrap_or_else(|| "unknown".to_owned()),
        host.unwrap_or_else(|| "unknown".to_owned())
    );
    name.chars().filter(|letter| !letter.is_control()).take(NAME_CHARS_MAX).collect()
}

/// The most characters of a name that is made here: one of four bytes each fits the limit.
const NAME_CHARS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::Operator;

    #[test]
    fn whoever_calls_has_a_name() {
        let name = whoever();
        assert!(name.contains('@') && Operator::new(&name).is_ok(), "{name}");
    }
}
