//! Who does something by hand.

use windlass::store::Action;
use windlass::{RunId, Tenant, Windlass};

/// What commands that change something by hand are told of who does it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OperatorArguments {
    /// Who does it, for the log; your name and that of this machine if nothing is said.
    #[arg(long = "by", value_name = "NAME", default_value_t = whoever())]
    by: String,
}

impl OperatorArguments {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.by
    }

    /// Writes down what is done, before it is.
    pub(crate) async fn note(
        &self,
        windlass: &Windlass,
        action: Action,
        about: impl Into<About>,
        detail: Option<&serde_json::Value>,
    ) -> Result<(), windlass::Error> {
        let About { tenant, run } = about.into();
        windlass.note_action_for(tenant, &self.by, action, run, detail).await
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
