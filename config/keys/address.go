package keys

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Public reports whether other machines may reach an address at which a process listens. A
// name that is not localhost counts as public: what it means is another machine's choice.
func Public(address string) (bool, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("want an address and a port such as 127.0.0.1:8080, got %q", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Errorf("want a port of 0…65535, got %q", port)
	}
	if strings.EqualFold(host, "localhost") {
		return false, nil
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback(), nil //nolint:nilerr // what is no address is a name
}
