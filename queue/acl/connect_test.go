package acl_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

func option(t *testing.T, read func(string) (nats.Option, error), file string) nats.Option {
	t.Helper()
	o, err := read(file)
	require.NoError(t, err)
	return o
}

func TestOnlyTheKeysOfTheFileAreLetIn(t *testing.T) {
	t.Parallel()
	dir, foreign := made(t, acl.Config{}), made(t, acl.Config{})
	jwts, others := made(t, acl.Config{JWT: true}), made(t, acl.Config{JWT: true})
	s, operated := bus(t, dir), including(t, jwts, "resolver.conf")
	const violation = "nats: Authorization Violation"
	require.EqualError(t, try(s), violation, "no key")
	require.EqualError(t, try(s, option(t, acl.NKey, filepath.Join(foreign, "worker.nk"))), violation, "a key of another bus")
	require.EqualError(t, try(s, option(t, acl.Creds, filepath.Join(jwts, "worker.creds"))), violation, "credentials for another bus")
	require.EqualError(t, try(s, nats.UserInfo("worker", "sesame")), violation)
	require.EqualError(t, try(operated), violation, "no credentials")
	require.EqualError(t, try(operated, option(t, acl.Creds, filepath.Join(others, "gateway.creds"))), violation, "credentials of another operator")
	require.EqualError(t, try(operated, option(t, acl.NKey, filepath.Join(dir, "gateway.nk"))), violation, "a key for another bus")

	// Within the process a key is wanted too. (Without one the server's refusal meets a
	// pipe that nobody reads, for 10 s.)
	nc, err := nats.Connect("", nats.InProcessServer(s), option(t, acl.NKey, filepath.Join(dir, "gateway.nk")))
	require.NoError(t, err)
	nc.Close()
}

// secure is a bus with TLS; with clients it asks for their certificates.
func secure(t *testing.T, dir string, clients bool) *server.Server {
	t.Helper()
	users, err := acl.Load(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	o := options(t)
	users.Apply(o)
	o.TLSTimeout = 5
	o.TLSConfig, err = server.GenTLSConfig(&server.TLSConfigOpts{
		CertFile: filepath.Join(dir, "server.pem"), KeyFile: filepath.Join(dir, "server-key.pem"), CaFile: filepath.Join(dir, "ca.pem"), Verify: clients,
	})
	require.NoError(t, err)
	return started(t, o)
}

func TestOverTLSBothSidesKnowWhoTheOtherIs(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{Hosts: []string{"127.0.0.1"}, MutualTLS: true})
	elsewhere := made(t, acl.Config{Hosts: []string{"gateway.lab", "10.0.0.1"}, MutualTLS: true})
	s, mutual := secure(t, dir, false), secure(t, dir, true)
	key := option(t, acl.NKey, filepath.Join(dir, "worker.nk"))
	trust := func(dir string) nats.Option { return nats.RootCAs(filepath.Join(dir, "ca.pem")) }

	w := dial(t, s, acl.Worker, key, trust(dir))
	state, err := w.TLSConnectionState()
	require.NoError(t, err)
	require.GreaterOrEqual(t, state.Version, uint16(tls.VersionTLS12))
	w = dial(t, mutual, acl.Worker, key, trust(dir), nats.ClientCert(filepath.Join(dir, "worker.pem"), filepath.Join(dir, "worker-key.pem")))
	w.content(t)

	require.EqualError(t, try(s, trust(dir)), "nats: Authorization Violation", "TLS alone lets nobody in")
	require.ErrorContains(t, try(s, key), "certificate signed by unknown authority", "a plain client, or one without our authority")
	require.ErrorContains(t, try(s, key, trust(elsewhere)), "certificate signed by unknown authority")
	wrong := secure(t, elsewhere, false)
	require.ErrorContains(t, try(wrong, option(t, acl.NKey, filepath.Join(elsewhere, "worker.nk")), trust(elsewhere)),
		"certificate is valid for 10.0.0.1, not 127.0.0.1")
	// TLS 1.3 tells a client after its own part is done.
	require.Error(t, try(mutual, key, trust(dir)), "no certificate")
	foreign := nats.ClientCert(filepath.Join(elsewhere, "worker.pem"), filepath.Join(elsewhere, "worker-key.pem"))
	require.Error(t, try(mutual, key, trust(dir), foreign), "a foreign certificate")
	require.ErrorIs(t, try(bus(t, dir), key, nats.Secure()), nats.ErrSecureConnWanted, "TLS to a plain port")
}

func TestAServerIsNoClientsPlainPort(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{Hosts: []string{"127.0.0.1"}})
	s := secure(t, dir, false)
	nc, err := nats.Connect("nats://"+s.Addr().String(), option(t, acl.NKey, filepath.Join(dir, "worker.nk")), nats.Timeout(5*time.Second))
	require.ErrorContains(t, err, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
	require.Nil(t, nc)
}

// spoiled are files that are not what was asked for.
func spoiled(t *testing.T) map[string]string {
	t.Helper()
	dir := made(t, acl.Config{Hosts: []string{"localhost"}})
	jwts := made(t, acl.Config{JWT: true})
	write := func(name, text string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		return at
	}
	open := filepath.Join(made(t, acl.Config{}), "gateway.nk")
	require.NoError(t, os.Chmod(open, 0o640))
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	publicKey, err := user.PublicKey()
	require.NoError(t, err)
	own, err := user.Seed()
	require.NoError(t, err)
	account, err := nkeys.FromSeed(seedIn(t, filepath.Join(jwts, "account.nk")))
	require.NoError(t, err)
	token := func(expires int64) string {
		u := jwt.NewUserClaims(publicKey)
		u.Expires = expires
		token, err := u.Encode(account)
		require.NoError(t, err)
		return token
	}
	creds := func(token, seed string) string {
		return "-----BEGIN NATS USER JWT-----\n" + token + "\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n" + seed + "\n------END USER NKEY SEED------\n"
	}
	other := string(seedIn(t, filepath.Join(dir, "worker.nk")))
	return map[string]string{
		"creds": filepath.Join(jwts, "worker.creds"), "account": filepath.Join(jwts, "account.nk"), "operator": filepath.Join(jwts, "operator.nk"),
		"TLS key": filepath.Join(dir, "server-key.pem"), "nkey": filepath.Join(dir, "worker.nk"),
		"certificate": write("server-copy.pem", "-----BEGIN CERTIFICATE-----\nx\n"), "public": write("public.nk", publicKey+"\n"),
		"empty": write("empty.nk", "\n"), "garbage": write("garbage.nk", "sesame\n"), "damaged": write("damaged.nk", other[:57]+"A"+other[:3]+"\n"),
		"open": open, "none": filepath.Join(dir, "none.nk"), "folder": dir,
		"ended": write("ended.creds", creds(token(time.Now().Unix()-10), string(own))), "swapped": write("swapped.creds", creds(token(0), other)),
		"no seed": write("noseed.creds", creds(token(0), "sesame")), "garbled JWT": write("jwt.creds", creds("eyJsecret", string(own))),
		"account's JWT": write("account.creds", creds(accountJWT(t), string(own))),
	}
}

func seedIn(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return regexp.MustCompile(`S[A-Z2-7]{57}`).Find(data)
}

func accountJWT(t *testing.T) string {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	publicKey, err := account.PublicKey()
	require.NoError(t, err)
	token, err := jwt.NewAccountClaims(publicKey).Encode(operator)
	require.NoError(t, err)
	return token
}

func TestAFileThatIsNoKeyIsRefusedByWhatItIs(t *testing.T) {
	t.Parallel()
	files := spoiled(t)
	for kind, want := range map[string]string{
		"creds":       "the file is a credentials file; name the file in queue.creds_file",
		"account":     "the file is the seed of an account; want the seed of a user (SU…)",
		"operator":    "the file is the seed of an operator; want the seed of a user (SU…)",
		"TLS key":     "the file is a TLS key; want the seed of a user (SU…)",
		"certificate": "the file is a certificate; want the seed of a user (SU…)",
		"public":      "the file is the public key of a user; want the seed of a user (SU…)",
		"empty":       "the file is empty; want the seed of a user (SU…)",
		"garbage":     "the file is not a readable key; want the seed of a user (SU…)",
		"damaged":     "the file is not a readable key; want the seed of a user (SU…)",
		"open":        "other users may read or change the file (mode 0640); run: chmod 600 " + files["open"],
		"none":        `no such file or directory; "rewardloop queue acl" makes such files`,
		"folder":      "not a regular file",
	} {
		_, err := acl.NKey(files[kind])
		require.ErrorIs(t, err, acl.ErrFile)
		require.EqualError(t, err, "acl: cannot use "+files[kind]+": "+want)
	}
	for kind, want := range map[string]string{
		"nkey":          "the file is the seed of a user; want credentials (a .creds file). Name a seed in queue.nkey_file",
		"account":       "the file is the seed of an account; want credentials",
		"TLS key":       "the file is a TLS key; want credentials",
		"empty":         "the file is empty; want credentials",
		"open":          "chmod 600",
		"none":          "no such file or directory",
		"ended":         "the JWT expired on ",
		"swapped":       "the seed does not belong to the JWT",
		"no seed":       "the file has no seed of a user",
		"garbled JWT":   "the JWT cannot be read",
		"account's JWT": `the JWT is of the kind "account"; want a user's`,
	} {
		_, err := acl.Creds(files[kind])
		require.ErrorIs(t, err, acl.ErrFile)
		require.ErrorContains(t, err, "acl: cannot use "+files[kind]+": ")
		require.ErrorContains(t, err, want)
	}
}

func TestAnErrorNeverQuotesAFile(t *testing.T) {
	t.Parallel()
	for kind, file := range spoiled(t) {
		for _, read := range []func(string) (nats.Option, error){acl.NKey, acl.Creds} {
			if _, err := read(file); err != nil {
				require.NotRegexp(t, `S[A-Z2-7]{20}|eyJ|sesame`, err.Error(), kind)
			}
		}
	}
}

// The key is asked for at each connection; one that was replaced meanwhile is another
// user, whom the process does not silently become.
func TestAKeyThatChangesUnderARunningProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir, next := made(t, acl.Config{}), made(t, acl.Config{})
	s := bus(t, dir)
	file := filepath.Join(dir, "worker.nk")
	key := option(t, acl.NKey, file)
	dial(t, s, acl.Worker, key).content(t)
	require.NoError(t, os.WriteFile(file, seedIn(t, filepath.Join(next, "worker.nk")), 0o600))
	require.EqualError(t, try(s, key), "error signing nonce: acl: cannot use "+file+": the file has another key than when this process started; restart the process to use the new key")
	require.NoError(t, os.Chmod(file, 0o644))
	require.ErrorContains(t, try(s, key), "chmod 600")
}
