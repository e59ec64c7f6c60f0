//! Tokens as they are made and checked.
//!
//! The database keeps no secret, but what one is checked against: HMAC-SHA-256 over the id with the
//! secret as the key. A secret has 256 random bits, so there is nothing to slow down guessing for.

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use windlass::store::{NewToken, Store, TokenRecord, TokenTag};
use windlass::{Operator, Roles, Token, TokenId};
use windlass_core::token::SECRET_BYTES;

use crate::identity::Identity;
use crate::problem::Problem;

/// The machine has no random bytes to give.
#[derive(Debug, thiserror::Error)]
#[error("the system has no random bytes to make a token of")]
pub struct NoRandomness;

/// Makes a token of these roles.
///
/// # Errors
///
/// [`NoRandomness`] if the system gives none.
pub fn mint(roles: Roles) -> Result<Token, NoRandomness> {
    let random = SystemRandom::new();
    let (mut id, mut secret) = ([0; 16], [0; SECRET_BYTES]);
    random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| NoRandomness)?;
    let id = TokenId::from_random(u128::from_be_bytes(id));
    Ok(Token::new(roles.strongest(), id, &secret))
}

/// What is kept of a token to check it against.
pub fn tag_of(token: &Token) -> TokenTag {
    let tag = hmac::sign(&key_of(token), token.id().as_str().as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    TokenTag(bytes)
}

/// Whether the secret of a token is the one that the tag was made with, in a time that does not
/// depend on how much of it is right.
pub(crate) fn verifies(token: &Token, tag: &TokenTag) -> bool {
    hmac::verify(&key_of(token), token.id().as_str().as_bytes(), &tag.0).is_ok()
}

fn key_of(token: &Token) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.secret().expose().as_bytes())
}

/// Refuses a token that would be for more than whoever makes it, or for longer: who has one tenant
/// makes tokens for that one, and who has until tomorrow until then.
pub(crate) fn check_new(identity: &Identity, token: &NewToken) -> Result<(), Problem> {
    if let Some(end) = identity.expires_at()
        && token.expires_at.is_none_or(|at| at > end)
    {
        let why = format!("your token ends at {end}, and one that it makes may not hold longer");
        return Err(Problem::forbidden(why));
    }
    match (identity.tenant(), &token.tenant) {
        (Some(own), None) => {
            let why = format!("a token for all tenants is not yours to make, you are {own:?} only");
            Err(Problem::forbidden(why))
        }
        (_, named) => identity.acts_for(named.clone()).map(drop),
    }
}

/// A token that the caller may see.
pub(crate) async fn find(
    identity: &Identity,
    store: &dyn Store,
    id: TokenId,
) -> Result<TokenRecord, Problem> {
    let found = store.find_tokens(vec![id]).await?.pop().map(|token| token.record);
    let is_seen = |record: &TokenRecord| match &record.tenant {
        Some(tenant) => identity.sees(tenant),
        None => identity.tenant().is_none(),
    };
    found.filter(is_seen).ok_or_else(|| Problem::not_found(format_args!("token {id}")))
}

/// What the log says of a token.
pub(crate) fn detail(id: TokenId, name: &Operator, roles: Roles) -> serde_json::Value {
    serde_json::json!({ "token": id.as_str(), "name": name, "roles": roles.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::Role;

    #[test]
    fn a_token_verifies_against_its_own_tag_and_no_other() {
        let roles = Roles::from(Role::Viewer);
        let (one, other) = (mint(roles).unwrap(), mint(roles).unwrap());
        assert_ne!(one.id(), other.id());
        assert!(verifies(&one, &tag_of(&one)) && !verifies(&one, &tag_of(&other)));
        // The secret of another token does not help, whatever id it is shown with.
        let forged = Token::new(Role::Admin, one.id(), &[0; SECRET_BYTES]);
        assert!(!verifies(&forged, &tag_of(&one)));
    }
}
