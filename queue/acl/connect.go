package acl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// NKey returns the option to connect with the user seed in file, which Create wrote. The file is
// read for each connection, and the seed is wiped from memory afterwards. NKey refuses a file that
// other users can read or that does not contain a user's seed; the error never quotes the seed.
func NKey(file string) (nats.Option, error) {
	pair, err := userKey(file)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	publicKey, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w %s: the seed is damaged", errFile, file)
	}
	return nats.Nkey(publicKey, func(nonce []byte) ([]byte, error) {
		pair, err := userKey(file)
		if err != nil {
			return nil, err
		}
		defer pair.Wipe()
		if now, err := pair.PublicKey(); err != nil || now != publicKey {
			return nil, fmt.Errorf("%w %s: the file has another key than when this process started; restart the process to use the new key", errFile, file)
		}
		return pair.Sign(nonce)
	}), nil
}

// Creds returns the option to connect with the JWT and the seed in file, which Create wrote. The
// file is read for each connection, so that it may be replaced meanwhile. Creds refuses the files
// that NKey refuses, and expired JWTs.
func Creds(file string) (nats.Option, error) {
	refuse := func(why string, args ...any) (nats.Option, error) {
		return nil, fmt.Errorf("%w %s: %s", errFile, file, fmt.Sprintf(why, args...))
	}
	data, err := readSecret(file)
	if err != nil {
		return nil, err
	}
	defer clear(data)
	if kind, _ := kindOf(data); kind != kindCreds {
		return refuse("the file is %s; want credentials (a .creds file). Name a seed in queue.nkey_file", kind)
	}
	// The errors of the parsers are left out: they may quote what they were given.
	token, err := nkeys.ParseDecoratedJWT(data)
	if err != nil {
		return refuse("the JWT cannot be read")
	}
	claims, err := jwt.Decode(token)
	if err != nil {
		return refuse("the JWT cannot be read")
	}
	if claims.ClaimType() != jwt.UserClaim {
		return refuse("the JWT is of the kind %q; want a user's", claims.ClaimType())
	}
	if until := claims.Claims().Expires; until > 0 && time.Now().Unix() >= until {
		return refuse("the JWT expired on %s", time.Unix(until, 0).UTC().Format("2 January 2006, 15:04 MST"))
	}
	pair, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return refuse("the file has no seed of a user")
	}
	defer pair.Wipe()
	if publicKey, err := pair.PublicKey(); err != nil || publicKey != claims.Claims().Subject {
		return refuse("the seed does not belong to the JWT")
	}
	return nats.UserCredentials(file), nil
}

// userKey reads the key of a user.
func userKey(file string) (nkeys.KeyPair, error) {
	data, err := readSecret(file)
	if err != nil {
		return nil, err
	}
	defer clear(data)
	kind, seed := kindOf(data)
	switch kind {
	case kindUser:
		pair, err := nkeys.FromSeed(seed) // a copy
		if err != nil {                   // it may quote what it was given
			return nil, fmt.Errorf("%w %s: the seed is damaged", errFile, file)
		}
		return pair, nil
	case kindCreds:
		return nil, fmt.Errorf("%w %s: the file is %s; name the file in queue.creds_file", errFile, file, kind)
	default:
		return nil, fmt.Errorf("%w %s: the file is %s; want the seed of a user (SU…)", errFile, file, kind)
	}
}

// readSecret reads a file that nobody but its owner may touch.
func readSecret(file string) ([]byte, error) {
	data, err := readBounded(file, func(info os.FileInfo) error {
		if othersMay(info) {
			return fmt.Errorf("other users may read or change the file (mode %#o); run: chmod 600 %s", info.Mode().Perm(), file)
		}
		return nil
	})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf(`%w %s: %w; "rewardloop queue acl" makes such files`, errFile, file, err)
	case err != nil:
		return nil, fmt.Errorf("%w %s: %w", errFile, file, err)
	}
	return data, nil
}

// kinds of files that are met where a key is wanted.
const (
	kindUser  = "the seed of a user"
	kindCreds = "a credentials file"
)

// kindOf says what a file holds, without a word of it, and where a seed is in it.
func kindOf(data []byte) (kind string, seed []byte) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return "empty", nil
	case bytes.Contains(data, []byte("-BEGIN NATS USER JWT-")):
		return kindCreds, nil
	case bytes.Contains(data, []byte(" PRIVATE KEY-")):
		return "a TLS key", nil
	case bytes.Contains(data, []byte("-BEGIN CERTIFICATE-")):
		return "a certificate", nil
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if prefix, raw, err := nkeys.DecodeSeed(line); err == nil {
			clear(raw)
			return "the seed of " + article(prefix), line
		}
		if text := string(line); nkeys.IsValidPublicKey(text) {
			return "the public key of " + article(nkeys.Prefix(text)), nil
		}
	}
	return "not a readable key", nil
}

func article(p nkeys.PrefixByte) string {
	switch p {
	case nkeys.PrefixByteOperator, nkeys.PrefixByteAccount:
		return "an " + p.String()
	}
	return "a " + p.String()
}
