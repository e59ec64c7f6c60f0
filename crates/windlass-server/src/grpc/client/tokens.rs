//! Who may use the server.

use windlass::store::{Action, NewToken, TokenFilter};
use windlass::wire::{Wire, parse};
use windlass_core::TokenId;
use windlass_proto::v1;

use super::{Caller, Refused};
use crate::token;

pub(super) async fn create_token(
    caller: &Caller,
    message: v1::NewToken,
) -> Result<v1::TokenRecord, Refused> {
    let new = NewToken::from_wire(message)?;
    token::check_new(&caller.identity, &new)?;
    let detail = token::detail(new.id, &new.name, new.roles);
    let noted = caller.identity.note(Action::CreateToken, new.tenant.clone(), Some(detail)).await?;
    Ok(noted.perform(caller.store.create_token(new)).await?.to_wire())
}

pub(super) async fn list_tokens(
    caller: &Caller,
    message: v1::ListTokensRequest,
) -> Result<v1::TokenPage, Refused> {
    let filter = TokenFilter::from_wire(message)?;
    let tenant = caller.identity.looks_at(filter.tenant)?;
    Ok(caller.store.list_tokens(TokenFilter { tenant, ..filter }).await?.to_wire())
}

pub(super) async fn revoke_token(
    caller: &Caller,
    message: v1::RevokeTokenRequest,
) -> Result<v1::TokenRecord, Refused> {
    let id: TokenId = parse("id", &message.id)?;
    let record = token::find(&caller.identity, &*caller.store, id).await?;
    let detail = token::detail(id, &record.name, record.roles);
    let noted = caller.identity.note(Action::RevokeToken, record.tenant, Some(detail)).await?;
    let record = noted.perform(caller.store.revoke_token(id)).await?;
    caller.identity.forget(id);
    Ok(record.to_wire())
}
