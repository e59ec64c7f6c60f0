//! Who makes a request: the one place where that is decided.
//!
//! Every request passes through `Door::identify` once, before anything else looks at it; what
//! handlers are given is an [`Identity`] and never the headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use tokio_util::sync::CancellationToken;
use windlass::store::{
    AUTHOR_METADATA, Author, LogEntry, METADATA_PAIRS_MAX, NewRun, RESERVED_METADATA, Scopes,
    Store, StoreError,
};
use windlass::{Operator, Role, Roles, Tenant, Timestamp, Token, TokenId};

use crate::connections::Whence;
use crate::list_turns::{ListTurn, Reader};
use crate::passes::{Pass, Passes};
use crate::problem::Problem;
use crate::rights::{Need, Reach, Right};

/// How a token is shown, in the header `Authorization`.
const SCHEME: &str = "Bearer";

/// Who may do what at a server.
#[derive(Clone, Debug)]
pub struct Access(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Everyone may do everything, for this tenant or for all.
    InsecureDev(Option<Tenant>),
    /// Whoever shows a token may do what its roles say.
    Tokens,
}

impl Access {
    /// Everyone must show a token that was made at the database.
    pub fn tokens() -> Self {
        Access(Kind::Tokens)
    }

    /// Everyone who reaches the server may do everything. For development: such a server only
    /// listens on loopback.
    pub fn insecure_dev() -> Self {
        Access(Kind::InsecureDev(None))
    }

    /// The same for one tenant: nobody sees what others have. With tokens, those say it.
    #[must_use]
    pub fn for_tenant(self, tenant: Tenant) -> Self {
        match self.0 {
            Kind::InsecureDev(_) => Access(Kind::InsecureDev(Some(tenant))),
            Kind::Tokens => self,
        }
    }

    /// Whether requests may come from other machines: only if they must say who they are.
    pub fn asks_for_credentials(&self) -> bool {
        match self.0 {
            Kind::InsecureDev(_) => false,
            Kind::Tokens => true,
        }
    }
}

/// Where requests say who makes them.
pub(crate) struct Door {
    access: Access,
    passes: Arc<Passes>,
    store: Arc<dyn Store>,
    scopes: Scopes,
}

impl Door {
    pub(crate) fn new(access: Access, store: Arc<dyn Store>) -> Self {
        let passes = Arc::new(Passes::new(Arc::clone(&store)));
        let scopes = Scopes::new(Arc::clone(&store));
        Door { access, passes, store, scopes }
    }

    /// The store as whoever has this tenant, or all of them, may use it.
    fn store_of(&self, tenant: Option<&Tenant>) -> Arc<dyn Store> {
        match tenant {
            None => Arc::clone(&self.store),
            Some(tenant) => self.scopes.of(tenant),
        }
    }

    /// Keeps what is known of tokens up to date.
    pub(crate) async fn keep_fresh(&self) {
        match self.access.0 {
            Kind::InsecureDev(_) => std::future::pending().await,
            Kind::Tokens => self.passes.keep_fresh().await,
        }
    }

    /// Who makes this request, if that one may do what it needs.
    pub(crate) async fn identify(&self, request: &Parts, need: Need) -> Result<Identity, Problem> {
        let passes = Arc::clone(&self.passes);
        let origin = request.extensions.get::<Whence>().map(|whence| whence.as_str().to_owned());
        let identity = match &self.access.0 {
            Kind::InsecureDev(tenant) => {
                let name = Operator::new("insecure-dev")?;
                let (roles, tenant) = (Roles::from(Role::Admin), tenant.clone());
                let store = self.store_of(tenant.as_ref());
                Identity { name, roles, tenant, origin, pass: None, passes, store }
            }
            Kind::Tokens if need.right == Right::Open => {
                let (name, roles) = (Operator::new("anyone")?, Roles::from(Role::Viewer));
                let store = self.store_of(None);
                let tenant = None;
                return Ok(Identity { name, roles, tenant, origin, pass: None, passes, store });
            }
            Kind::Tokens => {
                let token = token_of(&request.headers)?;
                let pass = self.passes.admit(&token).await?;
                let store = self.store_of(pass.record().tenant.as_ref());
                Identity::of(pass, passes, origin, store)
            }
        };
        identity.check(need)?;
        Ok(identity)
    }
}

/// The token that a request shows.
fn token_of(headers: &HeaderMap) -> Result<Token, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        let why = "the request has no token: send it as \"Authorization: Bearer wl_…\", once";
        return Err(Problem::unauthenticated(why));
    };
    let shown = value.to_str().ok().and_then(|text| text.split_once(' '));
    let token = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
    let Some((_, token)) = token else {
        return Err(Problem::unauthenticated("Authorization is not of the form \"Bearer wl_…\""));
    };
    Token::parse(token.trim())
        .map_err(|error| Problem::unauthenticated(format!("the token makes no sense: {error}")))
}

/// Who makes a request.
#[derive(Clone)]
pub struct Identity {
    name: Operator,
    roles: Roles,
    tenant: Option<Tenant>,
    origin: Option<String>,
    pass: Option<Arc<Pass>>,
    passes: Arc<Passes>,
    store: Arc<dyn Store>,
}

impl Identity {
    fn of(
        pass: Arc<Pass>,
        passes: Arc<Passes>,
        origin: Option<String>,
        store: Arc<dyn Store>,
    ) -> Self {
        let record = pass.record();
        let (name, roles, tenant) = (record.name.clone(), record.roles, record.tenant.clone());
        Identity { name, roles, tenant, origin, pass: Some(pass), passes, store }
    }

    /// Refuses what it may not do.
    fn check(&self, need: Need) -> Result<(), Problem> {
        if !need.right.is_of(self.roles) {
            let (words, name, roles) = (need.right.words(), self.name.as_str(), self.roles);
            let why = format!("this needs the role {words}, and {name:?} is {roles}");
            return Err(Problem::forbidden(why));
        }
        match need.reach {
            Reach::Tenant => Ok(()),
            Reach::All => self.for_all_tenants(),
        }
    }

    /// The store as it may use it: who has one tenant is given no other's things by it.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Waits for its turn to read a list. A caller without a token is on a server for development and
    /// needs none.
    ///
    /// # Errors
    ///
    /// `Limited` if it reads too many lists.
    pub(crate) async fn begin_list(&self) -> Result<Option<ListTurn>, StoreError> {
        let reader = match (self.token(), &self.tenant) {
            (None, _) => return Ok(None),
            (Some(_), Some(tenant)) => Reader::Tenant(tenant.clone()),
            (Some(token), None) => Reader::Token(token),
        };
        self.passes.lists().begin(reader).await.map(Some)
    }

    /// What it is called in the log.
    pub fn name(&self) -> &Operator {
        &self.name
    }

    /// What it may do.
    pub fn roles(&self) -> Roles {
        self.roles
    }

    /// The token that it showed.
    pub fn token(&self) -> Option<TokenId> {
        self.pass.as_ref().map(|pass| pass.record().id)
    }

    /// When its token ends to hold, if it does by itself.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.pass.as_ref().and_then(|pass| pass.record().expires_at)
    }

    /// A token was revoked: it holds no more here, at once.
    pub(crate) fn forget(&self, token: TokenId) {
        self.passes.forget(token);
    }

    /// Who does what it asks for, for the log.
    pub fn author(&self) -> Author {
        let (name, origin) = (self.name.clone(), self.origin.clone());
        Author { name, token: self.token(), origin }
    }

    /// Writes into a run who starts it. Starts are not in the log: that would have a line for each
    /// run for ever, while this goes with the run.
    ///
    /// # Errors
    ///
    /// A problem if the run has no room for it.
    pub fn sign(&self, run: &mut NewRun) -> Result<(), Problem> {
        strip_reserved(&mut run.metadata);
        let Some(token) = self.token() else { return Ok(()) };
        let origin = self.origin.as_deref().unwrap_or("-");
        let by = format!("{} ({token}, {origin})", self.name);
        run.metadata.insert(AUTHOR_METADATA.to_owned(), by);
        if run.metadata.len() <= METADATA_PAIRS_MAX {
            return Ok(());
        }
        let most = METADATA_PAIRS_MAX - 1;
        let why = format!(
            "run {} has more than {most} pairs, and one is who starts it ({AUTHOR_METADATA})",
            run.id
        );
        Err(Problem::field("metadata", why))
    }

    /// Removes from lines of the log who wrote them, unless the caller is an admin or wrote them
    /// itself: names of tokens and addresses are for admins.
    pub(crate) fn redact(&self, entries: &mut [LogEntry]) {
        if self.roles.has(Role::Admin) {
            return;
        }
        let hidden = Operator::new("hidden").expect("it is a name");
        let is_own = |by: &Author| by.token.is_some() && by.token == self.token();
        for entry in entries.iter_mut().filter(|entry| !is_own(&entry.by)) {
            entry.by = Author { name: hidden.clone(), token: None, origin: None };
        }
    }

    /// Refuses to search the log by author, unless the caller is an admin.
    ///
    /// # Errors
    ///
    /// A problem if it is none.
    pub(crate) fn may_search_by_author(&self, by: Option<&Operator>) -> Result<(), Problem> {
        match by {
            Some(_) if !self.roles.has(Role::Admin) => {
                Err(Problem::forbidden("searching the log by author needs the role admin"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends when its token holds no more: what it has open is to be closed.
    pub(crate) fn over(&self) -> CancellationToken {
        self.pass.as_ref().map_or_else(CancellationToken::new, |pass| pass.over().clone())
    }

    /// The only tenant whose things it may see, if it is not all of them.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// Whose something new is: the tenant that the request names, or its own, or `default`.
    ///
    /// # Errors
    ///
    /// A problem if the request names a tenant that it may not act for.
    pub fn acts_for(&self, named: Option<Tenant>) -> Result<Tenant, Problem> {
        match (named, &self.tenant) {
            (Some(named), Some(own)) if named != *own => {
                let why = format!("tenant {named:?} is not yours, which is {own:?}");
                Err(Problem::forbidden(why))
            }
            (Some(named), _) => Ok(named),
            (None, Some(own)) => Ok(own.clone()),
            (None, None) => Ok(Tenant::default()),
        }
    }

    /// Of which tenant a list is: the one that the request names, or its own, or all.
    ///
    /// # Errors
    ///
    /// A problem if the request names a tenant that it may not look at.
    pub fn looks_at(&self, named: Option<Tenant>) -> Result<Option<Tenant>, Problem> {
        match (named, &self.tenant) {
            (None, own) => Ok(own.clone()),
            (named @ Some(_), _) => self.acts_for(named).map(Some),
        }
    }

    /// Whether it may see what belongs to a tenant. What it may not see does not exist for it.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// Refuses whoever has one tenant: the request is about what all of them share.
    ///
    /// # Errors
    ///
    /// A problem if it has one tenant.
    pub fn for_all_tenants(&self) -> Result<(), Problem> {
        match &self.tenant {
            None => Ok(()),
            Some(own) => {
                let why = format!("this is about all tenants, and you are {own:?} only");
                Err(Problem::forbidden(why))
            }
        }
    }
}

/// Takes out of the metadata of a run what only the engine says of it.
pub(crate) fn strip_reserved(metadata: &mut BTreeMap<String, String>) {
    metadata.retain(|name, _| !name.starts_with(RESERVED_METADATA));
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Identity { name, roles, tenant, origin, .. } = self;
        let mut shown = f.debug_struct("Identity");
        shown.field("name", name).field("roles", roles).field("tenant", tenant);
        shown.field("origin", origin).finish_non_exhaustive()
    }
}

impl From<windlass_core::NameError> for Problem {
    fn from(error: windlass_core::NameError) -> Self {
        Problem::new(windlass::ErrorKind::Argument, error.to_string())
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let identity = parts.extensions.get::<Identity>().cloned();
        identity.ok_or_else(|| Problem::forbidden("nobody said who makes this request"))
    }
}

#[cfg(test)]
mod tests {
    use windlass::store::MemoryStore;

    use super::*;

    #[test]
    fn a_token_is_shown_once_and_as_a_bearer() {
        let of = |values: &[&str]| {
            let values = values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap()));
            token_of(&HeaderMap::from_iter(values.collect::<Vec<_>>()))
        };
        let token = crate::token::mint(Role::Viewer.into()).unwrap();
        let text = token.text();
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let shown = of(&[&format!("{scheme} {}", text.expose())]).unwrap();
            assert_eq!(shown.id(), token.id());
        }
        let bare = text.expose();
        let cut = format!("Bearer {}", &bare[..bare.len() - 1]);
        for wrong in [&[][..], &[bare], &["Basic YTpi"], &["Bearer"], &["Bearer "], &[&cut]] {
            let problem = of(wrong).unwrap_err();
            assert_eq!(problem.status(), 401, "{wrong:?}");
            assert!(!problem.detail().contains(token.secret().expose()));
        }
    }

    #[test]
    fn a_request_with_two_tokens_is_refused() {
        let token = crate::token::mint(Role::Viewer.into()).unwrap();
        let shown = format!("Bearer {}", token.text().expose());
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, shown.parse().unwrap());
        assert!(token_of(&headers).is_ok());
        headers.append(AUTHORIZATION, shown.parse().unwrap());
        assert_eq!(token_of(&headers).unwrap_err().status(), 401);
    }

    #[test]
    fn roles_and_tenant_say_what_may_be_done() {
        let need = |right, reach| Need { right, reach };
        let viewer = Identity { roles: Role::Viewer.into(), ..identity(Some("acme")) };
        assert!(viewer.check(need(Right::Read, Reach::Tenant)).is_ok());
        let refused = viewer.check(need(Right::Steer, Reach::Tenant)).unwrap_err();
        assert_eq!(
            refused.detail(),
            "this needs the role operator or admin, and \"anna\" is viewer"
        );
        assert_eq!(viewer.check(need(Right::Read, Reach::All)).unwrap_err().status(), 403);
        assert!(identity(None).check(need(Right::Administer, Reach::All)).is_ok());
    }

    fn identity(tenant: Option<&str>) -> Identity {
        let tenant = tenant.map(|tenant| Tenant::new(tenant).unwrap());
        Identity {
            name: Operator::new("anna").unwrap(),
            roles: Role::Admin.into(),
            tenant,
            origin: None,
            pass: None,
            passes: Arc::new(Passes::new(Arc::new(MemoryStore::new()))),
            store: Arc::new(MemoryStore::new()),
        }
    }

    #[test]
    fn whoever_has_one_tenant_acts_for_no_other() {
        let acme = || Some(Tenant::new("acme").unwrap());
        let own = identity(Some("acme"));
        assert_eq!(own.acts_for(None).unwrap(), acme().unwrap());
        assert_eq!(own.acts_for(acme()).unwrap(), acme().unwrap());
        assert_eq!(own.looks_at(None).unwrap(), acme());
        let other = Tenant::new("other").unwrap();
        assert_eq!(own.acts_for(Some(other.clone())).unwrap_err().status(), 403);
        assert!(own.looks_at(Some(other.clone())).is_err());
        assert!(!own.sees(&other));
        assert!(own.for_all_tenants().is_err());
        let all = identity(None);
        assert_eq!(all.acts_for(None).unwrap(), Tenant::default());
        assert_eq!(all.looks_at(None).unwrap(), None);
        assert!(all.sees(&other) && all.for_all_tenants().is_ok());
    }
}
