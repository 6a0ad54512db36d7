package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Limits of asking a server.
const (
	askTimeout = 2 * time.Minute // 5000 samples of a step are 2 MB
	maxToken   = 64 << 10
	maxRefusal = 64 << 10 // bytes of a refusal that are shown
	maxAnswer  = 64 << 20 // bytes of an answer: 64 runs of 64 steps each take about 10 MB
)

// checkServer refuses what is no address of a server. One without a scheme is http.
func checkServer(address string) (string, error) {
	full := address
	if !strings.Contains(address, "://") {
		full = "http://" + address
	}
	u, err := url.Parse(full)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("--server %q: must be http:// or https:// and a host, such as %s", address, defaultServer)
	}
	return strings.TrimRight(full, "/"), nil
}

// tokenOf reads the file that holds a server's token; "" where there is none.
func tokenOf(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxToken || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("--token-file: %s does not contain one token on one line", file)
	}
	return token, nil
}

// get reads the JSON that a path of the server answers with.
func (f *serverFlags) get(ctx context.Context, path string, into any, also ...int) error {
	return f.ask(ctx, http.MethodGet, path, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into)
	}, also...)
}

// ask sends a request without a body and has the answer read. The token goes to that server
// only: a redirection is an error. So is any status but 200 and those that are named.
func (f *serverFlags) ask(ctx context.Context, method, path string, read func(body io.Reader) error, also ...int) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	address := f.address + path
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return err
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return f.unreachable(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && !slices.Contains(also, res.StatusCode) {
		why, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what came is shown
		err := fmt.Errorf("%s answered %s: %s", address, res.Status, refusalOf(why))
		if res.StatusCode == http.StatusUnauthorized {
			err = fmt.Errorf("%w: name the file with the server's token, --token-file FILE", err)
		}
		return err
	}
	if err := read(res.Body); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// unreachable says in one line that no server is there, and what to do.
func (f *serverFlags) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("no server answers at %s (%w): start one with `rewardloop serve`, or name the server's address with --server", f.address, err)
}

// refusalOf is what a server's refusal says: the text of its error, where it has that form.
func refusalOf(body []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		return said.Error
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(body)), "?")
}
