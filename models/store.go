package models

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

// defaultEndpoint is asked for hf:// sources unless HF_ENDPOINT names another.
const defaultEndpoint = "https://huggingface.co"

// Store is a folder with model files. The methods of a Store may be called at the same time, also
// from several processes.
type Store struct {
	Dir string
	Config
}

// Config is the configuration of downloads. The zero value is usable.
type Config struct {
	// Endpoint serves hf:// sources. The default is Hugging Face's own.
	Endpoint string
	// Token is sent only to Endpoint. Empty: no token.
	Token string
	// Hub is the cache of Hugging Face's own library. Files of hf:// sources are taken from the
	// cache, and downloads are kept in it if the store can link to them. The zero value is no
	// cache.
	Hub hfcache.Cache
	// Offline is the setting that forbids requests to Endpoint, as NAME=value. Empty: requests are
	// allowed.
	Offline string
	// Pythons are tried in turn until one has pip. The default is python3, python.
	Pythons []string
	// Stall is how long a transfer, or pip, may receive nothing before it is given up. The default
	// is 2 minutes.
	Stall time.Duration
	// Attempts in a row without a new byte end a download. The default is 5.
	Attempts int
	// Backoff is the pause before the second attempt. The pause doubles for each further attempt,
	// up to 30 s. The default is 1 s.
	Backoff time.Duration
	// MaxFile limits a file whose size the catalogue does not contain, and a wheel, in bytes. The
	// default is 16 GiB.
	MaxFile int64
	// Transport is for tests. The default uses the proxy of the environment.
	Transport http.RoundTripper
	// Free is for tests, and returns the number of bytes that may still be written below a folder.
	// The default is FreeSpace.
	Free func(dir string) (int64, error)
}

// WithDefaults returns a copy of c in which fields that are not set have their defaults.
func (c Config) WithDefaults() Config {
	c.Endpoint = cmp.Or(c.Endpoint, defaultEndpoint)
	if len(c.Pythons) == 0 {
		c.Pythons = pythons()
	}
	c.Stall = cmp.Or(c.Stall, 2*time.Minute)
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	c.MaxFile = cmp.Or(c.MaxFile, 16<<30)
	if c.Free == nil {
		c.Free = FreeSpace
	}
	return c
}

func pythons() []string { return []string{"python3", "python"} }

// FromEnvironment returns the store of REWARDLOOP_MODELS, else that of the clone in which the
// program was built (.cache/models, the folder that make uses), else the one below the user's cache
// folder. Endpoint, token and cache are those of Hugging Face's library. The interpreter of
// REWARDLOOP_PYTHON is tried first for pip.
func FromEnvironment(getenv func(string) (string, bool)) (Store, error) {
	var s Store
	s.Endpoint, _ = getenv("HF_ENDPOINT")
	s.Token = hfcache.Token(getenv)
	s.Hub, s.Offline = hfcache.FromEnvironment(getenv), hfcache.Offline(getenv)
	if python, _ := getenv("REWARDLOOP_PYTHON"); python != "" {
		s.Pythons = append([]string{python}, pythons()...)
	}
	if s.Dir, _ = getenv("REWARDLOOP_MODELS"); s.Dir != "" {
		return s, nil
	}
	if s.Dir = ofClone(os.Executable()); s.Dir != "" {
		return s, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return s, fmt.Errorf("no folder for models: set REWARDLOOP_MODELS: %w", err)
	}
	s.Dir = filepath.Join(cache, "rewardloop", "models")
	return s, nil
}

// ofClone returns the folder where make puts models if the program is bin/<name> of a
// clone that has one, else "".
func ofClone(program string, err error) string {
	if err != nil {
		return ""
	}
	if target, err := filepath.EvalSymlinks(program); err == nil {
		program = target
	}
	dir := filepath.Join(filepath.Dir(program), "..", ".cache", "models")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// Path returns the path of a file of a model, whether the file exists or not. file is a role or a
// name.
func (s Store) Path(m Model, file string) (string, error) {
	f, ok := m.File(file)
	if !ok {
		return "", fmt.Errorf("%w: %s has no file %q", ErrUnknown, m.Name, file)
	}
	if err := validName(f.Name); err != nil {
		return "", fmt.Errorf("model %q: %w", m.Name, err)
	}
	return s.place(f), nil
}

func (s Store) place(f File) string { return filepath.Join(s.Dir, filepath.FromSlash(f.Name)) }

// Have reports whether every file of the model exists with its size, or, for a model that has to be
// exported, whether its folder exists. Have does not read the contents of files; Verify does.
func (s Store) Have(m Model) bool {
	if m.Validate() != nil {
		return false
	}
	if m.Export != "" {
		_, err := s.Folder(m)
		return err == nil
	}
	return s.missing(m) == nil
}

// missing returns an error for each file that is not there with its size, joined.
func (s Store) missing(m Model) error {
	var faults []error
	for _, f := range m.Files {
		switch info, err := os.Stat(s.place(f)); {
		case errors.Is(err, fs.ErrNotExist) && f.Optional:
		case errors.Is(err, fs.ErrNotExist):
			faults = append(faults, fmt.Errorf("%s: %w", f.Name, ErrMissing))
		case err != nil:
			faults = append(faults, err)
		case !info.Mode().IsRegular():
			faults = append(faults, fmt.Errorf("%s is not a regular file", f.Name))
		case f.Size > 0 && info.Size() != f.Size:
			faults = append(faults, fmt.Errorf("%w: %s has %d bytes, not %d", errChecksum, f.Name, info.Size(), f.Size))
		}
	}
	return errors.Join(faults...)
}

// origin says where Want comes from, behind the sum in an error.
func (st Status) origin() string {
	if st.Recorded {
		return "as recorded at the first pull"
	}
	return "as in the catalogue"
}

// Status is the state of one file of a model in the store.
type Status struct {
	// File is the file of the catalogue, Path its place on the disk. Present is whether a file
	// exists there.
	File    File   `json:"file"`
	Path    string `json:"path"`
	Present bool   `json:"present"`
	// OK means that the file is right, or optional and absent.
	OK     bool   `json:"ok"`
	Size   int64  `json:"size"`             // size of the existing file in bytes
	SHA256 string `json:"sha256,omitempty"` // checksum of the existing file
	Want   string `json:"want,omitempty"`   // the expected checksum; empty: none yet
	// Recorded means that Want was recorded at the first pull and is not in the catalogue.
	Recorded bool `json:"recorded,omitempty"`
	// Absent means that the file is optional and has never been in the store. Then OK is true.
	Absent bool `json:"absent,omitempty"`
	// Err is why the file is not OK. Nil: the file is OK.
	Err error `json:"-"`
}

// Verify reads every file of the model and compares its size and checksum, without network. The
// error joins the errors of the files, each of which is ErrMissing, a size or checksum that
// differs, or an error of the file system.
func (s Store) Verify(ctx context.Context, m Model) ([]Status, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	known, err := s.readManifest()
	if err != nil {
		return nil, err
	}
	all := make([]Status, len(m.Files))
	faults := make([]error, len(m.Files))
	for i, f := range m.Files {
		all[i] = s.look(ctx, f, known)
		if err := ctx.Err(); err != nil {
			return all[:i], err
		}
		if !all[i].OK {
			faults[i] = fmt.Errorf("model %s: %w: %s", m.Name, all[i].Err, m.Remedy())
		}
	}
	return all, errors.Join(faults...)
}

// look compares one file with what is promised of it.
func (s Store) look(ctx context.Context, f File, known *manifest) Status {
	st := Status{File: f, Path: s.place(f), Want: f.SHA256}
	entry, pulled := known.Files[f.Name]
	if pulled && st.Want == "" {
		st.Want, st.Recorded = entry.SHA256, true
	}
	in, err := os.Open(st.Path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: %w in %s", f.Name, ErrMissing, s.Dir)
			if f.Optional && !pulled {
				st.OK, st.Absent, err = true, true, nil
			}
		}
		st.Err = err
		return st
	}
	defer in.Close()
	st.Present = true
	if st.SHA256, st.Size, st.Err = sum(ctx, in); st.Err != nil {
		return st
	}
	switch {
	case f.Size > 0 && st.Size != f.Size:
		st.Err = fmt.Errorf("%w: %s has %d bytes, not %d", errChecksum, st.Path, st.Size, f.Size)
	case st.Want == "":
		st.Err = fmt.Errorf("%w: no checksum of %s is known yet", errChecksum, f.Name)
	case st.SHA256 != st.Want:
		st.Err = checksumError(st.Path, st.SHA256, st.Want, st.origin())
	default:
		st.OK = true
	}
	return st
}

// sum returns the SHA-256 in hex and the number of bytes read.
func sum(ctx context.Context, in io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, &checkedReader{ctx: ctx, in: in})
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// checkedReader ends when its context does.
type checkedReader struct {
	ctx context.Context //nolint:containedctx // A reader has no other way to hear of it.
	in  io.Reader
}

func (r *checkedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}
