package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// Values of Config.Keep.
const (
	KeepThumbnails = "thumbnails"
	KeepResults    = "results"
	KeepFull       = "full"
	KeepOff        = "off"
)

// Config is the section store of the configuration. Keys describes the fields. The zero value of a
// field takes its default.
type Config struct {
	Keep  string
	Path  string
	Bytes int64
	Age   time.Duration
}

// Keys implements keys.Described with the keys of the section store.
func (c *Config) Keys(k *keys.Set) {
	k.Choice(&c.Keep, "keep", []string{KeepThumbnails, KeepFull, KeepResults, KeepOff}, "Data to keep. thumbnails: results, samples and small JPEGs, made with at most 1 % of CPU time. full: also all media, for `rewardloop replay`. results: results and samples only. off: nothing.")
	k.Text(&c.Path, "path", "", "SQLite file of one server. Empty: PORT.db (port of server.listen) in REWARDLOOP_STORE, else in rewardloop/store below XDG_STATE_HOME or ~/.local/state. REWARDLOOP_STORE=off or port 0: no file.")
	k.Size(&c.Bytes, "bytes", 2<<30, "Maximum size of the SQLite file. Above this size the oldest results are deleted.").Min(1 << 20)
	k.Duration(&c.Age, "age", 30*24*time.Hour, "Time for which results are kept.").Between(time.Minute, 10*365*24*time.Hour)
}

// WithDefaults returns a copy of c in which fields that are zero have their defaults.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	return c
}

// Off is the value of REWARDLOOP_STORE with which a process writes no file unless store.path is
// set.
const Off = "off"

// ErrOff is the error of DefaultFolder if REWARDLOOP_STORE is Off.
var ErrOff = errors.New("REWARDLOOP_STORE is off")

// DefaultFolder returns the folder for the files of stores without a path: REWARDLOOP_STORE, else
// rewardloop/store below XDG_STATE_HOME or ~/.local/state.
func DefaultFolder() (string, error) {
	folder := os.Getenv("REWARDLOOP_STORE")
	switch {
	case folder == Off:
		return "", ErrOff
	case folder != "":
		return folder, nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "rewardloop", "store"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("store: no folder for results: %w; write store.path, or store.keep: off", err)
	}
	return filepath.Join(home, ".local", "state", "rewardloop", "store"), nil
}
