package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
)

// What is kept (Config.Keep).
const (
	KeepThumbnails = "thumbnails"
	KeepResults    = "results"
	KeepFull       = "full"
	KeepOff        = "off"
)

// Config is the section store. The zero value of a field takes its default.
type Config struct {
	Keep  string
	Path  string
	Bytes int64
	Age   time.Duration
}

// Keys implements keys.Described.
func (c *Config) Keys(k *keys.Set) {
	k.Choice(&c.Keep, "keep", []string{KeepThumbnails, KeepFull, KeepResults, KeepOff}, "Data to keep. thumbnails: results, samples and small JPEGs, made with at most 1 % of CPU time. full: also all media, for `rewardloop replay`. results: results and samples only. off: nothing.")
	k.Text(&c.Path, "path", "", "SQLite file of one server. Empty: PORT.db (port of server.listen) in REWARDLOOP_STORE, else in rewardloop/store below XDG_STATE_HOME or ~/.local/state. REWARDLOOP_STORE=off or port 0: no file.")
	k.Size(&c.Bytes, "bytes", 2<<30, "Maximum size of the SQLite file. Above this size the oldest results are deleted.").Min(1 << 20)
	k.Duration(&c.Age, "age", 30*24*time.Hour, "Time for which results are kept.").Between(time.Minute, 10*365*24*time.Hour)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	return c
}

// Off is what REWARDLOOP_STORE says where no file is to be written that nobody has named.
const Off = "off"

// ErrOff is the error of DefaultFolder where the environment says so.
var ErrOff = errors.New("REWARDLOOP_STORE is off")

// DefaultFolder is where files of stores lie that have no path.
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
