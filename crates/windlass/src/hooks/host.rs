//! What the host of a URL says before a resolver is asked.
//!
//! Resolvers read numbers in more than one way: `0177.1`, `2130706433` and `0x7f000001` are all
//! `127.0.0.1` to many of them, and names to others. So whatever ends in a number is read here, as
//! the URL standard does, and what is judged is what is connected to. Names of the inside are told
//! by how they end; that is a first wall only, since any name can have an internal address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most characters of a name, as DNS has it.
const NAME_CHARS_MAX: usize = 253;

/// How names end that no resolver of the open internet knows, or should: RFC 6761, RFC 6762, RFC 8375,
/// what ICANN keeps for private use, and what many systems call themselves.
const INSIDE: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "localdomain"];

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// An address, however it is spelled.
    Address(IpAddr),
    /// A name that means something here only.
    Inside,
    /// Any other name.
    Name,
}

/// What a host is; none if it is neither an address nor a name. `in_brackets` is whether the URL has
/// it in brackets, as addresses of IPv6.
pub(super) fn read(host: &str, in_brackets: bool) -> Option<Host> {
    if in_brackets {
        // A zone (`%eth0`) is not read: it chooses an interface of this machine.
        return host.parse::<Ipv6Addr>().ok().map(|address| Host::Address(address.into()));
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.len() > NAME_CHARS_MAX
        || !name.bytes().all(is_fit)
        || name.split('.').any(str::is_empty)
    {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    // Also one that is too large for an address, or has a digit that its base does not have.
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(is_hexadecimal)
    {
        return spelled(&name).map(|address| Host::Address(address.into()));
    }
    let is_under = |end: &str| {
        name.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    match !name.contains('.') || INSIDE.iter().any(|end| is_under(end)) {
        true => Some(Host::Inside),
        false => Some(Host::Name),
    }
}

/// An address of IPv4 as the oldest of resolvers read it: one to four numbers, each decimal, octal or
/// hexadecimal, the last of which fills all bytes that are left.
fn spelled(text: &str) -> Option<Ipv4Addr> {
    let numbers = text.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, before) = numbers.split_last()?;
    if before.len() > 3 || before.iter().any(|number| *number > 0xff) {
        return None;
    }
    let left = u32::try_from(4 - before.len()).ok()? * 8;
    if left < u32::BITS && *last >= 1 << left {
        return None;
    }
    let high =
        before.iter().enumerate().fold(0, |sum, (place, number)| sum | number << (24 - 8 * place));
    Some(Ipv4Addr::from_bits(high | last))
}

/// A number with the base that its beginning says.
fn number(text: &str) -> Option<u32> {
    let (digits, base) = match text.strip_prefix("0x") {
        // Nothing behind it is zero.
        Some(digits) => (if digits.is_empty() { "0" } else { digits }, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // The parser would take a sign.
    let is_digits = digits.chars().all(|digit| digit.is_digit(base));
    is_digits.then(|| u32::from_str_radix(digits, base).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_in_every_spelling() {
        let cases = [
            ("127.0.0.1", "127.0.0.1 127.0.0.1. 127.1 127.0.1 2130706433 2130706433. 017700000001"),
            ("127.0.0.1", "0x7f000001 0X7F.1 0x7f.0x0.0x0.0x1 0177.0.0.1 0177.0000.00.01 127.0x1"),
            ("169.254.169.254", "169.254.169.254 2852039166 0xa9fea9fe 0xA9.0xFE.0xA9.0xFE"),
            ("169.254.169.254", "0251.0376.0251.0376 169.254.43518 169.16689662 025177524776"),
            ("0.0.0.0", "0 0.0.0.0 0x 0x0 00 0.0"),
            ("10.0.0.1", "10.1 012.1 0xa.1 167772161"),
            ("255.255.255.255", "4294967295 0xffffffff 255.16777215 255.255.65535"),
            ("8.8.8.8", "8.8.8.8 010.8.8.8 134744072"),
        ];
        for (wanted, spellings) in cases {
            let wanted = Some(Host::Address(wanted.parse().expect("it is an address")));
            for spelling in spellings.split(' ') {
                assert_eq!(read(spelling, false), wanted, "{spelling}");
            }
        }
        assert_eq!(read("::1", true), Some(Host::Address(Ipv6Addr::LOCALHOST.into())));
    }

    #[test]
    fn what_is_neither_address_nor_name_is_nothing() {
        for host in [
            "256.0.0.1",
            "1.2.3.4.5",
            "127.0.0.256",
            "4294967296",
            "0x100000000",
            "08",
            "1.2.3.09",
            "1.2.3.4..",
            "1..2",
            ".1",
            ".",
            "..",
            "a..b",
            "127.0.0.1%25",
            "a b",
            "a%2eb",
            "1.16777216",
            "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
            "ex\u{e4}mple.com",
            "example.com\0",
            "+1",
            "-1.1.1.+1",
        ] {
            assert_eq!(read(host, false), None, "{host}");
        }
        let long = format!("{}.com", "a.".repeat(125));
        assert_eq!(read(&long, false), None);
        for host in ["fe80::1%eth0", "fe80::1%251", "127.0.0.1", "::1::", "v1.x", ""] {
            assert_eq!(read(host, true), None, "{host}");
        }
    }

    #[test]
    fn names_of_the_inside_are_known_by_their_end() {
        for host in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "printer.local",
            "metadata.google.internal",
            "metadata.google.internal.",
            "Metadata.Google.Internal",
            "metadata",
            "instance-data",
            "kubernetes",
            "router.home.arpa",
            "localhost.localdomain",
            "ip-10-0-0-1.ec2.internal",
        ] {
            assert_eq!(read(host, false), Some(Host::Inside), "{host}");
        }
        for host in ["example.com", "example.com.", "mylocal.example", "xlocalhost.com", "a.b-c.de"]
        {
            assert_eq!(read(host, false), Some(Host::Name), "{host}");
        }
    }
}
