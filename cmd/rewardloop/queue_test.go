package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

func TestQueueACLSaysWhatItWroteAndWhatToRunNext(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "access")
	got := call(t, "", "queue", "acl", "--out", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Empty(t, got.stderr)
	require.Equal(t, strings.ReplaceAll(`written to DIR:
  gateway.nk  secret  the secret key of gateways (rewardloop serve)
  worker.nk   secret  the secret key of workers (rewardloop worker)
  acl.conf            what each key may do; for the server, holds no secret

then, on the gateway's machine:
  rewardloop serve -c cfg.yaml --nats-listen 0.0.0.0:4222 \
    ++queue.acl_file=DIR/acl.conf \
    ++queue.nkey_file=DIR/gateway.nk
on each worker's machine, which gets worker.nk:
  rewardloop worker -c cfg.yaml --join nats://HOST:4222 \
    ++queue.nkey_file=DIR/worker.nk
`, "DIR", dir), got.stdout)

	again := call(t, "", "queue", "acl", "--out", dir)
	require.Equal(t, exitUsage, again.code)
	require.Equal(t, strings.ReplaceAll("rewardloop queue acl: files exist already, not replaced: DIR/gateway.nk, DIR/worker.nk, DIR/acl.conf; --force replaces them\n", "DIR", dir), again.stderr)
	require.Equal(t, exitOK, call(t, "", "queue", "acl", "--out", dir, "--force").code)
}

func TestQueueACLNamesCertificatesWhereTheyBelong(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my access")
	got := call(t, "", "queue", "acl", "--tls", "fd00::5, gateway.lab", "--mtls", "--out", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	for _, want := range []string{
		"the server's certificate, for fd00::5, gateway.lab\n",
		" ++queue.acl_file='DIR/acl.conf' ++queue.nkey_file='DIR/gateway.nk' ++queue.tls_ca='DIR/ca.pem' ++queue.tls_cert='DIR/server.pem' ++queue.tls_key='DIR/server-key.pem'\n",
		"which gets worker.nk, ca.pem, worker.pem, worker-key.pem:\n",
		"--join tls://[fd00::5]:4222 ++queue.nkey_file='DIR/worker.nk' ++queue.tls_ca='DIR/ca.pem' ++queue.tls_cert='DIR/worker.pem' ++queue.tls_key='DIR/worker-key.pem'\n",
	} {
		require.Contains(t, strings.ReplaceAll(got.stdout, " \\\n    ", " "), strings.ReplaceAll(want, "DIR", dir))
	}
	got = call(t, "", "queue", "acl", "--jwt", "--out", dir, "--tls", "nats.lab")
	require.Equal(t, exitUsage, got.code, "ca.pem is there")
	got = call(t, "", "queue", "acl", "--jwt", "--out", filepath.Join(dir, "jwt"), "--tls", "nats.lab")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Regexp(t, `include '.*/my access/jwt/resolver.conf'`, got.stdout)
	require.Regexp(t, `serve -c cfg.yaml --nats tls://nats.lab:4222 \\\n    \+\+queue.creds_file='.*/gateway.creds'`, got.stdout)
	require.NotContains(t, got.stdout, "server-key.pem'", "that is the nats-server's")
	require.NotRegexp(t, `S[ACNOUX][A-Z2-7]{56}`, got.stdout)
}

func TestQueueRefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"rewardloop queue: name acl, such as `rewardloop queue acl`\n":                                                                    {},
		"rewardloop queue acl: --out must name a folder for the key files\n`rewardloop queue acl --help` shows the arguments and flags\n": {"acl"},
		"rewardloop queue acl: unexpected \"worker\"\n`rewardloop queue acl --help` shows the arguments and flags\n":                      {"acl", "worker", "--out", dir},
		"rewardloop queue acl: certificates for clients need a certificate for the server, too: name the hosts of the server (--tls)\n":   {"acl", "--out", dir, "--mtls"},
		"rewardloop queue acl: host \"tls://a:4222\": want a name or an IP address, without a port or a scheme\n":                         {"acl", "--out", dir, "--tls", "tls://a:4222"},
		"rewardloop queue acl: host \"\": neither a host name nor an IP address\n":                                                        {"acl", "--out", dir, "--tls", "a,,b"},
		"rewardloop queue acl: folder: mkdir " + filepath.Join(dir, "file") + ": not a directory\n":                                       {"acl", "--out", filepath.Join(dir, "file")},
	} {
		if strings.Contains(want, "mkdir") {
			put(t, dir, "file", nil)
		}
		got := call(t, "", append([]string{"queue"}, args...)...)
		require.Equal(t, want, got.stderr)
		require.NotEqual(t, exitOK, got.code)
		require.Empty(t, got.stdout)
	}
}

// What the command writes admits its keys and nobody else.
func TestWhatQueueACLWritesAdmitsItsKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Equal(t, exitOK, call(t, "", "queue", "acl", "--out", dir, "--tls", "127.0.0.1").code)
	users, err := acl.Load(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	o := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), TLSTimeout: 5}
	o.TLSConfig, err = server.GenTLSConfig(&server.TLSConfigOpts{CertFile: filepath.Join(dir, "server.pem"), KeyFile: filepath.Join(dir, "server-key.pem")})
	require.NoError(t, err)
	users.Apply(o)
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	require.True(t, s.ReadyForConnections(10*time.Second))
	ca := nats.RootCAs(filepath.Join(dir, "ca.pem"))
	for _, role := range acl.Roles() {
		key, err := acl.NKey(filepath.Join(dir, acl.SeedFile(role)))
		require.NoError(t, err)
		nc, err := nats.Connect(s.ClientURL(), key, ca)
		require.NoError(t, err)
		nc.Close()
	}
	_, err = nats.Connect(s.ClientURL(), ca)
	require.ErrorIs(t, err, nats.ErrAuthorization)
}

// The commands that are printed are words that a shell and the settings understand.
func TestTheNextCommandsKeepOddFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a $folder")
	got := call(t, "", "queue", "acl", "--out", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	setting := regexp.MustCompile(`\+\+queue.acl_file=(\S.*?)( \\)?\n`).FindStringSubmatch(got.stdout)
	require.Equal(t, `'`+strings.ReplaceAll(dir, "'", `'\''`)+`/acl.conf'`, setting[1])
	info, err := os.Stat(filepath.Join(dir, "gateway.nk"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}
