package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/queue/acl"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// processName is what this process is called among all.
func processName(f config.Queue) string {
	if f.Name != "" {
		return f.Name
	}
	return hostName() + "-" + strconv.Itoa(os.Getpid())
}

// hostName is this machine's name.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "host"
	}
	return host
}

// lifeName is the name of one life of a gateway: tickets of an earlier one must not be
// taken for its own.
func lifeName(name string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return name + "-" + hex.EncodeToString(b[:])
}

// queueConfig says where NATS is and who this process is there.
func queueConfig(c *config.Config, role acl.Role) (queue.Config, error) {
	f := c.Queue
	cfg := f.Config
	if !f.Networked() {
		cfg.Durable = false
		return cfg, nil
	}
	cfg.Name = processName(f)
	var errs []error
	if f.NKeyFile != "" {
		opt, err := acl.NKey(f.NKeyFile)
		errs, cfg.Credentials = append(errs, err), append(cfg.Credentials, opt)
	}
	if f.CredsFile != "" {
		opt, err := acl.Creds(f.CredsFile)
		errs, cfg.Credentials = append(errs, err), append(cfg.Credentials, opt)
	}
	if f.ACLFile != "" {
		access, err := acl.Load(f.ACLFile)
		errs = append(errs, err)
		cfg.Access = access.Apply
	}
	errs = append(errs, ownAccess(f, role, &cfg))
	var err error
	cfg.TLS, err = natsTLS(f)
	return cfg, errors.Join(append(errs, err)...)
}

// ownAccess is for a bus that only this machine reaches and that nobody has made keys for: it
// takes those who can read the keys of the user that runs it.
func ownAccess(f config.Queue, role acl.Role, cfg *queue.Config) error {
	listens := f.Listen != "" && f.ACLFile == ""
	joins := f.Listen == "" && f.NKeyFile == "" && f.CredsFile == "" && !slices.ContainsFunc(f.URLs, func(u string) bool { return !onThisMachine(u) })
	if !listens && !joins {
		return nil
	}
	dir, err := acl.OwnDir()
	if err != nil && joins {
		return nil // the bus may want none
	}
	var access acl.Options
	if listens && err == nil {
		access, err = acl.Own(dir)
	}
	if err != nil {
		return fmt.Errorf("%w: make keys with `rewardloop queue acl --out access`, and write queue.acl_file=access/acl.conf and queue.nkey_file=access/gateway.nk", err)
	}
	file := filepath.Join(dir, acl.SeedFile(role))
	if listens {
		cfg.Access = access.Apply
		if f.NKeyFile != "" || f.CredsFile != "" {
			return nil
		}
	}
	cfg.OwnKey = acl.OwnKey(file)
	return nil
}

// onThisMachine reports whether an address of NATS is of the loopback.
func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// natsTLS is for connections to NATS, and for those of the NATS in this process; nil where
// they are in clear.
func natsTLS(f config.Queue) (*tls.Config, error) {
	secure := slices.ContainsFunc(f.URLs, func(u string) bool { return strings.HasPrefix(u, "tls://") })
	if !secure && (f.Listen == "" || f.TLSCert == "") {
		return nil, nil
	}
	t, err := peerTLS(f)
	if err != nil {
		return nil, err
	}
	if f.TLSClients {
		t.ClientCAs = t.RootCAs
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return t, nil
}

// peerTLS has the CA by which others are checked and the certificate that they are shown.
func peerTLS(f config.Queue) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCA != "" {
		pem, err := os.ReadFile(f.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("queue.tls_ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("queue.tls_ca: " + f.TLSCA + " contains no PEM certificate")
		}
	}
	if f.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("queue.tls_cert and queue.tls_key: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

// claimClient is the way to the gateways of other processes.
func (p *parts) claimClient(alive func(gateway string) bool) (*payload.Client, error) {
	t, err := peerTLS(p.cfg.Queue)
	if err != nil {
		return nil, err
	}
	l := p.cfg.Loop
	return payload.NewClient(payload.ClientOptions{
		TLS: t, Secure: p.cfg.Queue.TLSCA != "", Buffers: p.buffers, Limits: wire.Limits{MessageBytes: l.MessageBytes},
		Alive: alive, Version: p.version, Log: p.log, Metrics: p.metrics,
	})
}

// route is the gateway of a ticket: this process's own, or another's.
type route struct {
	name  string // of its own
	own   workers.Gateway
	other workers.Gateway
}

func (r route) of(t wire.Ticket) workers.Gateway {
	if t.Gateway == r.name {
		return r.own
	}
	return r.other
}

// Claim implements workers.Gateway.
func (r route) Claim(ctx context.Context, t wire.Ticket, worker string) (*wire.Frame, []rewards.ComponentResult, error) {
	return r.of(t).Claim(ctx, t, worker)
}

// ClaimGroup implements workers.Gateway.
func (r route) ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	return r.of(t).ClaimGroup(ctx, t, worker)
}

// Finish implements workers.Gateway.
func (r route) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	return r.of(t).Finish(ctx, t, res)
}

// claimURL is where workers reach the HTTP server that listens at addr.
func claimURL(c *config.Config, addr net.Addr) (url string, reachable bool) {
	if a := c.Queue.Advertise; a != "" {
		return strings.TrimRight(a, "/") + claimPath, true
	}
	scheme := "ws"
	if c.Server.TLSCert != "" {
		scheme = "wss"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", false
	}
	ip := net.ParseIP(host)
	if ip != nil && ip.IsUnspecified() {
		host = hostAddress()
	}
	return scheme + "://" + net.JoinHostPort(host, port) + claimPath, ip == nil || !ip.IsLoopback()
}

const claimPath = "/v1/claim"

// hostAddress is the first address of this machine that others can reach, else its name.
func hostAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
				return n.IP.String()
			}
		}
	}
	return hostName()
}

// signer makes the tokens of a gateway's tickets.
func signer(key *payload.Key, ttl time.Duration) func(wire.AttemptKey) string {
	return func(k wire.AttemptKey) string { return key.Sign(k, time.Now().Add(ttl)) }
}
