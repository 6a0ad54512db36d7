package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
)

// Policy defines which addresses may be reached, and how.
//
// Public and private addresses are allowed, because clusters use private addresses. Link-local
// addresses, the metadata services of clouds, and unspecified, broadcast and multicast addresses
// are never allowed, in any IPv6 form that wraps them. Loopback addresses are allowed if a
// configured URL contains one literally ("localhost", "127.0.0.1", "::1"), or if Allow lists them.
type Policy struct {
	// Proxy resolves host names itself, and is therefore responsible for checking the addresses.
	// Addresses that are written in URLs are still checked by this process, and requests to
	// loopback literals do not use the proxy.
	Proxy  string
	Allow  []string
	CAFile string
}

// Keys implements keys.Described for the section outbound.
func (p *Policy) Keys(k *keys.Set) {
	k.Texts(&p.Allow, "allow", "Host names or networks, such as [judge.local, 127.0.0.0/8], for which loopback addresses of this machine are allowed. localhost in a URL needs no entry. Link-local addresses are always refused.")
	k.Text(&p.Proxy, "proxy", "", "Proxy for all outgoing HTTP, such as http://proxy:3128. Proxy variables of the environment are not used.")
	k.Text(&p.CAFile, "ca_file", "", "File with certificates (PEM) that are trusted besides the system's certificates.")
}

func (p Policy) proxy() (*url.URL, error) {
	if p.Proxy == "" {
		return nil, nil // no proxy is no error
	}
	u, err := parseURL(p.Proxy)
	if err != nil {
		return nil, fmt.Errorf("outbound: proxy: %w", err)
	}
	return u, nil
}

func (p Policy) tls() (*tls.Config, error) {
	// A session saves a reconnection half of its handshake; connections are not kept
	// idle for long.
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(64)}
	if p.CAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("outbound: certificates: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("outbound: %s contains no PEM certificate", p.CAFile)
	}
	cfg.RootCAs = roots
	return cfg, nil
}

// addresses decides which address may be connected to. It is immutable.
type addresses struct {
	hosts map[string]bool
	nets  []netip.Prefix
}

func newAddresses(allow []string) (*addresses, error) {
	a := &addresses{hosts: map[string]bool{}}
	var errs []error
	for _, entry := range allow {
		if err := a.add(entry); err != nil {
			errs = append(errs, fmt.Errorf("outbound: allow: %w", err))
		}
	}
	return a, errors.Join(errs...)
}

func (a *addresses) add(entry string) error {
	prefix, err := netip.ParsePrefix(entry)
	if ip, errIP := netip.ParseAddr(entry); errIP == nil {
		ip = plain(ip)
		prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	if err == nil {
		for _, n := range never {
			if n.prefix.Overlaps(prefix) && n.prefix.Bits() <= prefix.Bits() {
				return fmt.Errorf("%s can never be reached: %s", entry, n.what)
			}
		}
		a.nets = append(a.nets, prefix.Masked())
		return nil
	}
	if entry == "" || strings.ContainsAny(entry, "/:*@ \t") {
		return fmt.Errorf("%q is not a host name, address or CIDR; leave out the port", entry)
	}
	a.hosts[canonical(entry)] = true
	return nil
}

// check says whether host, which was resolved to ip, may be connected to.
func (a *addresses) check(host string, ip netip.Addr) error {
	for _, ip := range readings(ip) {
		for _, n := range never {
			if n.prefix.Contains(ip) {
				return &addressError{host: host, ip: ip, why: n.what}
			}
		}
		if ip.IsLoopback() && !a.loopback(host, ip) {
			return &addressError{host: host, ip: ip, why: "loopback, which must be in the allow list or be written in the URL itself"}
		}
	}
	return nil
}

// loopback reports whether host may be ip, a loopback address.
func (a *addresses) loopback(host string, ip netip.Addr) bool {
	if namesLoopback(host) || a.hosts[canonical(host)] {
		return true
	}
	for _, n := range a.nets {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// namesLoopback reports whether host, as it stands in a URL, is a loopback literal.
func namesLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return canonical(host) == "localhost" || err == nil && ip.IsLoopback() && !ip.Is4In6()
}

func canonical(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// addressError is an address that may not be reached.
type addressError struct {
	host string
	ip   netip.Addr
	why  string
}

func (e *addressError) Error() string {
	if e.host == e.ip.String() {
		return fmt.Sprintf("the address %s is not allowed: %s", e.ip, e.why)
	}
	return fmt.Sprintf("the address %s of %s is not allowed: %s", e.ip, e.host, e.why)
}

// never lists what is not connected to by any configuration.
//
//nolint:gochecknoglobals // a table
var never = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep their metadata"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "metadata service of AWS"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "metadata service of Google Cloud"},
	{netip.MustParsePrefix("100.100.100.200/32"), "metadata service of Alibaba Cloud"},
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata service of Azure"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified, which is this machine"},
	{netip.MustParsePrefix("::/128"), "unspecified, which is this machine"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
}

func plain(ip netip.Addr) netip.Addr { return ip.WithZone("").Unmap() }

// readings are the addresses that packets to ip may end at: itself without a zone,
// IPv4 where it is mapped (::ffff:0:0/96), and the IPv4 address inside of the forms
// that a translator unwraps: compatible (::/96), NAT64 (64:ff9b::/96, RFC 6052) and
// 6to4 (2002::/16, RFC 3056).
func readings(ip netip.Addr) []netip.Addr {
	ip = plain(ip)
	all := []netip.Addr{ip}
	if !ip.Is6() || ip == netip.IPv6Unspecified() || ip == netip.IPv6Loopback() {
		return all
	}
	b := ip.As16()
	switch {
	case [12]byte(b[:12]) == [12]byte{}, [12]byte(b[:12]) == [12]byte{0x00, 0x64, 0xff, 0x9b}:
		all = append(all, netip.AddrFrom4([4]byte(b[12:])))
	case b[0] == 0x20 && b[1] == 0x02:
		all = append(all, netip.AddrFrom4([4]byte(b[2:6])))
	}
	return all
}
