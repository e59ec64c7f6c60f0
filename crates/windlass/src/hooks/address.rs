//! Which addresses are not of the open internet.
//!
//! Whoever may choose the URL of a webhook must not reach what only this machine reaches: its own
//! services, its neighbours, the metadata of a cloud. The lists are those of IANA's special-purpose
//! registries and what the clouds document; of IPv6 only what is given out as global unicast is open
//! at all. A network that translates to IPv4 under a prefix of its own (RFC 6052) is not known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by a provider"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    // The last one is the broadcast address.
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

const V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    // Teredo, benchmarks, identifiers that are not routed: all of the block of IETF protocols.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
];

/// Where clouds tell a machine its name, its keys and its tokens. Those of Azure and Oracle look like
/// addresses of anybody's, and none of them is ever the receiver of a webhook.
const METADATA: &[IpAddr] = &[
    // AWS, Google, Azure, OpenStack and most others; containers and pods of AWS; Tencent.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    // Alibaba, Azure, Oracle.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS twice, Google, OpenStack, Scaleway.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// Where an address of IPv6 has one of IPv4 in it that the packets go to, as the bits behind it.
const EMBEDDING: &[(Ipv6Addr, u32, u32)] = &[
    // Mapped, translated, NAT64, 6to4.
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, 0),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, 0),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 80),
];

/// The same for addresses of ISATAP, whatever net they are in: what is before the one of IPv4, with
/// and without the bit that says that it is given out for the whole world.
const ISATAP: [u32; 2] = [0x0000_5efe, 0x0200_5efe];

/// Global unicast.
const OPEN: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// What an address is, if it is not of the open internet.
pub(super) fn internal(address: IpAddr) -> Option<&'static str> {
    metadata(address).or_else(|| match address {
        IpAddr::V4(address) => internal_v4(address),
        IpAddr::V6(address) => internal_v6(address),
    })
}

/// What an address is, if it is one that no webhook has a reason to go to, wherever it may go.
pub(super) fn metadata(address: IpAddr) -> Option<&'static str> {
    let inner = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
    };
    let is_known = METADATA.contains(&address) || inner.is_some_and(|it| METADATA.contains(&it));
    is_known.then_some("the metadata of a cloud")
}

fn internal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let is_in = |(net, bits, _): &&(Ipv4Addr, u32, &str)| {
        (address.to_bits() ^ net.to_bits()) >> (Ipv4Addr::BITS - bits) == 0
    };
    V4.iter().find(is_in).map(|(_, _, word)| *word)
}

fn internal_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some((_, _, word)) = V6.iter().find(|(net, bits, _)| is_in(address, *net, *bits)) {
        return Some(word);
    }
    if let Some(inner) = embedded(address) {
        return internal_v4(inner);
    }
    (!is_in(address, OPEN.0, OPEN.1)).then_some("reserved")
}

/// The address of IPv4 that one of IPv6 has in it.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are meant")]
    let low = |behind: u32| (address.to_bits() >> behind) as u32;
    let known = EMBEDDING.iter().find(|(net, bits, _)| is_in(address, *net, *bits));
    let behind = known.map(|(_, _, behind)| *behind);
    let behind = behind.or_else(|| ISATAP.contains(&low(32)).then_some(0));
    behind.map(|behind| Ipv4Addr::from_bits(low(behind)))
}

fn is_in(address: Ipv6Addr, net: Ipv6Addr, bits: u32) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (Ipv6Addr::BITS - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_open_internet_are_open_and_no_others() {
        let cases = [
            ("open", "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0"),
            ("open", "126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0 172.15.255.255"),
            ("open", "172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0"),
            ("open", "223.255.255.255 2606:4700::1111 2a00:1450::1 3ffe::1"),
            ("open", "::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1"),
            ("unspecified", "0.0.0.0 0.0.0.1 0.255.255.255 ::"),
            ("loopback", "127.0.0.1 127.0.0.53 127.255.255.255 ::1"),
            ("private", "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1"),
            ("private", "192.168.255.255 fc00:: fd12:3456::1 fdff:ffff::1"),
            ("link-local", "169.254.0.0 169.254.169.253 169.254.255.255 fe80::1 febf::1"),
            ("shared by a provider", "100.64.0.0 100.100.100.199 100.127.255.255"),
            (
                "the metadata of a cloud",
                "169.254.169.254 169.254.170.2 169.254.170.23 169.254.0.23",
            ),
            ("the metadata of a cloud", "100.100.100.200 168.63.129.16 192.0.0.192"),
            ("the metadata of a cloud", "fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:42::42"),
            ("the metadata of a cloud", "fe80::a9fe:a9fe ::ffff:169.254.169.254 2002:a9fe:a9fe::1"),
            ("the metadata of a cloud", "64:ff9b::a9fe:a9fe 2606:4700::5efe:169.254.169.254"),
            ("the metadata of a cloud", "::ffff:168.63.129.16 64:ff9b::100.100.100.200"),
            ("multicast", "224.0.0.1 239.255.255.255 ff02::1 ff0e::1"),
            ("for documentation", "192.0.2.1 198.51.100.1 203.0.113.255 2001:db8::1 3fff::1"),
            ("for benchmarks", "198.18.0.0 198.19.255.255"),
            ("reserved", "192.0.0.8 192.0.0.255 192.88.99.1 240.0.0.1 255.255.255.255"),
            ("reserved", "::7f00:1 ::10.0.0.1 fec0::1 100::1 2001::1 2001:2::1 5f00::1 4000::1"),
            ("reserved", "64:ff9b:1::1 ::ffff:255.255.255.255"),
            ("loopback", "::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:0:127.0.0.1 2002:7f00:1::"),
            ("loopback", "64:ff9b::7f00:1"),
            ("private", "::ffff:10.1.2.3 64:ff9b::10.1.2.3 2002:a01:203::1 ::ffff:192.168.0.1"),
            ("private", "2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:192.168.1.1"),
            ("open", "2606:4700::5efe:8.8.8.8 2606:4700::5eff:10.0.0.1 168.63.129.17"),
            ("link-local", "::ffff:169.254.1.1 64:ff9b::a9fe:101 2002:a9fe:101::1"),
        ];
        for (wanted, addresses) in cases {
            for address in addresses.split(' ') {
                let parsed: IpAddr = address.parse().expect("it is an address");
                assert_eq!(internal(parsed).unwrap_or("open"), wanted, "{address}");
            }
        }
    }
}
