package acl

import (
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// CredsFile returns the name of the file with the JWT and the key of a role.
func CredsFile(role Role) string { return string(role) + ".creds" }

// jwtFiles makes an operator, a system account, the account of the bus and a user of
// it for each role. Nobody gets a user of the system account.
func jwtFiles() ([]File, error) {
	operator, operatorKey, operatorSeed, err := newKey(nkeys.CreateOperator)
	if err != nil {
		return nil, err
	}
	account, accountKey, accountSeed, err := newKey(nkeys.CreateAccount)
	if err != nil {
		return nil, err
	}
	_, systemKey, _, err := newKey(nkeys.CreateAccount)
	if err != nil {
		return nil, err
	}
	files, err := userFiles(account, accountKey)
	if err != nil {
		return nil, err
	}
	conf, err := resolverConf(operator, operatorKey, accountKey, systemKey)
	if err != nil {
		return nil, err
	}
	return append(files,
		File{Name: resolverFile, Mode: public, For: "operator and accounts; for the server, holds no secret", data: []byte(conf)},
		File{Name: "operator.nk", Mode: private, For: "signs accounts; needed only to change them: keep it off the servers", data: append(operatorSeed, '\n')},
		File{Name: "account.nk", Mode: private, For: "signs users; needed only for new ones: keep it off the servers", data: append(accountSeed, '\n')},
	), nil
}

// userFiles makes the credentials of each role.
func userFiles(account nkeys.KeyPair, accountKey string) ([]File, error) {
	var files []File
	for _, role := range Roles() {
		pair, userKey, seed, err := newKey(nkeys.CreateUser)
		if err != nil {
			return nil, err
		}
		u := jwt.NewUserClaims(userKey)
		u.Name = string(role)
		publish, subscribe := permissionsOf(role)
		u.Pub.Allow, u.Sub.Allow = publish, subscribe
		token, err := u.Encode(account)
		if err != nil {
			return nil, fmt.Errorf("acl: JWT of the %s in account %s: %w", role, accountKey, err)
		}
		creds, err := jwt.FormatUserConfig(token, seed)
		if err != nil {
			return nil, fmt.Errorf("acl: credentials of the %s: %w", role, err)
		}
		pair.Wipe()
		files = append(files, File{Name: CredsFile(role), Mode: private, For: "JWT and secret key of " + who(role), data: creds})
	}
	return files, nil
}

// resolverConf returns what a nats-server includes to be in operator mode.
func resolverConf(operator nkeys.KeyPair, operatorKey, accountKey, systemKey string) (string, error) {
	o := jwt.NewOperatorClaims(operatorKey)
	o.Name, o.SystemAccount = "rewardloop", systemKey
	system := jwt.NewAccountClaims(systemKey)
	system.Name = "SYS"
	account := jwt.NewAccountClaims(accountKey)
	account.Name = accountName
	account.Limits.MemoryStorage, account.Limits.DiskStorage = jwt.NoLimit, jwt.NoLimit
	account.Limits.Streams, account.Limits.Consumer = jwt.NoLimit, jwt.NoLimit
	var tokens []any
	for _, c := range []jwt.Claims{o, system, account} {
		token, err := c.Encode(operator)
		if err != nil {
			return "", fmt.Errorf("acl: JWT of %s: %w", c.Claims().Name, err)
		}
		tokens = append(tokens, token)
	}
	return fmt.Sprintf(resolverText, tokens[0], systemKey, systemKey, tokens[1], accountName, accountKey, tokens[2]), nil
}

// resolverText is resolver.conf.
const resolverText = `# Who is who on the bus of rewardloop, as JWTs: the operator, a system account that
# nobody uses, and the account that gateways and workers share. What each of them may
# do stands in its own credentials. Written by "rewardloop queue acl --jwt". It holds
# no secret.
#
# In a nats-server.conf write:   include resolver.conf
# beside the server's own "jetstream { … }" block.

operator: %s
system_account: %s
resolver: MEMORY
resolver_preload: {
  # SYS
  %s: %s
  # %s
  %s: %s
}
`
