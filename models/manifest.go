package models

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	manifestName = "manifest.json"
	partSuffix   = ".part"
	// maxManifest bounds what is read of manifest.json, in bytes: 60,000 files.
	maxManifest = 16 << 20
)

// manifest is manifest.json: what was pulled from where. Whoever writes it holds
// the store's lock.
type manifest struct {
	Version int              `json:"version"`
	Files   map[string]entry `json:"files"` // by File.Name
}

type entry struct {
	SHA256 string    `json:"sha256"`
	Size   int64     `json:"size"`
	Source string    `json:"source"`
	Pulled time.Time `json:"pulled"`
	// Found: it was in its place already, put there by other means than a pull.
	Found bool `json:"found,omitempty"`
	// Recorded: the catalogue had no sum, so that this one is held to.
	Recorded bool `json:"recorded,omitempty"`
	// Model is the exported model that the file is of, and Licence that of its weights.
	Model   string `json:"model,omitempty"`
	Licence string `json:"licence,omitempty"`
}

func (s Store) readManifest() (*manifest, error) {
	m := &manifest{Version: 1, Files: map[string]entry{}}
	at := filepath.Join(s.Dir, manifestName)
	text, err := readAtMost(at, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w: remove the file: checksums of the catalogue remain valid, and other checksums are recorded again",
			errManifest, at, err)
	}
	if m.Files == nil {
		m.Files = map[string]entry{}
	}
	return m, nil
}

// validate refuses what no pull has written: it is held to later, and names are
// made paths of.
func (m *manifest) validate() error {
	if m.Version != 1 {
		return fmt.Errorf("version %d, not 1", m.Version)
	}
	for name, e := range m.Files {
		if err := validName(name); err != nil {
			return err
		}
		if !plainSum.MatchString(e.SHA256) || e.Size < 0 {
			return fmt.Errorf("%s: sha256 %q, size %d", name, e.SHA256, e.Size)
		}
		if e.Model != "" && !strings.HasPrefix(name, e.Model+"/") {
			return fmt.Errorf("%s is not a file of the model %q", name, e.Model)
		}
	}
	return nil
}

func readAtMost(at string, limit int64) ([]byte, error) {
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return text, err
}

func (s Store) writeManifest(m *manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	at := filepath.Join(s.Dir, manifestName)
	if err := os.WriteFile(at+partSuffix, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return settle(at+partSuffix, at)
}

// settle gives a finished file its name, for good.
func settle(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return err
	}
	// The rename itself is durable only with the folder; where a folder cannot be
	// synced the file is checked at the next pull all the same.
	if dir, err := os.Open(filepath.Dir(to)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// sidecars describe models to the scorers where the repositories they come from do
// not: scorer.json and judge.json.
//
//go:embed sidecars/*.json
var sidecars embed.FS

// sidecar is a file of a model that the program brings itself. name is where it
// lies, from is what it is called here.
func sidecar(name, from string) File {
	f := File{Role: "sidecar", Name: name, Source: "embed://" + from}
	if text, err := sidecars.ReadFile("sidecars/" + from); err == nil {
		sum := sha256.Sum256(text)
		f.Size, f.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	}
	return f
}

// Sums returns the SHA-256 of the files that pulls have downloaded or found, by file name.
func (s Store) Sums() (map[string]string, error) {
	m, err := s.readManifest()
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(m.Files))
	for name, e := range m.Files {
		sums[name] = e.SHA256
	}
	return sums, nil
}
