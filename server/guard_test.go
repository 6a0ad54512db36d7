package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

const secret = "correct-horse-battery-staple"

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestEveryRouteButHealthAndReadinessAsksForTheToken(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, "  "+secret+"\n")
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.TokenFile = file
		o.Router = &engine{}
		o.Reload = func(context.Context) (server.Reloaded, error) { return server.Reloaded{}, nil }
	}})
	require.Eventually(t, func() bool { return strings.Contains(string(s.get("/readyz").body), "true") }, patience, time.Millisecond)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secret))
	pic := pickled(t, "images", jpegs(1))
	routes := []struct {
		method, path string
		body         []byte
		basic        bool
	}{
		{http.MethodPost, "/", pic, true},
		{http.MethodPost, "/scorers/picky", pic, true},
		{http.MethodPost, "//", pic, true},
		{http.MethodPost, "/v1/score", []byte(`{}`), true},
		{http.MethodPost, "/score", []byte(`{"requests": []}`), true},
		{http.MethodPost, "/get_reward", []byte(`{"query": []}`), true},
		{http.MethodPost, "/get_reward/picky", []byte(`{"query": []}`), true},
		{http.MethodPost, "/compute", []byte(`{"prompt": []}`), true},
		{http.MethodPost, "/scorers/picky/compute", []byte(`{"prompt": []}`), true},
		{http.MethodPost, "/rm", []byte(`[]`), true},
		{http.MethodPost, "/rm//picky/", []byte(`[]`), true},
		{http.MethodPost, "/v1/chat/completions", []byte(`{}`), true},
		{http.MethodPost, "/v1/completions", []byte(`{}`), true},
		{http.MethodPost, "/v1/embeddings", []byte(`{}`), true},
		{http.MethodPost, "/classify", []byte(`{}`), true},
		{http.MethodPost, "/v1/reload", nil, true},
		{http.MethodGet, "/v1/models", nil, true},
		{http.MethodGet, "/health", nil, true},
		{http.MethodGet, "/scorers/picky/health", nil, true},
		{http.MethodGet, "/rewards", nil, true},
		{http.MethodGet, "/", nil, true},
		{http.MethodGet, "/v1/pending", nil, true},
		{http.MethodGet, "/v1/workers", nil, true},
		{http.MethodGet, "/v1/runs", nil, true},
		{http.MethodGet, "/v1/scorers", nil, true},
		{http.MethodGet, "/metrics", nil, true},
	}
	for _, route := range routes {
		name := route.method + " " + route.path
		for _, header := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + secret + "x", secret, "Token " + secret, "Basic Og=="} {
			r := s.do(s.request(t.Context(), route.method, route.path, route.body, "Authorization", header))
			require.Equal(t, http.StatusUnauthorized, r.StatusCode, "%s with %q", name, header)
			assert.NotEmpty(t, r.Header.Get("WWW-Authenticate"), name)
			assert.NotContains(t, string(r.body), secret)
			if len(route.body) > 0 && route.body[0] == 0x80 { // a pickle
				r.refused(t, http.StatusUnauthorized)
			} else {
				r.jsonError(t, http.StatusUnauthorized)
			}
		}
		for _, header := range []string{"Bearer " + secret, "bearer " + secret} {
			r := s.do(s.request(t.Context(), route.method, route.path, route.body, "Authorization", header))
			require.Equal(t, http.StatusOK, r.StatusCode, "%s with %q: %s", name, header, r.body)
		}
		r := s.do(s.request(t.Context(), route.method, route.path, route.body, "Authorization", basic))
		assert.Equal(t, route.basic, r.StatusCode == http.StatusOK, "%s with a password", name)

		sep := "?"
		r = s.do(s.request(t.Context(), route.method, route.path+sep+"token="+secret, route.body, "Authorization", "Bearer "+secret))
		assert.Equal(t, http.StatusBadRequest, r.StatusCode, "%s with the token in the URL", name)
	}
	assert.Equal(t, http.StatusOK, s.get("/healthz").StatusCode)
	assert.Equal(t, http.StatusOK, s.get("/readyz").StatusCode)
	req := s.request(t.Context(), http.MethodGet, "/v1/runs", nil)
	req.Header["Authorization"] = []string{"Bearer " + secret, "Bearer " + secret}
	assert.Equal(t, http.StatusUnauthorized, s.do(req).StatusCode, "two tokens")
	assert.Equal(t, http.StatusNotFound, s.get("/v1/nothing", "Authorization", "Bearer "+secret).StatusCode)
	assert.Equal(t, http.StatusUnauthorized, s.get("/v1/nothing").StatusCode)

	// The stream: refused before the upgrade, and never with a password.
	for header, want := range map[string]int{"": 401, "Bearer x": 401, basic: 401} {
		_, err := wsconn.Dial(t.Context(), "ws"+s.url[4:]+"/v1/stream", wsconn.DialConfig{
			Subprotocol: wire.Protocol, Header: http.Header{"Authorization": {header}},
		})
		var refused *wsconn.HandshakeError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, want, refused.Status)
	}
}

func TestAPublicAddressWithoutATokenIsRefused(t *testing.T) {
	t.Parallel()
	for addr, public := range map[string]bool{
		":8080": true, "0.0.0.0:8080": true, "[::]:8080": true, "10.1.2.3:80": true, "gpu-node:80": true,
		"127.0.0.1:80": false, "127.9.9.9:80": false, "[::1]:80": false, "localhost:80": false, "[::ffff:127.0.0.1]:80": false,
	} {
		err := server.Config{Listen: addr}.WithDefaults().Validate()
		assert.Equal(t, public, err != nil, addr)
		if public {
			require.ErrorIs(t, err, server.ErrPublic)
		}
		require.NoError(t, server.Config{Listen: addr, TokenFile: "t"}.WithDefaults().Validate(), addr)
	}
	s := newSite(t, siteOptions{bare: true})
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Start(t.Context(), ln), server.ErrPublic, "a listener that was handed over")
}

func TestValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	cfg := server.Config{
		Listen: "nowhere", TLSCert: "c", ClientCA: "", PickleBytes: -1, BodiesBytes: 5, MaxConns: -1, BodyTimeout: -1,
		SampleTimeout: time.Hour, Stream: wsconn.Config{OutboxBytes: -1},
	}
	err := cfg.WithDefaults().Validate()
	for _, want := range []string{"listen:", "tls_key", "pickle_bytes", "bodies_bytes", "max_conns", "body_timeout", "max_sample_timeout", "stream:"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, server.Config{ClientCA: "ca"}.WithDefaults().Validate(), "client_ca")
	for text, want := range map[string]string{"": "has no token", " \n": "has no token", "two words": "one word", "tökén": "one word"} {
		_, err := server.New(server.Options{Config: server.Config{TokenFile: tokenFile(t, text)}})
		require.ErrorContains(t, err, want)
	}
	_, err = server.New(server.Options{Config: server.Config{TokenFile: "/does/not/exist", TLSCert: "/nor/this", TLSKey: "/nor/that"}})
	for _, want := range []string{"token_file", "tls_cert", "loop", "profile"} {
		require.ErrorContains(t, err, want)
	}
}

func TestAWebPageOfAnotherSiteCannotPost(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := pickled(t, "images", jpegs(1))
	s.post("/", body, "Origin", "https://evil.example").refused(t, http.StatusForbidden)
	s.post("/", body, "Origin", s.url).scores(t)
	for origin, want := range map[string]int{"https://evil.example": 403, "null": 403} {
		_, err := wsconn.Dial(t.Context(), "ws"+s.url[4:]+"/v1/stream", wsconn.DialConfig{
			Subprotocol: wire.Protocol, Header: http.Header{"Origin": {origin}},
		})
		var refused *wsconn.HandshakeError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, want, refused.Status)
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	require.NoError(t, err)
	a.file = writePEM(t, "CERTIFICATE", der)
	return a
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func (a *authority) issue(until time.Time) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "leaf"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return writePEM(a.t, "CERTIFICATE", der), writePEM(a.t, "PRIVATE KEY", keyDER)
}

func TestTLSAndClientCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(time.Now().Add(time.Hour))
	file := tokenFile(t, secret)
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.TLSCert, o.Config.TLSKey, o.Config.ClientCA, o.Config.TokenFile = cert, key, ca.file, file
	}})
	roots := x509.NewCertPool()
	text, err := os.ReadFile(ca.file)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(text))
	ask := func(scheme string, cfg *tls.Config) (int, error) {
		tr := &http.Transport{TLSClientConfig: cfg}
		defer tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.Addr().String()+"/v1/runs", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	pair := func(a *authority, until time.Time) []tls.Certificate {
		certFile, keyFile := a.issue(until)
		c, err := tls.LoadX509KeyPair(certFile, keyFile)
		require.NoError(t, err)
		return []tls.Certificate{c}
	}
	good := &tls.Config{RootCAs: roots, Certificates: pair(ca, time.Now().Add(time.Hour))} //nolint:gosec // the default version
	status, err := ask("https", good)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)

	for name, cfg := range map[string]*tls.Config{
		"no certificate":      {RootCAs: roots},
		"of another CA":       {RootCAs: roots, Certificates: pair(stranger, time.Now().Add(time.Hour))},
		"expired":             {RootCAs: roots, Certificates: pair(ca, time.Now().Add(-time.Hour))},
		"TLS 1.1":             {RootCAs: roots, Certificates: good.Certificates, MaxVersion: tls.VersionTLS11},
		"unknown server":      {Certificates: good.Certificates},
		"another server name": {RootCAs: roots, Certificates: good.Certificates, ServerName: "example.org"},
	} {
		_, err := ask("https", cfg)
		require.Error(t, err, name)
	}
	status, err = ask("http", nil)
	assert.True(t, err != nil || status == http.StatusBadRequest, "plain HTTP to a TLS port")
	_, err = wsconn.Dial(t.Context(), "ws://"+s.Addr().String()+"/v1/stream", wsconn.DialConfig{Subprotocol: wire.Protocol})
	require.Error(t, err, "plain websocket to a TLS port")

	conn, err := wsconn.Dial(t.Context(), "wss://"+s.Addr().String()+"/v1/stream", wsconn.DialConfig{
		Subprotocol: wire.Protocol, TLS: good, Header: http.Header{"Authorization": {"Bearer " + secret}},
	})
	require.NoError(t, err)
	require.NoError(t, conn.Close(wsconn.CloseNormal, ""))

	_, err = server.New(server.Options{Config: server.Config{TLSCert: cert, TLSKey: key, ClientCA: key}})
	require.ErrorContains(t, err, "no PEM certificate")
	_, err = server.New(server.Options{Config: server.Config{TLSCert: cert, TLSKey: key, ClientCA: "/does/not/exist"}})
	require.ErrorContains(t, err, "client_ca: open /does/not/exist")

	// Without client CAs nobody needs a certificate.
	s = newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TLSCert, o.Config.TLSKey, o.Config.TokenFile = cert, key, file }})
	status, err = ask("https", &tls.Config{RootCAs: roots}) //nolint:gosec // the default version
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
}

// A web page whose own name is made to mean this machine sends requests that its browser takes
// for the page's own: they carry no foreign Origin. Their Host tells them apart.
func TestWithoutATokenOnlyTheMachinesOwnNamesAreAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	ask := func(method, path, host string, header ...string) reply {
		req := s.request(t.Context(), method, path, nil, header...)
		req.Host = host
		return s.do(req)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	for _, host := range []string{"evil.example", "evil.example:" + port, "localhost.evil.example", "127.0.0.1.evil.example:" + port, "192.168.1.7", "[2001:db8::1]:" + port, "0.0.0.0:" + port} {
		for _, path := range []string{"/", "/v1/runs", "/metrics", "/readyz", "/v1/stream"} {
			r := ask(http.MethodGet, path, host, "Origin", "http://"+host)
			require.Equal(t, http.StatusForbidden, r.StatusCode, "%s %s: %s", host, path, r.body)
			require.Contains(t, string(r.body), "server.token_file")
		}
		r := ask(http.MethodPost, "/v1/score", host, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin")
		require.Equal(t, http.StatusForbidden, r.StatusCode)
	}
	for _, host := range []string{"localhost", "localhost:" + port, "LOCALHOST.", "127.0.0.1:" + port, "127.8.9.1", "[::1]:" + port, "[::1]", "[::ffff:127.0.0.1]:" + port} {
		require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v1/runs", host).StatusCode, host)
	}
	file := tokenFile(t, secret)
	s = newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TokenFile = file }})
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v1/runs", "rewards.example", "Authorization", "Bearer "+secret).StatusCode, "with a token any name will do")
}

func TestASecretThatOthersMayReadIsSaid(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		file := tokenFile(t, secret)
		require.NoError(t, os.Chmod(file, mode))
		var log bytes.Buffer
		newSite(t, siteOptions{server: func(o *server.Options) {
			o.Config.TokenFile, o.Log = file, slog.New(slog.NewTextHandler(&log, nil))
		}})
		require.Equal(t, want, strings.Contains(log.String(), "chmod 600"), "%v: %s", mode, log.String())
	}
}
