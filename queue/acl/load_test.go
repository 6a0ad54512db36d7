package acl_test

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

func TestLoadFindsTheUsersThatCreateWrote(t *testing.T) {
	t.Parallel()
	users, err := acl.Load(filepath.Join(made(t, acl.Config{}), "acl.conf"))
	require.NoError(t, err)
	require.Equal(t, 2, users.Users())
	var o server.Options
	users.Apply(&o)
	require.Len(t, o.Accounts, 1)
	require.Equal(t, acl.AccountName, o.Accounts[0].Name)
	for i, role := range acl.Roles() {
		publish, subscribe := acl.Permissions(role)
		require.Equal(t, publish, o.Nkeys[i].Permissions.Publish.Allow, role)
		require.Equal(t, subscribe, o.Nkeys[i].Permissions.Subscribe.Allow, role)
	}
}

// One set of options starts one server after the other, as when a NATS server is restarted.
func TestOptionsServeMoreThanOneServer(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	users, err := acl.Load(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	for range 2 {
		o := options(t)
		users.Apply(o)
		g := keyed(t, started(t, o), dir, acl.Gateway)
		declare(t, g)
		g.content(t)
	}
}

// withUsersOf is the text of one acl.conf with the users of another in front of its own.
func withUsersOf(t *testing.T, file, other string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	more, err := os.ReadFile(other)
	require.NoError(t, err)
	_, users, _ := strings.Cut(string(more), "users: [\n")
	users, _, found := strings.Cut(users, "    ]\n  }\n}")
	require.True(t, found)
	return strings.Replace(string(text), "users: [\n", "users: [\n"+users, 1)
}

// As docs/queue-security.md says, with a server that goes on.
func TestAKeyIsChangedWithoutAPause(t *testing.T) {
	t.Parallel()
	old, next := made(t, acl.Config{}), made(t, acl.Config{})
	s := including(t, old, "acl.conf")
	before := keyed(t, s, old, acl.Worker)
	ended := before.StatusChanged(nats.RECONNECTING, nats.CLOSED)

	file, other := filepath.Join(old, "acl.conf"), filepath.Join(next, "acl.conf")
	require.NoError(t, os.WriteFile(file, []byte(withUsersOf(t, file, other)), 0o600))
	require.NoError(t, s.Reload())
	keyed(t, s, next, acl.Worker).content(t)
	before.content(t)
	users, err := acl.Load(file)
	require.NoError(t, err)
	require.Equal(t, 4, users.Users(), "an embedded server takes both as well")

	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	require.NoError(t, s.Reload())
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the old key is still there")
	}
	require.EqualError(t, try(s, option(t, acl.NKey, filepath.Join(old, "worker.nk"))), "nats: Authorization Violation")
	keyed(t, s, next, acl.Worker).content(t)
}

func TestLoadRefusesByNameWhatIsNotAboutUsers(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	good, err := os.ReadFile(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	secret, err := os.ReadFile(filepath.Join(dir, "worker.nk"))
	require.NoError(t, err)
	resolver, err := os.ReadFile(filepath.Join(made(t, acl.Config{JWT: true}), "resolver.conf"))
	require.NoError(t, err)
	in := func(old, changed string) string {
		require.Contains(t, string(good), old)
		return strings.Replace(string(good), old, changed, 1)
	}
	user := "{nkey: " + regexp.MustCompile(`U[A-Z2-7]{55}`).FindString(string(good)) + ", "
	tests := map[string]struct {
		text string
		want []string
	}{
		"port":               {"port: 4222\n" + string(good), []string{"port is not allowed in this file; want one of accounts"}},
		"cluster, jetstream": {"cluster { name: x }\njetstream { store_dir: x }\n" + string(good), []string{"cluster is not allowed in", "\njetstream is not allowed in"}},
		"authorization":      {"authorization { token: sesame }\n" + string(good), []string{"authorization is not allowed in this file"}},
		"include":            {"include other.conf\n" + string(good), []string{"the file includes another file"}},
		"include in a block": {in("jetstream: enabled", "include 'other.conf'; jetstream: enabled"), []string{"the file includes another file"}},
		"imports":            {in("jetstream: enabled", "jetstream: enabled; imports: []"), []string{"accounts.REWARDLOOP.imports is not allowed in this file; want one of jetstream, users"}},
		"no jetstream":       {in("jetstream: enabled", ""), []string{"accounts.REWARDLOOP: want jetstream: enabled"}},
		"a limit":            {in("jetstream: enabled", "jetstream: {max_mem: 1}"), []string{"want jetstream: enabled"}},
		"password":           {in("users: [", "users: [\n{user: a, password: sesame}"), []string{"users[0].password is not allowed in this file", "users[0].user is not", "users[0] has no nkey"}},
		"no permissions":     {in("users: [", "users: [\n"+user+"}"), []string{"users[0].permissions has no publish, so that everything would be allowed", "has no subscribe"}},
		"half a permission":  {in("users: [", "users: [\n"+user+"permissions: {publish: x, subscribe: {deny: x}}}"), []string{"permissions.subscribe has no allow"}},
		"allow_responses":    {in("users: [", "users: [\n"+user+"permissions: {publish: x, subscribe: x, allow_responses: true}}"), []string{"permissions.allow_responses is not allowed in this file"}},
		"no key":             {in("users: [", "users: [\n{nkey: sesame, permissions: {publish: x, subscribe: x}}"), []string{"line 16: Not a valid public nkey for a user"}},
		"twice one key":      {in("users: [", "users: [\n"+user+"permissions: {publish: x, subscribe: x}}"), []string{"Duplicate nkey"}},
		"two accounts":       {in("accounts {", "accounts {\n B { jetstream: enabled, users: [] }"), []string{"the file has the accounts B and REWARDLOOP, which are isolated from each other", "accounts.B has no users"}},
		"reserved account":   {in(" REWARDLOOP {", " $G {"), []string{"Reserved Account"}},
		"users: a word":      {"accounts { A { jetstream: enabled, users: x } }", []string{"accounts.A has no users"}},
		"an account: a word": {"accounts { A: x }", []string{"accounts.A is not a block"}},
		"a user: a word":     {"accounts { A { jetstream: enabled, users: [x] } }", []string{"accounts.A.users[0] is not a block"}},
		"empty":              {"# nothing\n", []string{"the file has no users"}},
		"no account":         {"accounts {}\n", []string{"the file has no users"}},
		"a seed":             {string(good) + "# " + string(secret), []string{"the file contains a seed, which is secret"}},
		"no configuration":   {"{]", []string{"config is invalid (line 1)"}},
		"the JWTs' file":     {string(resolver), []string{"operator is not allowed in this file", "resolver is not", "resolver_preload is not", "system_account is not"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "acl.conf")
			require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
			_, err := acl.Load(file)
			require.ErrorIs(t, err, acl.ErrFile)
			require.ErrorContains(t, err, "acl: cannot use "+file+": ")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), strings.TrimSpace(string(secret)))
			require.NotContains(t, err.Error(), "eyJ")
		})
	}
}

func TestLoadRefusesFilesThatAreNotSafeToRead(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	file := filepath.Join(dir, "acl.conf")
	require.NoError(t, os.Chmod(file, 0o666))
	_, err := acl.Load(file)
	require.EqualError(t, err, "acl: cannot use "+file+": all users may write to the file (mode 0666); run: chmod o-w "+file)
	_, err = acl.Load(filepath.Join(dir, "none.conf"))
	require.EqualError(t, err, "acl: cannot use "+filepath.Join(dir, "none.conf")+": no such file or directory")
	_, err = acl.Load(dir)
	require.ErrorContains(t, err, "not a regular file")
	large := filepath.Join(dir, "large.conf")
	require.NoError(t, os.WriteFile(large, make([]byte, 1<<20+1), 0o600))
	_, err = acl.Load(large)
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

func FuzzLoad(f *testing.F) {
	for _, text := range []string{"", "accounts { A { jetstream: enabled, users: [ {nkey: U, permissions: {publish: x, subscribe: {allow: [x]}}} ] } }", "a: $B", "include x", "accounts: [A]"} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "acl.conf")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		users, err := acl.Load(file)
		if err == nil {
			require.Positive(t, users.Users())
		} else {
			require.ErrorIs(t, err, acl.ErrFile)
		}
	})
}
