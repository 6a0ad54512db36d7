package outbound

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialTimeout bounds resolving a name and connecting; a cluster answers in
// milliseconds, a continent away in a third of a second.
const dialTimeout = 10 * time.Second

// dialer connects to addresses that are allowed.
type dialer struct {
	allowed *addresses
	// resolver is nil for the system's.
	resolver *net.Resolver
}

// DialContext connects to addr, "host:port". The address is checked when the socket
// is about to connect: a check of what the name resolved to before could be answered
// with one address and the connection made with another (DNS rebinding).
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	nd := net.Dialer{Timeout: dialTimeout, Resolver: d.resolver}
	nd.Control = func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the socket's address %q cannot be read: %w", address, err)
		}
		return d.allowed.check(host, to.Addr())
	}
	return nd.DialContext(ctx, network, addr)
}
