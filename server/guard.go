package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
)

// readableByOthers are those of some files that users may read who are neither the owner nor
// of the file's group; "" is none. A group may be the one that a secret is mounted with.
func readableByOthers(files ...string) (list []string) {
	for _, f := range files {
		if info, err := os.Stat(f); f != "" && err == nil && info.Mode().Perm()&0o004 != 0 {
			list = append(list, f)
		}
	}
	return list
}

// guard lets requests in: no token in the URL, where logs and proxies would keep
// it; no page of another site that has a browser send what it wants; and the token.
// It answers before anything of the body is read.
func (s *Server) guard(c *gin.Context) {
	r := c.Request
	if q := r.URL.Query(); q.Has("token") || q.Has("access_token") || r.URL.User != nil {
		s.refuse(c, &compat.Fault{Status: http.StatusBadRequest, Class: rewards.Malformed, Message: "a token in the URL is not accepted: send the token as Authorization: Bearer"})
		return
	}
	if err := s.crossOrigin.Check(r); err != nil && r.Method != http.MethodGet {
		s.refuse(c, &compat.Fault{Status: http.StatusForbidden, Class: "forbidden", Message: "the request comes from a web page of another site"})
		return
	}
	if s.tokens == nil && !isTrusted(r) && onLoopback(r) && !namesLoopback(r.Host) {
		s.refuse(c, &compat.Fault{Status: http.StatusForbidden, Class: "forbidden", Message: fmt.Sprintf(
			"without a token_file this server answers requests to localhost, 127.0.0.1 and [::1] only, and this request is to %q: "+
				"any web page can make a host name resolve to this machine; set server.token_file to use other names", r.Host)})
		return
	}
	route := c.FullPath()
	// The plain page's links lead to the other state endpoints. The pickle clients cannot set
	// a header, but send what stands before the @ of their address.
	basic := route != routeStream
	name, shown := s.tokens.presented(r, basic)
	c.Set(clientKey, name)
	if shown || isTrusted(r) || route == routeHealth || route == routeReady || route == routeClaim || isShell(route, r) {
		return
	}
	scheme := "Bearer"
	if route == routeRoot && r.Method == http.MethodGet {
		scheme = "Basic" // has a browser ask for a name, which does not matter, and the token
	}
	if missed, ok := s.warnings.allow(time.Now()); ok {
		s.log.WarnContext(r.Context(), "a request with a wrong token, or none, was refused", "route", route, "remote", r.RemoteAddr, "not_logged_before", missed)
	}
	c.Header("WWW-Authenticate", scheme+` realm="rewardloop"`)
	s.refuse(c, &compat.Fault{Status: http.StatusUnauthorized, Class: "unauthorized", Message: "the token is missing or wrong: send Authorization: Bearer with the token of this server's token_file"})
}

// onLoopback reports whether a request came to an address that only this machine reaches.
func onLoopback(r *http.Request) bool {
	tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// namesLoopback reports whether a Host header names this machine in a way that no name server
// can change. Programs of HTTP/1.0 send none; browsers always do.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	ip, err := netip.ParseAddr(host)
	return host == "" || strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// tlsConfig reads certificate and client CAs; nil without TLS.
func tlsConfig(cfg Config) (*tls.Config, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
	}
	t := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if cfg.ClientCA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(cfg.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("client_ca: %w", err)
	}
	t.ClientCAs = x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("client_ca " + cfg.ClientCA + " holds no PEM certificate")
	}
	t.ClientAuth = tls.RequireAndVerifyClientCert
	return t, nil
}
