//! Where a list goes on: hidden, so that nobody builds on its form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::{Principal, RequestId, Scope};
use epoch_machine::{SessionKey, SessionPlace};

use super::Result;
use super::failure::Failure;

pub(super) fn of_scope(scope: &Scope) -> String {
    encode(scope.as_str())
}

pub(super) fn scope(page: &str) -> Result<Scope> {
    Scope::parse(&decode(page)?).map_err(|_not_a_scope| refused())
}

pub(super) fn of_session_key(key: SessionKey) -> String {
    encode(&format!("{}.{}", key.index, key.offset))
}

pub(super) fn session_key(page: &str) -> Result<SessionKey> {
    let text = decode(page)?;
    let (index, offset) = text.split_once('.').ok_or_else(refused)?;
    Ok(SessionKey {
        index: index.parse().map_err(|_not_a_number| refused())?,
        offset: offset.parse().map_err(|_not_a_number| refused())?,
    })
}

pub(super) fn of_session_place(place: &SessionPlace) -> String {
    encode(&match place {
        SessionPlace::Grant(request_id, scope) => {
            format!("g{}.{scope}", request_id.map_or(0, RequestId::get))
        }
        SessionPlace::Wait(request_id) => format!("w{request_id}"),
    })
}

pub(super) fn session_place(page: &str) -> Result<SessionPlace> {
    let text = decode(page)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_not_a_number| refused());
    if let Some(wait) = text.strip_prefix('w') {
        let request_id = RequestId::new(number(wait)?).map_err(|_range| refused())?;
        return Ok(SessionPlace::Wait(request_id));
    }
    let grant = text.strip_prefix('g').and_then(|rest| rest.split_once('.'));
    let (request_id, scope) = grant.ok_or_else(refused)?;
    let request_id = match number(request_id)? {
        0 => None,
        some => Some(RequestId::new(some).map_err(|_range| refused())?),
    };
    let scope = Scope::parse(scope).map_err(|_not_a_scope| refused())?;
    Ok(SessionPlace::Grant(request_id, scope))
}

pub(super) fn of_principal(principal: &Principal) -> String {
    encode(principal.as_str())
}

pub(super) fn principal(page: &str) -> Result<Principal> {
    Principal::parse(&decode(page)?).map_err(|_not_one| refused())
}

pub(super) fn of_number(number: u64) -> String {
    encode(&number.to_string())
}

pub(super) fn number(page: &str) -> Result<u64> {
    decode(page)?.parse().map_err(|_not_a_number| refused())
}

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

fn decode(page: &str) -> Result<String> {
    let bytes = URL_SAFE_NO_PAD
        .decode(page)
        .map_err(|_not_base64| refused())?;
    String::from_utf8(bytes).map_err(|_not_text| refused())
}

fn refused() -> Failure {
    Failure::field("page", "it is not a next_page of an earlier answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_back() {
        let scope_a = Scope::parse("a.b").unwrap();
        let id = RequestId::new(7).unwrap();
        for place in [
            SessionPlace::Grant(None, scope_a.clone()),
            SessionPlace::Grant(Some(id), scope_a.clone()),
            SessionPlace::Wait(id),
        ] {
            assert_eq!(session_place(&of_session_place(&place)).unwrap(), place);
        }
        let key = SessionKey {
            index: 9,
            offset: 3,
        };
        assert_eq!(session_key(&of_session_key(key)).unwrap(), key);
        assert_eq!(scope(&of_scope(&scope_a)).unwrap(), scope_a);
        for bad in ["", "!", "Zw", "dzA"] {
            assert!(
                session_place(bad).is_err() && session_key(bad).is_err(),
                "{bad}"
            );
        }
    }
}
