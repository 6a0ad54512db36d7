package acl_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

// names of the files in a folder with their modes.
func modes(t *testing.T, dir string) map[string]os.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]os.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		all[e.Name()] = info.Mode()
	}
	return all
}

func TestFilesWithASecretAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]os.FileMode{"gateway.nk": 0o600, "worker.nk": 0o600, "acl.conf": 0o644}, modes(t, made(t, acl.Config{})))
	require.Equal(t, map[string]os.FileMode{
		"gateway.creds": 0o600, "worker.creds": 0o600, "operator.nk": 0o600, "account.nk": 0o600, "resolver.conf": 0o644,
		"ca.pem": 0o644, "ca-key.pem": 0o600, "server.pem": 0o644, "server-key.pem": 0o600,
		"gateway.pem": 0o644, "gateway-key.pem": 0o600, "worker.pem": 0o644, "worker-key.pem": 0o600,
	}, modes(t, made(t, acl.Config{JWT: true, Hosts: []string{"localhost"}, MutualTLS: true})))
	dir := made(t, acl.Config{Hosts: []string{"localhost"}})
	require.NotContains(t, modes(t, dir), "worker.pem", "certificates for clients only where they are asked for")
	for name, mode := range modes(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		if mode == 0o644 {
			require.NotRegexp(t, `S[ACNOUX][A-Z2-7]{56}|PRIVATE`, string(data), name)
		}
	}
}

func TestFilesThatAreThereAreNamedAndStay(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	require.NoError(t, os.Remove(filepath.Join(dir, "acl.conf")))
	before, err := os.ReadFile(filepath.Join(dir, "worker.nk"))
	require.NoError(t, err)

	_, err = acl.Create(acl.Config{Dir: dir})
	require.ErrorIs(t, err, acl.ErrExists)
	require.EqualError(t, err, "acl: files exist already, not replaced: "+filepath.Join(dir, "gateway.nk")+", "+filepath.Join(dir, "worker.nk"))
	after, err := os.ReadFile(filepath.Join(dir, "worker.nk"))
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Len(t, modes(t, dir), 2, "none was written")

	_, err = acl.Create(acl.Config{Dir: dir, Force: true})
	require.NoError(t, err)
	after, err = os.ReadFile(filepath.Join(dir, "worker.nk"))
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.Len(t, modes(t, dir), 3, "and nothing else is left")
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	_, err := acl.Create(acl.Config{Hosts: []string{"gateway:4222", "tls://gateway", "a b", "", "10.0.0.1", "::1", "*.lab.example"}})
	require.EqualError(t, err, `acl: no folder was named for the files
acl: host "gateway:4222": want a name or an IP address, without a port or a scheme
acl: host "tls://gateway": want a name or an IP address, without a port or a scheme
acl: host "a b": neither a host name nor an IP address
acl: host "": neither a host name nor an IP address`)
	_, err = acl.Create(acl.Config{Dir: t.TempDir(), MutualTLS: true})
	require.EqualError(t, err, "acl: certificates for clients need a certificate for the server, too: name the hosts of the server (--tls)")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = acl.Create(acl.Config{Dir: file})
	require.ErrorContains(t, err, "not a directory")
}

func certificate(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	block, _ := pem.Decode(data)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}

func TestTheAuthoritySignsForHostsAndForTenYears(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{Hosts: []string{"gateway.lab", "10.0.0.1", "::1", "*.nodes.lab"}, MutualTLS: true})
	ca := certificate(t, dir, "ca.pem")
	require.True(t, ca.IsCA)
	require.Equal(t, elliptic.P256(), ca.PublicKey.(*ecdsa.PublicKey).Curve)
	require.WithinDuration(t, time.Now().AddDate(10, 0, 0), ca.NotAfter, time.Minute)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	server := certificate(t, dir, "server.pem")
	for _, host := range []string{"gateway.lab", "10.0.0.1", "::1", "n7.nodes.lab"} {
		_, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		require.NoError(t, err, host)
	}
	_, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.lab"})
	require.ErrorContains(t, err, "not other.lab")
	for _, role := range []string{"gateway", "worker"} {
		_, err := certificate(t, dir, role+".pem").Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		require.NoError(t, err)
		_, err = certificate(t, dir, role+".pem").Verify(x509.VerifyOptions{Roots: roots})
		require.ErrorContains(t, err, "incompatible key usage", "a role's certificate serves nobody")
	}
	require.NotEqual(t, ca.SerialNumber, server.SerialNumber)
}

func TestACredentialsFileNamesItsRoleAndWhatItMayDo(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{JWT: true})
	for _, role := range acl.Roles() {
		data, err := os.ReadFile(filepath.Join(dir, acl.CredsFile(role)))
		require.NoError(t, err)
		token, err := jwt.ParseDecoratedJWT(data)
		require.NoError(t, err)
		u, err := jwt.DecodeUserClaims(token)
		require.NoError(t, err)
		require.Equal(t, string(role), u.Name)
		publish, subscribe := acl.Permissions(role)
		slices.Sort(publish)
		slices.Sort(subscribe)
		require.ElementsMatch(t, publish, u.Pub.Allow)
		require.ElementsMatch(t, subscribe, u.Sub.Allow)
		results := jwt.CreateValidationResults()
		u.Validate(results)
		require.Empty(t, results.Issues)
	}
}
