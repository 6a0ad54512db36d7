package acl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// OwnDir returns the folder with the keys of the current user, for a bus that only this machine can
// reach: rewardloop/nats in the user's configuration folder.
func OwnDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("acl: a folder for this user's keys: %w", err)
	}
	return filepath.Join(dir, "rewardloop", "nats"), nil
}

// OwnKey returns a function that returns the option to connect with the key in file, which Own
// made, or nil while the file does not exist: a process may start before the bus that makes the
// key.
func OwnKey(file string) func() (nats.Option, error) {
	return func() (nats.Option, error) {
		if _, err := os.Stat(file); err != nil {
			return nil, nil //nolint:nilerr,nilnil // there is none, or none yet
		}
		return NKey(file)
	}
}

// Own returns the users of a bus for the processes of one user, namely all that can read the keys
// in dir. Own makes the keys if dir does not exist. The permissions of each role are those of this
// release.
func Own(dir string) (Options, error) {
	refuse := func(err error) (Options, error) {
		return Options{}, fmt.Errorf("acl: this user's keys for NATS in %s: %w", dir, err)
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := makeOwn(dir); err != nil {
			return refuse(err)
		}
	}
	var users strings.Builder
	for _, role := range Roles() {
		pair, err := userKey(filepath.Join(dir, SeedFile(role)))
		if err != nil {
			return refuse(fmt.Errorf("%w; move the folder away so that new keys are made", err))
		}
		publicKey, err := pair.PublicKey()
		pair.Wipe()
		if err != nil {
			return refuse(fmt.Errorf("the NKey seed in the file of the role %s is damaged", role))
		}
		userConf(&users, role, publicKey)
	}
	return parseUsers(fmt.Sprintf(confText, accountName, users.String()))
}

// makeOwn makes the keys. Of two processes that do at the same time one wins, with both keys.
func makeOwn(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".nats-*") // mode 0700
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	var files []File
	for _, role := range Roles() {
		pair, _, seed, err := newKey(nkeys.CreateUser)
		if err != nil {
			return err
		}
		files = append(files, File{Name: SeedFile(role), Mode: private, data: append(seed, '\n')})
		pair.Wipe() // the seed is its own
	}
	if err := write(made, files, false); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return nil // another process was first
		}
		return err
	}
	return nil
}
