//! Who may use a server.

use windlass_core::{ActionId, Operator, Role, Roles, TokenId};

use super::bench::{Bench, seconds, tenant};
use crate::store::{
    Action, Author, LogFilter, NewLogEntry, NewToken, StoreError, TOKEN_KEPT, TOKENS_MAX,
    TokenFilter, TokenRecord, TokenTag,
};

/// The list of cases of tokens and quotas, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! access_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            tokens {
                a_token_is_there_as_it_was_made
                a_token_that_is_made_again_is_the_same
                only_one_of_many_is_the_first_token
                a_token_that_was_revoked_stays_so_and_is_listed
                tokens_are_listed_newest_first_and_by_tenant
                tokens_that_held_no_more_for_long_go
                a_revoked_token_goes_though_it_would_expire_later
                a_tenant_with_as_many_tokens_as_it_may_have_leaves_room_to_others
                what_was_changed_is_logged_with_token_and_origin
            }
            quotas {
                a_quota_is_of_a_tenant_or_of_all_that_have_none
                quotas_have_limits
                what_a_tenant_has_is_counted_up_to_a_limit
                schedules_of_a_tenant_are_counted
            }
        }
    };
}

fn id(number: u128) -> TokenId {
    TokenId::from_random(number << 64)
}

fn token(number: u8) -> NewToken {
    NewToken {
        id: id(number.into()),
        tag: TokenTag([number; 32]),
        name: Operator::new(format!("token {number}")).expect("it is a name"),
        roles: Roles::from(Role::Operator),
        tenant: None,
        expires_at: None,
    }
}

impl Bench<'_> {
    async fn make(&self, token: NewToken) -> TokenRecord {
        self.store.create_token(token).await.expect("there is room")
    }

    async fn found(&self, number: u8) -> Option<TokenRecord> {
        let found = self.store.find_tokens(vec![id(number.into())]).await.expect("it is read");
        found.into_iter().next().map(|stored| stored.record)
    }
}

pub(crate) async fn a_token_is_there_as_it_was_made(bench: &Bench<'_>) {
    let now = bench.now().await;
    let roles = Roles::of([Role::Worker, Role::Operator]).expect("there are two");
    let expires_at = Some(now + seconds(60));
    let new = NewToken { roles, tenant: Some(tenant("acme")), expires_at, ..token(1) };
    let made = bench.make(new.clone()).await;
    let TokenRecord { created_at, last_used_at, revoked_at, .. } = made;
    assert!(created_at >= now && last_used_at.is_none() && revoked_at.is_none());
    assert_eq!((made.id, &made.name, made.roles), (new.id, &new.name, roles));
    assert_eq!((&made.tenant, made.expires_at), (&new.tenant, expires_at));
    let ids = vec![id(1), id(2)];
    let found = bench.store.find_tokens(ids).await.expect("it is read");
    assert_eq!(found.len(), 1, "there is no second one");
    assert_eq!((&found[0].record, found[0].tag), (&made, new.tag));
    assert!(found[0].at >= now && found[0].record.holds_at(found[0].at));
    bench.advance(seconds(61)).await;
    let found = bench.store.find_tokens(vec![id(1)]).await.expect("it is read");
    assert!(!found[0].record.holds_at(found[0].at), "its time is over");
    bench.store.touch_tokens(vec![id(1), id(2)]).await.expect("it is noted");
    let used = bench.found(1).await.and_then(|record| record.last_used_at);
    assert!(used.is_some_and(|at| at >= now + seconds(61)), "{used:?}");
}

pub(crate) async fn a_token_that_is_made_again_is_the_same(bench: &Bench<'_>) {
    let made = bench.make(token(1)).await;
    bench.advance(seconds(5)).await;
    let again = NewToken { name: Operator::new("other").expect("it is a name"), ..token(1) };
    assert_eq!(bench.make(again).await, made, "the first one holds");
    let other = NewToken { tag: TokenTag([9; 32]), ..token(1) };
    let answer = bench.store.create_token(other).await;
    assert!(matches!(&answer, Err(StoreError::Conflict(why)) if why.contains("another secret")));
    assert_eq!(bench.found(1).await, Some(made));
}

pub(crate) async fn only_one_of_many_is_the_first_token(bench: &Bench<'_>) {
    let first = |number| bench.store.create_first_token(token(number));
    let made = tokio::join!(first(1), first(2), first(3), first(4));
    let made = [made.0, made.1, made.2, made.3];
    assert_eq!(made.iter().filter(|is_made| **is_made == Ok(true)).count(), 1, "{made:?}");
    let page = bench.store.list_tokens(TokenFilter::default()).await.expect("it is read");
    assert_eq!(page.tokens.len(), 1);
    let made_ones = LogFilter { action: Some(Action::CreateToken), ..LogFilter::default() };
    let log = bench.store.list_log(made_ones).await.expect("it is read");
    assert_eq!(log.entries.len(), 1, "it is written down");
    let detail = log.entries[0].detail.as_ref().expect("it says which").as_str();
    assert!(detail.contains(page.tokens[0].id.as_str()), "{detail}");
    // Whoever asks again because the answer was lost is told the same.
    let which = made.iter().position(|is_made| *is_made == Ok(true)).expect("one was");
    assert_eq!(first(which as u8 + 1).await, Ok(true));
    bench.store.revoke_token(page.tokens[0].id).await.expect("it is there");
    assert_eq!(first(5).await, Ok(false), "there was one before");
}

pub(crate) async fn a_token_that_was_revoked_stays_so_and_is_listed(bench: &Bench<'_>) {
    bench.make(token(1)).await;
    let revoked = bench.store.revoke_token(id(1)).await.expect("it is there");
    let at = revoked.revoked_at.expect("it was revoked");
    assert!(!revoked.holds_at(at));
    bench.advance(seconds(5)).await;
    assert_eq!(bench.store.revoke_token(id(1)).await, Ok(revoked.clone()), "since then");
    assert_eq!(bench.make(token(1)).await, revoked, "to make it again does not help");
    let missing = bench.store.revoke_token(id(2)).await;
    assert_eq!(missing, Err(StoreError::NotFound(format!("token {}", id(2)))));
    let page = bench.store.list_tokens(TokenFilter::default()).await.expect("it is read");
    assert_eq!(page.tokens, [revoked]);
}

pub(crate) async fn tokens_are_listed_newest_first_and_by_tenant(bench: &Bench<'_>) {
    for number in 1..=5 {
        let whose = if number % 2 == 0 { "even" } else { "odd" };
        bench.make(NewToken { tenant: Some(tenant(whose)), ..token(number) }).await;
        bench.advance(seconds(1)).await;
    }
    let ids = |tokens: &[TokenRecord]| tokens.iter().map(|it| it.id).collect::<Vec<_>>();
    let mut filter = TokenFilter { limit: 2, ..TokenFilter::default() };
    let mut all = Vec::new();
    loop {
        let page = bench.store.list_tokens(filter.clone()).await.expect("it is read");
        assert!(page.tokens.len() <= 2);
        all.extend(ids(&page.tokens));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(all, [id(5), id(4), id(3), id(2), id(1)]);
    let filter = TokenFilter { tenant: Some(tenant("even")), ..TokenFilter::default() };
    let page = bench.store.list_tokens(filter).await.expect("it is read");
    assert_eq!((ids(&page.tokens), page.next), (vec![id(4), id(2)], None));
}

pub(crate) async fn tokens_that_held_no_more_for_long_go(bench: &Bench<'_>) {
    let expires_at = Some(bench.now().await + seconds(10));
    bench.make(NewToken { expires_at, ..token(1) }).await;
    bench.make(token(2)).await;
    bench.make(token(3)).await;
    bench.store.revoke_token(id(2)).await.expect("it is there");
    bench.advance(TOKEN_KEPT - seconds(60)).await;
    bench.make(token(4)).await;
    assert!(bench.found(1).await.is_some() && bench.found(2).await.is_some());
    bench.advance(seconds(120)).await;
    bench.make(token(5)).await;
    assert!(bench.found(1).await.is_none() && bench.found(2).await.is_none());
    assert!(bench.found(3).await.is_some() && bench.found(4).await.is_some());
}

pub(crate) async fn a_revoked_token_goes_though_it_would_expire_later(bench: &Bench<'_>) {
    let expires_at = Some(bench.now().await + 2 * TOKEN_KEPT);
    bench.make(NewToken { expires_at, ..token(1) }).await;
    bench.store.revoke_token(id(1)).await.expect("it is there");
    bench.advance(TOKEN_KEPT).await;
    bench.make(token(2)).await;
    assert!(bench.found(1).await.is_none());
}

pub(crate) async fn a_tenant_with_as_many_tokens_as_it_may_have_leaves_room_to_others(
    bench: &Bench<'_>,
) {
    let of = |whose: &str, number: usize| NewToken {
        id: id(number as u128),
        tenant: Some(tenant(whose)),
        ..token(1)
    };
    for number in 1..=TOKENS_MAX {
        bench.make(of("acme", number)).await;
    }
    let more = of("acme", TOKENS_MAX + 1);
    let refused = bench.store.create_token(more.clone()).await;
    let told = |why: &str| why.contains("\"acme\"") && why.contains("revoke some");
    assert!(matches!(&refused, Err(StoreError::Conflict(why)) if told(why)), "{refused:?}");
    bench.make(of("zenith", TOKENS_MAX + 2)).await;
    bench.make(NewToken { tenant: None, ..of("all", TOKENS_MAX + 3) }).await;
    // Those that hold no more give way, the one that ended first before others.
    bench.store.revoke_token(id(7)).await.expect("it is there");
    bench.advance(seconds(1)).await;
    bench.store.revoke_token(id(5)).await.expect("it is there");
    bench.make(more).await;
    assert!(bench.found(7).await.is_none() && bench.found(5).await.is_some());
}

pub(crate) async fn what_was_changed_is_logged_with_token_and_origin(bench: &Bench<'_>) {
    if bench.store.keeps_log() {
        // It knows by itself who asks, and from where.
        return;
    }
    let name = Operator::new("ci").expect("it is a name");
    let origin = Some("192.0.2.7".to_owned());
    let by = Author { name: name.clone(), token: Some(id(1)), origin };
    for (place, action) in Action::ALL.into_iter().enumerate() {
        let whose = (place % 2 == 0).then(|| tenant("acme"));
        let id = ActionId::from_random(place as u128 + 1);
        let (by, run, detail) = (by.clone(), None, None);
        let entry = NewLogEntry { id, by, action, tenant: whose, run, detail };
        bench.store.log(entry).await.expect("it is written");
    }
    let page = bench.store.list_log(LogFilter::default()).await.expect("it is read");
    assert_eq!(page.entries.len(), Action::ALL.len());
    assert!(page.entries.iter().all(|entry| entry.by == by));
    let filter = LogFilter { tenant: Some(tenant("acme")), by: Some(name), ..LogFilter::default() };
    let page = bench.store.list_log(filter).await.expect("it is read");
    assert_eq!(page.entries.len(), Action::ALL.len().div_ceil(2));
    let others = LogFilter { tenant: Some(tenant("other")), ..LogFilter::default() };
    assert!(bench.store.list_log(others).await.expect("it is read").entries.is_empty());
}
