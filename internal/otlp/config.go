package otlp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/outbound"
)

// Config selects the collector for spans. Keys documents the fields.
type Config struct {
	Endpoint    string
	SampleRatio float64
	HeadersFile string
	ServiceName string
}

// Keys implements keys.Described for the section telemetry.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Endpoint, "otlp_endpoint", "", "Collector of traces by OTLP over HTTP, such as http://collector:4318; /v1/traces is added. Empty: no traces. Write ${oc.env:OTEL_EXPORTER_OTLP_ENDPOINT} to use that variable.")
	k.Float(&c.SampleRatio, "sample_ratio", 1, "Fraction of samples without a traceparent that are traced. A sample with a traceparent is traced if its trainer records the trace. The gateway decides for all workers.").Between(0, 1)
	k.Text(&c.HeadersFile, "headers_file", "", "File with HTTP headers for requests to the collector, such as an API key, one `Name: value` per line. Empty lines and lines that begin with # are ignored.")
	k.Text(&c.ServiceName, "service_name", "rewardloop", "Value of service.name in the traces.")
	k.Check(func(r keys.Report) {
		if c.Endpoint == "" {
			if c.HeadersFile != "" {
				r.Fault("headers_file", "is for %s, which is empty", r.Path("otlp_endpoint"))
			}
			return
		}
		if _, err := c.url(); err != nil {
			r.Fault("otlp_endpoint", "%v", err)
		}
	})
}

// tracesPath is where a collector takes traces.
const tracesPath = "/v1/traces"

// url is where requests go. Its error does not quote the address, which may hold a password.
func (c *Config) url() (string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Fragment != "" {
		return "", errors.New("want an address such as http://collector:4318")
	}
	if path := strings.TrimRight(u.Path, "/"); !strings.HasSuffix(path, tracesPath) {
		u.Path = path + tracesPath
	}
	return u.String(), nil
}

// headersBytes bounds a file of headers.
const headersBytes = 64 << 10

// headers reads the file of headers. Its errors do not quote values.
func (c *Config) headers() (http.Header, error) {
	h := http.Header{"Content-Type": {"application/x-protobuf"}}
	if c.HeadersFile == "" {
		return h, nil
	}
	f, err := os.Open(c.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("telemetry.headers_file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, headersBytes+1))
	if err != nil {
		return nil, fmt.Errorf("telemetry.headers_file: %w", err)
	}
	if len(text) > headersBytes {
		return nil, fmt.Errorf("telemetry.headers_file: %s has more than %d bytes", c.HeadersFile, headersBytes)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, headersBytes+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			return nil, fmt.Errorf("telemetry.headers_file: line %d of %s is not `Name: value`", n, c.HeadersFile)
		}
		if err := outbound.CheckHeader(name, value); err != nil {
			return nil, fmt.Errorf("telemetry.headers_file: line %d of %s: %w", n, c.HeadersFile, err)
		}
		h.Set(name, value)
	}
	return h, lines.Err()
}
