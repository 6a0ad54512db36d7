package acl

import (
	"fmt"
	"strings"

	"github.com/nats-io/nkeys"
)

// accountName is the account that gateways and workers share on the server.
const accountName = "REWARDLOOP"

// names of the files that others read.
const (
	confFile     = "acl.conf"
	resolverFile = "resolver.conf"
)

// SeedFile returns the name of the file with the nkey of a role.
func SeedFile(role Role) string { return string(role) + ".nk" }

// newKey makes a key pair and returns its public half and its seed.
func newKey(create func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, publicKey string, seed []byte, err error) {
	if pair, err = create(); err != nil {
		return nil, "", nil, fmt.Errorf("acl: making a key: %w", err)
	}
	if publicKey, err = pair.PublicKey(); err != nil {
		return nil, "", nil, fmt.Errorf("acl: making a key: %w", err)
	}
	if seed, err = pair.Seed(); err != nil {
		return nil, "", nil, fmt.Errorf("acl: making a key: %w", err)
	}
	return pair, publicKey, seed, nil
}

// nkeyFiles makes a key for each role, and the fragment that names them.
func nkeyFiles() ([]File, error) {
	var files []File
	var users strings.Builder
	for _, role := range Roles() {
		pair, publicKey, seed, err := newKey(nkeys.CreateUser)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: SeedFile(role), Mode: private, For: "the secret key of " + who(role), data: append(seed, '\n')})
		pair.Wipe()
		userConf(&users, role, publicKey)
	}
	conf := fmt.Sprintf(confText, accountName, users.String())
	return append(files, File{Name: confFile, Mode: public, For: "what each key may do; for the server, holds no secret", data: []byte(conf)}), nil
}

// who says which machines a role's key is for.
func who(role Role) string {
	if role == Gateway {
		return "gateways (rewardloop serve)"
	}
	return "workers (rewardloop worker)"
}

// confText is acl.conf; %s are the account and its users.
const confText = `# Who may do what on the bus of rewardloop: two roles, each with the public half of
# its key. Written by "rewardloop queue acl". It holds no secret.
#
# An embedded server reads it:   rewardloop serve --nats-listen HOST:PORT ++queue.acl_file=acl.conf
# In a nats-server.conf write:   include acl.conf
# beside the server's own "jetstream { … }" block. If that file has "accounts" of its
# own, move the account below into them: of two such blocks NATS reads the last one.
#
# To change a key, add a second user with the same permissions and the new key,
# reload the server, give the new file to the machines, then remove the old user.

accounts {
  %s {
    jetstream: enabled
    users: [
%s    ]
  }
}
`

// userConf writes a role's user.
func userConf(b *strings.Builder, role Role, publicKey string) {
	publish, subscribe := grantsOf(role)
	fmt.Fprintf(b, "      # The role %s, for %s.\n      {\n        nkey: %s\n        permissions: {\n", role, who(role), publicKey)
	allowConf(b, "publish", publish)
	allowConf(b, "subscribe", subscribe)
	b.WriteString("        }\n      }\n")
}

func allowConf(b *strings.Builder, name string, grants []grant) {
	width := 0
	for _, g := range grants {
		width = max(width, len(g.Subject))
	}
	fmt.Fprintf(b, "          %s: {\n            allow: [\n", name)
	for _, g := range grants {
		fmt.Fprintf(b, "              %-*s  # %s\n", width+2, `"`+g.Subject+`"`, g.For)
	}
	b.WriteString("            ]\n          }\n")
}
