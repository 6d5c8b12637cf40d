//! A client of the JSON surface that hides nothing: every answer with status, type and body.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// The longest a single call may take.
const CALL_BOUND: Duration = Duration::from_secs(15);

/// Between two tries of one call.
const RETRY_PAUSE: Duration = Duration::from_millis(25);

/// One node's client listener.
#[derive(Debug, Clone)]
pub struct JsonClient {
    base: String,
    http: reqwest::Client,
    patient: bool,
    token: Option<String>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// The body; null when it is not JSON.
    pub body: Value,
    /// The body as it was sent.
    pub text: String,
}

impl Answer {
    /// The reason of a problem document.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.body.get("reason")?.as_str()
    }

    /// The body of a success.
    ///
    /// # Errors
    /// It was none.
    pub fn ok(self) -> Result<Value> {
        let body = self.body.clone();
        self.ok_text().map(|_text| body)
    }

    /// The body of a success, as text.
    ///
    /// # Errors
    /// It was none.
    pub fn ok_text(self) -> Result<String> {
        if self.status == 200 {
            return Ok(self.text);
        }
        bail!("status {}: {}", self.status, self.text)
    }
}

impl JsonClient {
    /// A client of the node at `host:port`. Where the node has no leader to ask, it asks again, as
    /// every client has to: elections come when a busy machine wants them.
    ///
    /// # Errors
    /// The HTTP library cannot be set up.
    pub fn new(address: &str) -> Result<Self> {
        // A proxy from the environment has no business on loopback.
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(CALL_BOUND)
            .tls_certs_only([])
            .build()?;
        Ok(Self {
            base: format!("http://{address}"),
            http,
            patient: true,
            token: None,
        })
    }

    /// The same, for the bearer of a token.
    #[must_use]
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self {
            token: token.map(str::to_owned),
            ..self.clone()
        }
    }

    /// Status and, if it is a refusal, problem of a GET whose answer may have no end.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn head_of(&self, path: &str) -> Result<(u16, Value)> {
        let request = self.http.get(format!("{}{path}", self.base));
        let answer = self.with_bearer(request).send().await?;
        let status = answer.status().as_u16();
        if status == 200 {
            return Ok((status, Value::Null));
        }
        Ok((status, answer.json().await?))
    }

    fn with_bearer(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// As [`new`](Self::new), over TLS: with the node's CA, and a client certificate with its key
    /// if there is one, all as PEM.
    ///
    /// # Errors
    /// They are not what they should be.
    pub fn over_tls(address: &str, ca: &[u8], certificate: Option<&[u8]>) -> Result<Self> {
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .timeout(CALL_BOUND)
            .tls_certs_only([reqwest::Certificate::from_pem(ca)?]);
        if let Some(certificate) = certificate {
            http = http.identity(reqwest::Identity::from_pem(certificate)?);
        }
        Ok(Self {
            base: format!("https://{address}"),
            http: http.build()?,
            patient: true,
            token: None,
        })
    }

    /// The same, but giving every answer as it comes.
    #[must_use]
    pub fn impatient(&self) -> Self {
        Self {
            patient: false,
            ..self.clone()
        }
    }

    /// The listener's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// The URL of the cluster's public keys.
    #[must_use]
    pub fn jwks_url(&self) -> String {
        format!("{}/.well-known/jwks.json", self.base)
    }

    /// Any call, its body as text under any content type.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Answer> {
        let method = Method::from_bytes(method.as_bytes())?;
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .body(body);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        self.send(request).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer> {
        let request = self.with_bearer(request);
        if !self.patient {
            return send(request).await;
        }
        let mut last = None;
        let asking = async {
            loop {
                let again = request
                    .try_clone()
                    .context("the body cannot be sent twice")?;
                let answer = send(again).await?;
                if !matches!(answer.reason(), Some("NO_LEADER" | "NO_QUORUM")) {
                    return Ok(answer);
                }
                last = Some(answer);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        let answered = tokio::time::timeout(CALL_BOUND, asking).await;
        answered.or_else(|elapsed| last.map(Ok).ok_or(elapsed))?
    }

    /// A POST of a JSON document.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.raw(
            "POST",
            path,
            Some("application/json"),
            body.to_string().into_bytes(),
        )
        .await
    }

    /// A GET.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Answer> {
        self.send(self.http.get(format!("{}{path}", self.base)).query(query))
            .await
    }

    /// Opens a session; its id.
    ///
    /// # Errors
    /// Refused, or no answer came.
    pub async fn open(&self, holder: &str, ttl: &str) -> Result<String> {
        let body = json!({ "holder": holder, "ttl": ttl });
        let session = self.post("/v1/sessions", &body).await?.ok()?;
        let id = session["session_id"]
            .as_str()
            .context("the answer has no session_id")?;
        Ok(id.to_owned())
    }

    /// One try to take a scope.
    ///
    /// # Errors
    /// No answer came.
    pub async fn acquire(&self, scope: &str, session: &str, request_id: u64) -> Result<Answer> {
        let body = json!({ "scope": scope, "session_id": session, "request_id": request_id });
        self.post("/v1/acquire", &body).await
    }

    /// Gives a grant back.
    ///
    /// # Errors
    /// No answer came.
    pub async fn release(&self, scope: &str, session: &str, epoch: u64) -> Result<Answer> {
        let body = json!({ "scope": scope, "session_id": session, "epoch": epoch });
        self.post("/v1/release", &body).await
    }

    /// The state of a scope.
    ///
    /// # Errors
    /// Refused, or no answer came.
    pub async fn scope(&self, scope: &str) -> Result<Value> {
        self.get("/v1/scope", &[("scope", scope)]).await?.ok()
    }

    /// Every held scope, page by page, in the order given.
    ///
    /// # Errors
    /// Refused, or no answer came.
    pub async fn scopes(&self, prefix: &str, limit: u32) -> Result<Vec<Value>> {
        let limit = limit.to_string();
        let mut scopes = Vec::new();
        let mut page: Option<String> = None;
        loop {
            let mut query = vec![("prefix", prefix), ("limit", limit.as_str())];
            if let Some(page) = &page {
                query.push(("page", page));
            }
            let mut answer = self.get("/v1/scopes", &query).await?.ok()?;
            let rows = answer["scopes"]
                .as_array_mut()
                .context("the answer has no scopes")?;
            scopes.append(rows);
            match answer["next_page"].as_str() {
                Some(next) => page = Some(next.to_owned()),
                None => return Ok(scopes),
            }
        }
    }

    /// The cluster as this node sees it.
    ///
    /// # Errors
    /// Refused, or no answer came.
    pub async fn cluster(&self) -> Result<Value> {
        self.get("/v1/cluster", &[]).await?.ok()
    }
}

async fn send(request: RequestBuilder) -> Result<Answer> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let header = response.headers().get("content-type");
    let content_type = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Answer {
        status,
        content_type,
        body,
        text,
    })
}
