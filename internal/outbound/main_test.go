package outbound_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The environment names a proxy where nobody listens. net/http reads it once in a
// process, so that it is set before all tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
