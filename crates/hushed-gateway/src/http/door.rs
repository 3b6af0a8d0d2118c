//! Which requests are admitted: checked by `Host` and `Origin`, so that a web page elsewhere cannot use the gateway
//! through a browser (DNS rebinding); by key, if there are keys; and for JSON, if there is a body.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod keys;
mod names;
mod spent;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use hushed_model::counted;

use super::clock::now;
use super::refusal::Refusal;
use crate::config::GatewayConfig;
use crate::error::GatewayError;
use crate::listen::Bound;
use crate::sessions::share::Caller;
use keys::Keys;
use spent::Spent;

/// Paths that need no key: those that a browser loads before its user can give it one, and that a supervisor polls.
const OPEN: [&str; 4] = ["/", "/health", "/ready", "/ping"];
/// Those of them that a load balancer polls in HTTP/1.0, where a request may name no host. A browser always names one.
const POLLED: [&str; 3] = ["/health", "/ready", "/ping"];

/// Where a form is accepted besides JSON.
const FORM: &str = "/v1/files";

/// The rules.
pub struct Door {
    /// Host names in lower case; `None` on a Unix socket, which no browser reaches.
    hosts: Option<Vec<String>>,
    origins: Vec<String>,
    /// Where the keys are.
    file: Option<PathBuf>,
    /// `None` requires no key.
    keys: RwLock<Option<Keys>>,
    spent: Spent,
    /// See [`Door::expiry`].
    expiry: Arc<AtomicU64>,
}

impl Door {
    /// The rules of a gateway that listens there.
    ///
    /// # Errors
    /// [`GatewayError::NoHost`], [`GatewayError::Name`], and those of the key file.
    pub fn new(config: &GatewayConfig, bound: &Bound) -> Result<Self, GatewayError> {
        let (address, expiry) = (bound.address(), bound.expiry());
        let keys = config.api_keys.as_deref().map(Keys::read).transpose()?;
        let named: Result<Vec<String>, _> = config.hosts.iter().map(|h| names::host(h)).collect();
        let named = named?;
        let origins: Result<Vec<String>, _> = config.origins.iter().map(|o| names::origin(o)).collect();
        let hosts = address.map(|address| {
            let mut hosts = named;
            if address.ip().is_loopback() {
                hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
            }
            match address {
                _ if address.ip().is_unspecified() => {}
                SocketAddr::V4(v4) => hosts.push(v4.ip().to_string()),
                SocketAddr::V6(v6) => hosts.push(format!("[{}]", v6.ip())),
            }
            hosts
        });
        if let (Some(hosts), Some(address)) = (&hosts, address)
            && hosts.is_empty()
        {
            return Err(GatewayError::NoHost { address });
        }
        let (file, keys, spent) = (config.api_keys.clone(), RwLock::new(keys), Spent::default());
        Ok(Self { hosts, origins: origins?, file, keys, spent, expiry })
    }

    /// Reads the keys again. If they cannot be used, they stay as they were.
    pub fn reload(&self) {
        let Some(path) = &self.file else { return };
        match Keys::read(path) {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "read the API keys again");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
            }
            Err(error) => tracing::error!(name = error.name(), %error, "the API keys stay as they were"),
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, Option<Keys>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether keys are required.
    pub fn has_keys(&self) -> bool {
        self.known().is_some()
    }

    /// How many users there can be: one per key, or one if there are no keys.
    pub fn keys(&self) -> usize {
        self.known().as_ref().map_or(1, Keys::len)
    }

    /// The name of a caller's key: `unnamed` if it has none, `None` where no keys are required.
    pub fn name(&self, caller: Caller) -> Option<String> {
        let known = self.known();
        let keys = known.as_ref()?;
        Some(keys.name(caller).unwrap_or("unnamed").to_owned())
    }

    /// The same for the log, of a request for which a key is required.
    pub fn key_name(&self, path: &str, caller: Caller) -> Option<String> {
        if OPEN.contains(&path) && caller == Caller::default() {
            return None;
        }
        self.name(caller)
    }

    /// Whether there is a certificate.
    pub fn has_tls(&self) -> bool {
        self.expiry() > 0
    }

    /// When the gateway's certificate expires, in seconds since 1970; 0 without one.
    pub fn expiry(&self) -> u64 {
        self.expiry.load(Ordering::Relaxed)
    }

    /// Whether a caller may see what others do.
    pub fn sees_all(&self, caller: Caller) -> bool {
        self.known().as_ref().is_none_or(|keys| keys.sees_all(caller))
    }

    /// Whether sums over all callers are for the operator's key alone, and this is another one.
    ///
    /// # Errors
    /// 403.
    pub fn check_operator(&self, caller: Caller) -> Result<(), Refusal> {
        let known = self.known();
        match known.as_ref().is_none_or(|keys| !keys.has_operator() || keys.sees_all(caller)) {
            true => Ok(()),
            false => {
                let message = "only the key named `operator` reads this";
                Err(Refusal::new(StatusCode::FORBIDDEN, "api-key", message))
            }
        }
    }

    /// Queues `texts` texts by `queue`, if the caller's key has so many left today.
    ///
    /// # Errors
    /// 429 with the time until tomorrow; those of `queue`, whose texts are not counted.
    pub fn charged<T>(
        &self,
        caller: Caller,
        texts: usize,
        queue: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some(limit) = self.known().as_ref().and_then(|keys| keys.texts(caller)) else {
            return queue();
        };
        let texts = texts as u64;
        self.spent.charge(caller, texts, limit, now()).map_err(|(left, seconds)| {
            let message = format!(
                "this key may send {} a day (UTC), {left} more today, and the request has {texts}: send fewer, wait until \
                 tomorrow, or ask the gateway's operator",
                counted(limit, "text")
            );
            let retry_after = Some(Duration::from_secs(seconds));
            Refusal { retry_after, ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "key-limit", message) }
        })?;
        queue().inspect_err(|_| self.spent.refund(caller, texts))
    }

    /// Checks whether a request may come in; returns its caller.
    ///
    /// # Errors
    /// 403 by host or origin, 401 by key, 415 by content type.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let polled = POLLED.contains(&uri.path()) && (*method == Method::GET || *method == Method::HEAD);
        let host = match polled && !headers.contains_key(header::HOST) && uri.authority().is_none() {
            true => "",
            false => self.host(uri, headers)?,
        };
        self.origin(host, headers)?;
        // With OPTIONS a browser asks, without the key, whether it may send a request with it.
        let reads = method == Method::GET || method == Method::HEAD;
        let open = OPEN.contains(&uri.path()) && reads || method == Method::OPTIONS;
        let caller = match open {
            true => Caller::default(),
            false => self.key(headers)?,
        };
        if let Some(coding) = headers.get(header::CONTENT_ENCODING)
            && !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
        {
            let message = "compressed bodies are not read: send it without `Content-Encoding`";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-encoding", message));
        }
        // A page elsewhere could send a form unasked, but the origin check above refuses it.
        let form = uri.path() == FORM && is_type(headers, b"multipart/form-data");
        match *method == Method::POST && !form && !is_type(headers, b"application/json") {
            true => Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content-type",
                "send JSON, with the header `Content-Type: application/json`",
            )),
            false => Ok(caller),
        }
    }

    /// The origin of another site whose pages may use the gateway, if the request comes from there.
    pub fn friend<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let known = self.origins.iter().any(|known| known.as_bytes() == origin.as_bytes());
        known.then_some(origin)
    }

    /// The host by which the request came, with its port.
    fn host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Refusal> {
        let forbidden = || {
            let message = "this host name is not one of the gateway's: see --allow-host";
            Refusal::new(StatusCode::FORBIDDEN, "host", message)
        };
        let mut given = headers.get_all(header::HOST).iter();
        let host = given.next().and_then(|host| host.to_str().ok());
        if given.next().is_some() {
            return Err(forbidden());
        }
        let Some(hosts) = &self.hosts else {
            return Ok(host.unwrap_or_default());
        };
        // A request for an absolute URI names the host there as well.
        let known = |host: &str| {
            let name = without_port(host).to_ascii_lowercase();
            hosts.contains(&name)
        };
        let absolute = uri.authority().is_none_or(|a| known(a.as_str()));
        match host {
            Some(host) if absolute && known(host) => Ok(host),
            _ => Err(forbidden()),
        }
    }

    fn origin(&self, host: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let own = |origin: &str| {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            rest.is_some_and(|rest| !host.is_empty() && rest.eq_ignore_ascii_case(host))
        };
        let fine = headers.get_all(header::ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            own(origin) || self.origins.iter().any(|known| known == origin)
        });
        match fine {
            true => Ok(()),
            false => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "origin",
                "pages of this origin may not use the gateway: see --allow-origin",
            )),
        }
    }

    fn key(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let known = self.known();
        let Some(keys) = &*known else {
            return Ok(Caller::default());
        };
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        match keys.caller(shown.unwrap_or_default()) {
            Some(caller) => Ok(caller),
            None => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "api-key",
                "missing or unknown key; send `Authorization: Bearer KEY`",
            )),
        }
    }
}

/// The token of `Bearer TOKEN`: the scheme is written in any case, and spaces may follow it (RFC 9110, §11).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.trim_ascii().split_at_checked(6)?;
    let token = rest.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"bearer") && token.len() < rest.len()).then_some(token)
}

fn is_type(headers: &HeaderMap, wanted: &[u8]) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes());
    let kind = kind.and_then(|kind| kind.split(|b| *b == b';').next());
    kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// `HOST:PORT` without its port; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn ports_are_left_out() {
        for (host, name) in [
            ("localhost:8080", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            (":80", ":80"),
            ("evil.example:x", "evil.example:x"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
