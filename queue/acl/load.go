package acl

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
)

// errFile is that of a file that cannot be used for what it was named for.
var errFile = errors.New("acl: cannot use")

// maxFile bounds what is read of a file: acl.conf has 4 KB, credentials have 2.
const maxFile = 1 << 20

// Options are the users of an embedded server. After Load there is at least one user.
type Options struct {
	accounts []*server.Account
	nkeys    []*server.NkeyUser
}

// Apply adds the users and their account to the options of a server. The server then refuses every
// connection without one of their keys, including connections within the process.
func (o Options) Apply(to *server.Options) {
	to.Accounts = append(to.Accounts, o.accounts...)
	to.Nkeys = append(to.Nkeys, o.nkeys...)
}

// Load reads acl.conf, which Create wrote and which may have been edited: one account with users,
// each a public nkey with the subjects that it may publish and subscribe to. Load refuses all other
// settings of a nats-server configuration by name, because an embedded server gets them elsewhere
// or must not have them.
func Load(file string) (Options, error) {
	refuse := func(err error) (Options, error) { return Options{}, fmt.Errorf("%w %s: %w", errFile, file, err) }
	text, err := readBounded(file, func(info os.FileInfo) error {
		if info.Mode().Perm()&0o002 != 0 {
			return fmt.Errorf("all users may write to the file (mode %#o); run: chmod o-w %s", info.Mode().Perm(), file)
		}
		return nil
	})
	if err != nil {
		return refuse(err)
	}
	seed := regexp.MustCompile(`\bS[ACNOUX][A-Z2-7]{56}\b`) // the secret half of any kind of key: 58 letters of base32
	if seed.Match(text) {
		return refuse(errors.New("the file contains a seed, which is secret (S…); want public keys only (U…). Replace that key with a new one, because the secret was readable"))
	}
	if includes(string(text)) {
		return refuse(errors.New("the file includes another file; write the users into this file"))
	}
	tree, err := conf.Parse(string(text))
	if err != nil {
		return refuse(located(err))
	}
	if err := checkTree(tree); err != nil {
		return refuse(err)
	}
	users, err := parseUsers(string(text)) // what is only a warning was refused above
	if err != nil {
		return refuse(located(err))
	}
	return users, nil
}

// parseUsers reads the users of a fragment.
func parseUsers(text string) (Options, error) {
	o := &server.Options{}
	if err := o.ProcessConfigString(text); err != nil {
		return Options{}, err
	}
	return Options{accounts: o.Accounts, nkeys: o.Nkeys}, nil
}

// located says the line in words. The parser writes where it was in a text without a name as
// :line:column.
func located(err error) error {
	position := regexp.MustCompile(`(^|\(|\n):(\d+):\d+(: )?`)
	return errors.New(position.ReplaceAllString(strings.TrimSpace(err.Error()), "${1}line $2$3"))
}

// readBounded reads a file that allow, if there is one, agrees to. What is checked and
// what is read are the same file, whatever happens to its name meanwhile.
func readBounded(file string, allow func(os.FileInfo) error) ([]byte, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() { // opening a pipe would wait
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if err := allow(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, bare(err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	return data, nil
}

// bare drops the path of an error, which its user says already.
func bare(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

func includes(text string) bool {
	// What the parser does not take for keys: quoted text and comments.
	aside := regexp.MustCompile(`"(\\.|[^"\\])*"|'[^']*'|#.*|//.*`)
	include := regexp.MustCompile(`(?i)(^|[\s{};,\[])include[\s"']`)
	return include.MatchString(aside.ReplaceAllString(text, `""`))
}

// checkTree reports everything in a configuration that is not about users.
func checkTree(tree map[string]any) error {
	errs := unknown("", tree, "accounts")
	accounts, _ := tree["accounts"].(map[string]any)
	switch {
	case len(errs) > 0 && len(accounts) == 0:
		return errors.Join(errs...)
	case len(accounts) == 0:
		return errors.New(`the file has no users: want accounts { NAME { jetstream: enabled, users: [ … ] } }, as "rewardloop queue acl" writes them`)
	case len(accounts) > 1:
		errs = append(errs, fmt.Errorf("the file has the accounts %s, which are isolated from each other; want one account for gateways and workers",
			strings.Join(slices.Sorted(maps.Keys(accounts)), " and ")))
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		errs = append(errs, checkAccount("accounts."+name, accounts[name])...)
	}
	return errors.Join(errs...)
}

// unknown refuses keys of a block by name.
func unknown(path string, block map[string]any, known ...string) []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(block)) {
		if !slices.Contains(known, key) {
			errs = append(errs, fmt.Errorf("%s is not allowed in this file; want one of %s", strings.TrimPrefix(path+"."+key, "."), strings.Join(known, ", ")))
		}
	}
	return errs
}

func checkAccount(path string, v any) []error {
	account, ok := v.(map[string]any)
	if !ok {
		return []error{fmt.Errorf("%s is not a block", path)}
	}
	errs := unknown(path, account, "jetstream", "users")
	if on := account["jetstream"]; on != true && on != "enabled" && on != "enable" {
		errs = append(errs, fmt.Errorf("%s: want jetstream: enabled, which carries the tickets", path))
	}
	users, _ := account["users"].([]any)
	if len(users) == 0 {
		errs = append(errs, fmt.Errorf("%s has no users", path))
	}
	for i, u := range users {
		errs = append(errs, checkUser(fmt.Sprintf("%s.users[%d]", path, i), u)...)
	}
	return errs
}

// checkUser wants a user to be a key, and its permissions to be said: to NATS a list
// that is absent allows everything.
func checkUser(path string, v any) []error {
	user, ok := v.(map[string]any)
	if !ok {
		return []error{fmt.Errorf("%s is not a block", path)}
	}
	errs := unknown(path, user, "nkey", "permissions")
	if key, _ := user["nkey"].(string); key == "" {
		errs = append(errs, fmt.Errorf("%s has no nkey", path))
	}
	permissions, _ := user["permissions"].(map[string]any)
	errs = append(errs, unknown(path+".permissions", permissions, "publish", "subscribe")...)
	for _, way := range []string{"publish", "subscribe"} {
		if permissions[way] == nil {
			errs = append(errs, fmt.Errorf("%s.permissions has no %s, so that everything would be allowed", path, way))
			continue
		}
		if block, ok := permissions[way].(map[string]any); ok {
			errs = append(errs, unknown(path+".permissions."+way, block, "allow", "deny")...)
			if block["allow"] == nil {
				errs = append(errs, fmt.Errorf("%s.permissions.%s has no allow, so that everything else would be allowed", path, way))
			}
		}
	}
	return errs
}
