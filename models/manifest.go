package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	manifestName = "manifest.json"
	partSuffix   = ".part"
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
	// Recorded: the catalogue had no sum, so that this one is held to.
	Recorded bool `json:"recorded,omitempty"`
}

func (s Store) readManifest() (*manifest, error) {
	m := &manifest{Version: 1, Files: map[string]entry{}}
	at := filepath.Join(s.Dir, manifestName)
	text, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err == nil && m.Version != 1 {
		err = fmt.Errorf("version %d, not 1", m.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w: remove it; sums that the catalogue lacks are then recorded anew", ErrManifest, at, err)
	}
	if m.Files == nil {
		m.Files = map[string]entry{}
	}
	return m, nil
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
