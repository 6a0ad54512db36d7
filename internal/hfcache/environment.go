package hfcache

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// maxToken bounds what is read of a file with a token, in bytes.
const maxToken = 4096

// Getenv is os.LookupEnv or a replacement for it.
type Getenv func(string) (string, bool)

// FromEnvironment returns the cache that huggingface_hub uses with these environment variables:
// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, or else hub in HF_HOME, in huggingface of XDG_CACHE_HOME, or
// in ~/.cache/huggingface. Without a home folder, Dir is empty.
func FromEnvironment(getenv Getenv) Cache {
	c := Cache{NoLinks: isTrue(get(getenv, "HF_HUB_DISABLE_SYMLINKS"))}
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if c.Dir = expand(getenv, get(getenv, name)); c.Dir != "" {
			return c
		}
	}
	if h := home(getenv); h != "" {
		c.Dir = filepath.Join(h, "hub")
	}
	return c
}

// home is the folder of Hugging Face's libraries, or empty.
func home(getenv Getenv) string {
	if at := expand(getenv, get(getenv, "HF_HOME")); at != "" {
		return at
	}
	if at := expand(getenv, get(getenv, "XDG_CACHE_HOME")); at != "" {
		return filepath.Join(at, "huggingface")
	}
	if at := userHome(getenv); at != "" {
		return filepath.Join(at, ".cache", "huggingface")
	}
	return ""
}

// Token returns the token of HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or of the file HF_TOKEN_PATH, whose
// default is token in HF_HOME, as written by `hf auth login`. Token returns "" if there is none.
func Token(getenv Getenv) string {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(get(getenv, name)); token != "" {
			return token
		}
	}
	at := expand(getenv, get(getenv, "HF_TOKEN_PATH"))
	if at == "" {
		h := home(getenv)
		if h == "" {
			return ""
		}
		at = filepath.Join(h, "token")
	}
	text, err := readSmall(at, maxToken)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// Offline returns the setting that forbids network access, as NAME=value, or "" if there is none.
func Offline(getenv Getenv) string {
	// The second counts only where the first is not set, as in Python.
	for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		if value := get(getenv, name); value != "" {
			if isTrue(value) {
				return name + "=" + value
			}
			return ""
		}
	}
	return ""
}

func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

func get(getenv Getenv, name string) string {
	value, _ := getenv(name)
	return value
}

func userHome(getenv Getenv) string {
	if runtime.GOOS == "windows" {
		return get(getenv, "USERPROFILE")
	}
	return get(getenv, "HOME")
}

// expand replaces a leading ~ and variables.
func expand(getenv Getenv, at string) string {
	if h := userHome(getenv); h != "" && (at == "~" || strings.HasPrefix(at, "~/")) {
		at = h + at[1:]
	}
	return os.Expand(at, func(name string) string { return get(getenv, name) })
}

// readSmall reads a file of at most limit bytes.
func readSmall(at string, limit int64) (string, error) {
	info, err := os.Stat(at) // before it is opened, which waits for ever at a pipe
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", &os.PathError{Op: "read", Path: at, Err: os.ErrInvalid}
	}
	f, err := os.Open(at)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit))
	return string(text), err
}
