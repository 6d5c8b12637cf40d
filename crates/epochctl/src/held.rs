//! What a holder does with its grants: `release`, `transfer`, `certify`.

use epoch_client::Client;
use epoch_proto::v1;

use crate::args::{Certify, Held, Transfer};
use crate::exit::Failure;
use crate::output::{Output, pairs};

pub(crate) async fn release(client: &Client, output: Output, command: Held) -> Result<(), Failure> {
    let request = v1::ReleaseRequest {
        scope: command.scope.as_str().to_owned(),
        epoch: command.epoch.get(),
        session_id: command.session.id()?.to_string(),
    };
    let answer = client.release(request).await?;
    output.result(&answer, || match answer.released {
        true => "released".to_owned(),
        false => "it is free: nothing had to be released".to_owned(),
    })
}

pub(crate) async fn transfer(
    client: &Client,
    output: Output,
    command: Transfer,
) -> Result<(), Failure> {
    let to = command.to.session_hash()?.to_string();
    let request = v1::TransferRequest {
        scope: command.held.scope.as_str().to_owned(),
        epoch: command.held.epoch.get(),
        session_id: command.held.session.id()?.to_string(),
        to: to.clone(),
    };
    let answer = client.transfer(request).await.map_err(|error| {
        if error.outcome_unknown() {
            output.note("the outcome is unknown; the same command again says it");
        }
        Failure::from(error)
    })?;
    output.result(&answer, || {
        pairs([
            ("scope", answer.scope.clone()),
            ("ended", command.held.epoch.to_string()),
            ("epoch", answer.epoch.to_string()),
            ("session hash", to),
        ])
    })
}

pub(crate) async fn certify(
    client: &Client,
    output: Output,
    command: Certify,
) -> Result<(), Failure> {
    let request = v1::CertifyRequest {
        scope: command.held.scope.as_str().to_owned(),
        epoch: command.held.epoch.get(),
        session_id: command.held.session.id()?.to_string(),
        audience: command.audience,
        signatures: command.signed.signatures,
    };
    let answer = client.certify(request).await?;
    output.result(&answer, || answer.certificate.clone())
}
