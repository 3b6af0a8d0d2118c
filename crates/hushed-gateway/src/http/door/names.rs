//! Names that a person allows, in the form in which browsers and clients send them. Names that could never match are
//! refused at the start.

use std::net::IpAddr;

use crate::error::GatewayError;

/// A host as in `Host`, without its port: lower case, an IPv6 address in brackets.
///
/// # Errors
/// [`GatewayError::Name`] for anything that is not just a host.
pub fn host(given: &str) -> Result<String, GatewayError> {
    let name = given.trim().to_ascii_lowercase();
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    match bare.unwrap_or(&name).parse() {
        Ok(IpAddr::V6(address)) => return Ok(format!("[{address}]")),
        Ok(IpAddr::V4(address)) if bare.is_none() => return Ok(address.to_string()),
        _ => {}
    }
    match is_name(&name) {
        true => Ok(name),
        false => Err(GatewayError::Name {
            option: "--allow-host",
            given: given.to_owned(),
            expected: "a host name or an address, without scheme, port or path",
        }),
    }
}

/// An origin as browsers send it: scheme and host in lower case, the port unless it is the scheme's own.
///
/// # Errors
/// [`GatewayError::Name`] for anything else, including `*` and `null`.
pub fn origin(given: &str) -> Result<String, GatewayError> {
    parse_origin(&given.trim().to_ascii_lowercase()).ok_or_else(|| GatewayError::Name {
        option: "--allow-origin",
        given: given.to_owned(),
        expected: "an origin as https://example.org or http://localhost:3000, without a path",
    })
}

fn parse_origin(given: &str) -> Option<String> {
    let (scheme, rest) = given.split_once("://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !rest.ends_with(']') => (name, Some(port.parse::<u16>().ok()?)),
        _ => (rest, None),
    };
    let own = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    // An IPv6 address without brackets would have lost its end to the port.
    let name = host(name).ok().filter(|found| !found.starts_with('[') || name.starts_with('['))?;
    let port = port.filter(|port| Some(*port) != own);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    scheme_fits.then(|| format!("{scheme}://{name}{port}"))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_as_clients_send_them() {
        for (given, sent) in [
            ("Gateway.example.org", "gateway.example.org"),
            (" localhost ", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("::1", "[::1]"),
            ("[2001:DB8::0:1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host(given).unwrap(), sent);
        }
        for never in ["", "a:80", "https://a", "a/b", "*", "[a]", "[192.0.2.1]", "ä.example"] {
            assert!(host(never).is_err(), "{never}");
        }
    }

    #[test]
    fn origins_as_browsers_send_them() {
        for (given, sent) in [
            ("https://Example.org/", "https://example.org"),
            ("https://example.org:443", "https://example.org"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://[::1]", "http://[::1]"),
            ("chrome-extension://abc", "chrome-extension://abc"),
        ] {
            assert_eq!(origin(given).unwrap(), sent);
        }
        for never in
            ["example.org", "*", "null", "https://", "https://a/path", "https://a:x", "http://::1", "http://u@a"]
        {
            assert!(origin(never).is_err(), "{never}");
        }
    }
}
