package outbound

import (
	"fmt"
	"net/http"
	"strings"
)

// ownHeader reports whether a header belongs to the connection and not to the request
// (RFC 9110 §7.6.1), or is this package's own.
func ownHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect":
		return true
	}
	return false
}

// CheckHeader says what is wrong with a header that net/http would refuse to send, by the
// grammar of RFC 9110 §5, without its value.
func CheckHeader(name, value string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || strings.Trim(name, token) != "" {
		return fmt.Errorf("%.40q is no name of a header", name)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Errorf("the value of %s holds a control character", http.CanonicalHeaderKey(name))
	}
	return nil
}

// checkHeaders refuses the headers of a call. At the endpoint's door a refusal would look
// like a failure of the endpoint, which never saw it.
func checkHeaders(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if err := CheckHeader(name, v); err != nil {
				return fmt.Errorf("headers of the call: %w", err)
			}
		}
	}
	return nil
}
