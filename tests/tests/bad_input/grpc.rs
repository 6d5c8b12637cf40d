//! Over gRPC.

use anyhow::{Context as _, Result, ensure};
use epoch_core::Reason::{InvalidArgument, SessionExpired};
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{
    AcquireRequest, CertifyRequest, CloseRequest, GetRequest, KeepAliveRequest, ListRequest,
    OpenRequest, ReleaseRequest, RevokeRequest,
};
use prost_types::Duration;
use tonic::Code;

use crate::raw;
use crate::setting::Setting;
use crate::values::{BAD_SESSIONS, NO_SESSION, TOO_HIGH, bad_names};

fn acquire_request(setting: &Setting) -> AcquireRequest {
    AcquireRequest {
        scope: "s".to_owned(),
        session_id: setting.session.clone(),
        request_id: 2,
        ..AcquireRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_requests_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let good = acquire_request(&setting);
    let mut bad = vec![AcquireRequest::default()];
    bad.extend(bad_names(512).into_iter().map(|scope| AcquireRequest {
        scope,
        ..good.clone()
    }));
    bad.push(AcquireRequest {
        scope: "s".repeat(60 << 10),
        ..good.clone()
    });
    bad.extend(BAD_SESSIONS.iter().map(|session| AcquireRequest {
        session_id: (*session).to_owned(),
        ..good.clone()
    }));
    bad.extend([0, TOO_HIGH, u64::MAX].map(|request_id| AcquireRequest {
        request_id,
        ..good.clone()
    }));
    bad.push(AcquireRequest {
        audience: vec!["a".to_owned(); 17],
        ..good.clone()
    });
    bad.push(AcquireRequest {
        audience: vec![String::new()],
        ..good.clone()
    });
    let mut epochs = EpochServiceClient::new(setting.channel()?);
    for request in bad {
        let answer = epochs.acquire(request.clone()).await.map(drop);
        let what: String = format!("{request:?}").chars().take(200).collect();
        setting.check(&what, answer, InvalidArgument);
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_calls_that_cannot_be_answered_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let mut epochs = EpochServiceClient::new(setting.channel()?);
    let good = acquire_request(&setting);
    let two_days = Some(Duration {
        seconds: 2 * 24 * 3_600,
        nanos: 0,
    });
    for request in [
        AcquireRequest {
            wait: two_days,
            ..good.clone()
        },
        AcquireRequest {
            lock_delay: two_days,
            ..good.clone()
        },
        AcquireRequest {
            metadata: "m".repeat(1_025),
            ..good.clone()
        },
    ] {
        setting.check(
            "out of bounds",
            epochs.acquire(request).await.map(drop),
            InvalidArgument,
        );
    }
    let unknown = AcquireRequest {
        session_id: NO_SESSION.to_owned(),
        ..good
    };
    setting.check(
        "no session",
        epochs.acquire(unknown).await.map(drop),
        SessionExpired,
    );

    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_names_and_epochs_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let mut epochs = EpochServiceClient::new(setting.channel()?);
    for epoch in [0, TOO_HIGH, u64::MAX] {
        let (scope, session_id) = ("held".to_owned(), setting.session.clone());
        let release = ReleaseRequest {
            scope: scope.clone(),
            epoch,
            session_id: session_id.clone(),
        };
        setting.check(
            "release",
            epochs.release(release).await.map(drop),
            InvalidArgument,
        );
        let revoke = RevokeRequest {
            scope: scope.clone(),
            epoch: Some(epoch),
            ..RevokeRequest::default()
        };
        setting.check(
            "revoke",
            epochs.revoke(revoke).await.map(drop),
            InvalidArgument,
        );
        let certify = CertifyRequest {
            scope,
            epoch,
            session_id,
            audience: Vec::new(),
            ..CertifyRequest::default()
        };
        setting.check(
            "certify",
            epochs.certify(certify).await.map(drop),
            InvalidArgument,
        );
    }
    for scope in bad_names(512) {
        let get = GetRequest {
            scope: scope.clone(),
            ..GetRequest::default()
        };
        setting.check("get", epochs.get(get).await.map(drop), InvalidArgument);
        let revoke = RevokeRequest {
            scope,
            ..RevokeRequest::default()
        };
        setting.check(
            "revoke",
            epochs.revoke(revoke).await.map(drop),
            InvalidArgument,
        );
    }
    let list = ListRequest {
        limit: 1_001,
        ..ListRequest::default()
    };
    setting.check("list", epochs.list(list).await.map(drop), InvalidArgument);
    let list = ListRequest {
        page: Some("\u{0}".to_owned()),
        ..ListRequest::default()
    };
    setting.check("list", epochs.list(list).await.map(drop), InvalidArgument);
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_sessions_out_of_range_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let mut sessions = SessionServiceClient::new(setting.channel()?);
    let ttl = Some(Duration {
        seconds: 10,
        nanos: 0,
    });
    let good = OpenRequest {
        holder: "h".to_owned(),
        ttl,
        open_id: None,
        ..OpenRequest::default()
    };
    let mut bad: Vec<_> = bad_names(256)
        .into_iter()
        .map(|holder| OpenRequest {
            holder,
            ..good.clone()
        })
        .collect();
    for (seconds, nanos) in [
        (0, 0),
        (0, 999_000_000),
        (-1, 0),
        (1, 1),
        (1, -1),
        (1, i32::MAX),
        (86_400, 1_000_000),
        (i64::MAX, 0),
        (i64::MIN, i32::MIN),
    ] {
        bad.push(OpenRequest {
            ttl: Some(Duration { seconds, nanos }),
            ..good.clone()
        });
    }
    bad.push(OpenRequest {
        ttl: None,
        ..good.clone()
    });
    bad.push(OpenRequest {
        open_id: Some("x".to_owned()),
        ..good.clone()
    });
    bad.push(OpenRequest {
        open_id: Some(String::new()),
        ..good
    });
    for request in bad {
        let answer = sessions.open(request.clone()).await.map(drop);
        setting.check(&format!("{request:?}"), answer, InvalidArgument);
    }
    for session in BAD_SESSIONS {
        let close = CloseRequest {
            session_id: (*session).to_owned(),
        };
        setting.check(
            session,
            sessions.close(close).await.map(drop),
            InvalidArgument,
        );
        let keep = KeepAliveRequest {
            session_id: (*session).to_owned(),
            ..KeepAliveRequest::default()
        };
        let answers = sessions.keep_alive(tokio_stream::once(keep)).await?;
        let answer = answers.into_inner().message().await?.context("no answer")?;
        let reason = answer.reason.as_deref();
        if reason != Some("INVALID_ARGUMENT") || !answer.session_id.is_empty() {
            setting.note(format!("keepalive of {session}: {answer:?}"));
        }
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_messages_of_more_than_64_kib_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    let long = "s".repeat(64 << 10);
    let mut epochs = EpochServiceClient::new(setting.channel()?);
    let acquire = AcquireRequest {
        scope: long.clone(),
        ..acquire_request(&setting)
    };
    let acquired = epochs.acquire(acquire).await.map(drop);
    let mut sessions = SessionServiceClient::new(setting.channel()?);
    let keep = KeepAliveRequest {
        session_id: long,
        ..KeepAliveRequest::default()
    };
    let kept = sessions.keep_alive(tokio_stream::once(keep)).await?;
    let kept = kept.into_inner().message().await.map(drop);
    for (what, answer) in [("acquire", acquired), ("keepalive", kept)] {
        // It never reaches epochd's own code, which could give a reason.
        let code = answer.err().map(|status| status.code());
        if code != Some(Code::OutOfRange) {
            setting.note(format!("{what}: {code:?}"));
        }
    }
    setting.goes_on().await
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_bytes_that_are_no_message_are_refused() -> Result<()> {
    let setting = Setting::new().await?;
    for bytes in [
        vec![0xff; 16],
        vec![0x0a, 0x7f],
        vec![0x0a, 0x02, 0xff, 0xfe],
        vec![0x1b; 4096],
    ] {
        let status = raw::call(
            &setting.channel()?,
            "/epochd.v1.EpochService/Acquire",
            bytes,
        )
        .await;
        let code = status.err().map(|status| status.code());
        // What cannot be parsed never reaches epochd's own code, which could give a reason.
        ensure!(
            matches!(
                code,
                Some(Code::Internal | Code::InvalidArgument | Code::OutOfRange)
            ),
            "{code:?}"
        );
    }
    for path in ["/epochd.v1.EpochService/NoSuch", "/no.such/Thing"] {
        let status = raw::call(&setting.channel()?, path, Vec::new()).await;
        let code = status.err().map(|status| status.code());
        assert_eq!(code, Some(Code::Unimplemented), "{path}");
    }
    let channel = setting.channel()?;
    let huge = raw::call(
        &channel,
        "/epochd.v1.EpochService/Acquire",
        vec![0; 8 << 20],
    );
    ensure!(huge.await.is_err(), "8 MiB were taken");
    setting.goes_on().await
}
