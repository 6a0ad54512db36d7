package acl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config selects the files that Create writes.
type Config struct {
	// Dir is the folder for the files, which Create makes if it does not exist.
	Dir string
	// JWT selects an operator, accounts and credentials instead of nkeys.
	JWT bool
	// Hosts are the names and IP addresses of the server certificate. Without Hosts, Create makes
	// no certificates.
	Hosts []string
	// MutualTLS also makes a client certificate for each role, for servers that require one.
	MutualTLS bool
	// Force replaces existing files.
	Force bool
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("acl: no folder was named for the files"))
	}
	if c.MutualTLS && len(c.Hosts) == 0 {
		errs = append(errs, errors.New("acl: certificates for clients need a certificate for the server, too: name the hosts of the server (--tls)"))
	}
	for _, host := range c.Hosts {
		if err := validHost(host); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// validHost accepts an IP address, a name, or *.name.
func validHost(host string) error {
	if net.ParseIP(host) != nil {
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("acl: host %q: %s", host, why) }
	if _, _, err := net.SplitHostPort(host); err == nil || strings.Contains(host, "/") {
		return bad("want a name or an IP address, without a port or a scheme")
	}
	if len(host) > 253 {
		return bad("a name has at most 253 characters")
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(host, "*."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return bad("neither a host name nor an IP address")
		}
	}
	return nil
}

// File is a file that Create has written.
type File struct {
	Name string      // relative to the folder
	Mode os.FileMode // 0600 for a file with a secret
	For  string      // purpose of the file, in a few words
	data []byte
}

// modes of files that hold a secret, and of those that all may read.
const (
	private os.FileMode = 0o600
	public  os.FileMode = 0o644
)

// ErrExists is wrapped by the error for existing files that must not be replaced.
var ErrExists = errors.New("acl: files exist already")

// Create makes the keys and their files, and returns the files that it wrote. Create writes all
// files or none, except if the disk fails during a replacement. Without Config.Force, an existing
// file is an error (ErrExists).
func Create(cfg Config) ([]File, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	keys := nkeyFiles
	if cfg.JWT {
		keys = jwtFiles
	}
	files, err := keys()
	if err != nil {
		return nil, err
	}
	if len(cfg.Hosts) > 0 {
		certificates, err := tlsFiles(cfg.Hosts, cfg.MutualTLS, time.Now())
		if err != nil {
			return nil, err
		}
		files = append(files, certificates...)
	}
	if err := write(cfg.Dir, files, cfg.Force); err != nil {
		return nil, err
	}
	return files, nil
}

// write puts the files into dir. Each is complete under another name before the first
// gets its own.
func write(dir string, files []File, force bool) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // what is secret has a mode of its own; a nats-server of another user reads the rest
		return fmt.Errorf("acl: folder: %w", err)
	}
	if !force {
		if err := absent(dir, files); err != nil {
			return err
		}
	}
	var temporary []string
	defer func() {
		for _, t := range temporary { // those that got their name are gone from here
			_ = os.Remove(t)
		}
	}()
	for _, f := range files {
		t, err := writeTemporary(dir, f)
		temporary = append(temporary, t)
		if err != nil {
			return fmt.Errorf("acl: writing %s: %w", filepath.Join(dir, f.Name), err)
		}
	}
	for i, f := range files {
		if err := os.Rename(temporary[i], filepath.Join(dir, f.Name)); err != nil {
			return fmt.Errorf("acl: %w", err)
		}
	}
	return nil
}

// absent reports all files that are there.
func absent(dir string, files []File) error {
	var there []string
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); err == nil {
			there = append(there, path)
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("acl: %w", err)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%w, not replaced: %s", ErrExists, strings.Join(there, ", "))
	}
	return nil
}

// writeTemporary returns the name of a file with f's content and mode; "" if there is
// none to remove.
func writeTemporary(dir string, f File) (string, error) {
	t, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = t.Write(f.data)
	return t.Name(), errors.Join(err, t.Chmod(f.Mode), t.Sync(), t.Close())
}
