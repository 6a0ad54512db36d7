package stub

import (
	"encoding/json"
	"fmt"
	"testing"
)

// FuzzRequest: bytes from the network crash nothing, and what is read as a call by hand is
// what encoding/json reads, wherever that reads it.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"p","response":"0.1 0.2","label":{"wait_ms":12.5}}`,
		`{"prompt":"p","response":"0.1 0.2","label":{"wait_ms":1,"status":500}}`,
		`{"prompt":"p","response":"","label":{"wait_ms":1}},"label":{"wait_ms":2}}`, `{`,
	} {
		f.Add(fmt.Appendf(nil, "POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		body, n, err := request(data)
		if err != nil || n == 0 {
			return
		}
		if n > len(data) || len(body) > n {
			t.Fatalf("%d of %d bytes, body %d", n, len(data), len(body))
		}
		quick, ok := plainCall(body)
		var c call
		if err := json.Unmarshal(body, &c); ok && err == nil && quick != c {
			t.Fatalf("%q: %+v, encoding/json reads %+v", body, quick, c)
		}
		if c, err := parseCall(body); err == nil {
			c.answer(nil)
		}
	})
}
