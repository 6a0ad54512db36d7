package main

import (
	"context"
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
	maxRefusal = 4 << 10 // bytes of a refusal that are shown
)

// checkServer refuses what is no address of a server.
func checkServer(address string) error {
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--url %q: must be http:// or https:// and a host", address)
	}
	return nil
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
		return "", fmt.Errorf("--token-file: %s holds no token in one line", file)
	}
	return token, nil
}

// ask gets a path of a server and has its answer read. The token goes to that server only:
// a redirection is an error. So is any status but 200 and those that are named.
func ask(ctx context.Context, server, path, token string, read func(body io.Reader) error, also ...int) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	address := strings.TrimRight(server, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
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
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && !slices.Contains(also, res.StatusCode) {
		why, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what came is shown
		return fmt.Errorf("%s answered %s: %s", address, res.Status, strings.ToValidUTF8(strings.TrimSpace(string(why)), "?"))
	}
	if err := read(res.Body); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}
