package ort

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/models"
)

// LibraryEnv is the environment variable with the path of the library.
const LibraryEnv = "ONNXRUNTIME_SHARED_LIBRARY_PATH"

// minVersion is the oldest library whose API has everything that the bindings
// ask for; release is the one this project is tested with. The bindings refuse
// an older one with a number of the API that says little to a reader.
const (
	minVersion = "1.29"
	release    = "1.29.0"
)

// The names of the providers.
const (
	cpuProvider  = "CPUExecutionProvider"
	cudaProvider = "CUDAExecutionProvider"
)

// The files that make a library capable of CUDA. ONNX Runtime looks for them in
// its own folder only.
const (
	sharedFile = "libonnxruntime_providers_shared.so"
	cudaFile   = "libonnxruntime_providers_cuda.so"
)

// Library is a libonnxruntime on this machine that has not been loaded.
type Library struct {
	// Path is the absolute path of the file.
	Path string `json:"path"`
	// Version is the version from the file, such as "1.29.0". It is empty if the file does not
	// contain it.
	Version string `json:"version,omitempty"`
	// From is the origin of the path: "the configuration", the environment variable, or a default.
	From string `json:"from"`
	// CUDA reports whether the files of the CUDA provider are in the same folder.
	CUDA bool `json:"cuda"`
}

// String describes the library for people.
func (l Library) String() string {
	return fmt.Sprintf("ONNX Runtime %s at %s (from %s), providers %s", cmp.Or(l.Version, "of unknown version"), l.Path, l.From, strings.Join(l.Providers(), ", "))
}

// Providers returns the providers whose files exist: always the CPU, and CUDA if its files exist.
// Probe reports whether CUDA works.
func (l Library) Providers() []string {
	if l.CUDA {
		return []string{cudaProvider, cpuProvider}
	}
	return []string{cpuProvider}
}

// Find finds the library without loading it. If a file or folder is configured, or set in the
// environment variable ONNXRUNTIME_SHARED_LIBRARY_PATH, Find checks only that path. Otherwise it
// returns the first usable library in .cache/ort below the working directory, .cache/ort below the
// parent of the program's folder, the folder onnxruntime next to the folder of the models,
// /opt/onnxruntime/lib, /usr/local/lib, the system's library folder, and the package onnxruntime of
// the Python environments listed at FindCUDA. The error wraps infer.ErrUnavailable and contains the
// searched paths and a remedy.
func Find(configured string) (Library, error) {
	env, _ := os.LookupEnv(LibraryEnv)
	return find(configured, env, places(sitePackages("")), false)
}

// place is where a library may lie.
type place struct{ from, path string }

func places(sites []string) []place {
	cache := filepath.Join(".cache", "ort", release)
	var all []place
	if wd, err := os.Getwd(); err == nil {
		all = append(all, place{"the working directory", filepath.Join(wd, cache)})
	}
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		all = append(all, place{"the program's folder", filepath.Join(filepath.Dir(exe), "..", cache)})
	}
	if kept := Kept(os.LookupEnv); kept != "" {
		all = append(all, place{"a bundle", kept})
	}
	all = append(all, place{"a default", "/opt/onnxruntime/lib"}, place{"a default", "/usr/local/lib"})
	if triple := triple(); triple != "" {
		all = append(all, place{"a default", filepath.Join("/usr/lib", triple)})
	}
	for _, site := range sites {
		if dir := filepath.Join(site, "onnxruntime", "capi"); isDir(dir) {
			all = append(all, place{"a Python environment", dir})
		}
	}
	return all
}

// Kept returns the folder into which `rewardloop models unbundle` writes the library: the folder
// onnxruntime next to the folder of the models, or "" if there is none.
func Kept(getenv func(string) (string, bool)) string {
	store, err := models.FromEnvironment(getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(filepath.Clean(store.Dir)), "onnxruntime")
}

// Files returns the paths of the library and of the files in its folder that belong to it: the
// providers and the licences. The library is the last element.
func (l Library) Files() (all []string) {
	names := []string{"LICENSE", "ThirdPartyNotices.txt", sharedFile}
	if l.CUDA {
		names = append(names, cudaFile)
	}
	for _, name := range names {
		if path := filepath.Join(filepath.Dir(l.Path), name); exists(path) {
			all = append(all, path)
		}
	}
	return append(all, l.Path)
}

// remedy ends the errors of Find.
const remedy = "`make ort` puts version " + release + " below .cache/ort of the clone; another one is named by the configuration or by " + LibraryEnv +
	"; for a machine without a network `rewardloop models bundle` packs ONNX Runtime"

// find returns the first library that will do, for a card one with its provider.
func find(configured, env string, defaults []place, cuda bool) (Library, error) {
	switch {
	case configured != "":
		defaults = []place{{"the configuration", configured}}
	case env != "":
		defaults = []place{{LibraryEnv, env}}
	}
	seen := make([]string, 0, len(defaults)+1)
	if configured == "" && env == "" {
		seen = append(seen, LibraryEnv+" is not set")
	}
	first := Library{}
	for _, p := range defaults {
		lib, err := p.library()
		switch {
		case err == nil && (lib.CUDA || !cuda):
			return lib, nil
		case err == nil && first.Path == "":
			first = lib
		}
		seen = append(seen, fmt.Sprintf("%s (from %s): %v", p.path, p.from, err))
	}
	if first.Path != "" {
		return first, noCUDA(first)
	}
	return Library{}, infer.Marked(infer.ErrMissing, fmt.Errorf("%w: no ONNX Runtime %s or newer: %s; %s",
		infer.ErrUnavailable, minVersion, strings.Join(seen, "; "), remedy))
}

// library looks at a place: a file, or a folder with files of the usual names, of
// which the newest is taken.
func (p place) library() (Library, error) {
	st, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Library{}, errors.New("not found")
	}
	if err != nil {
		return Library{}, err
	}
	if !st.IsDir() {
		return p.file(p.path)
	}
	names, err := filepath.Glob(filepath.Join(escape(p.path), "libonnxruntime.*"))
	if err != nil {
		return Library{}, err
	}
	err = errors.New("contains no libonnxruntime")
	best, found := Library{}, false
	for _, name := range names {
		lib, bad := p.file(name)
		if bad != nil {
			err = fmt.Errorf("%s: %w", filepath.Base(name), bad)
		} else if !found || compare(lib.Version, best.Version) > 0 {
			best, found = lib, true
		}
	}
	if found {
		return best, nil
	}
	return Library{}, err
}

// escape keeps Glob from reading a folder's name as a pattern.
func escape(dir string) string {
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(dir, `\$0`)
}

// file checks one file: that it is a library for this machine, and new enough.
func (p place) file(path string) (Library, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Library{}, err
	}
	version, err := versionOf(path)
	if err != nil {
		return Library{}, err
	}
	if version != "" && compare(version, minVersion) < 0 {
		return Library{}, fmt.Errorf("version %s, want %s or newer", version, minVersion)
	}
	lib := Library{Path: path, Version: version, From: p.from}
	lib.CUDA = exists(filepath.Join(filepath.Dir(path), cudaFile)) && exists(filepath.Join(filepath.Dir(path), sharedFile))
	return lib, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// versionOf reads the version out of a library: of the version that its symbols
// have (VERS_1.29.0) where files are ELF, else of its name. "" is unknown.
func versionOf(path string) (string, error) {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(errors.New("not a regular file"), err)
	}
	if runtime.GOOS == "linux" {
		return elfVersion(path)
	}
	return regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(filepath.Base(path)), nil
}

// machines are the ELF machines of the architectures ONNX Runtime is published for.
func machine() (m elf.Machine, known bool) {
	switch runtime.GOARCH {
	case "amd64":
		return elf.EM_X86_64, true
	case "arm64":
		return elf.EM_AARCH64, true
	}
	return elf.EM_NONE, false
}

func elfVersion(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("not a shared library, or a part of one: %w", err)
	}
	defer f.Close()
	if want, known := machine(); known && f.Machine != want {
		return "", fmt.Errorf("built for %v, but this program is built for %v", f.Machine, want)
	}
	defs, _ := f.DynamicVersions() // a library without any answers with an error
	for _, d := range defs {
		if v, ok := strings.CutPrefix(d.Name, "VERS_"); ok {
			return v, nil
		}
	}
	syms, err := f.DynamicSymbols()
	if err != nil || !slices.ContainsFunc(syms, func(s elf.Symbol) bool { return s.Name == "OrtGetApiBase" }) {
		return "", errors.New("damaged, or another library: no symbol OrtGetApiBase")
	}
	return "", nil
}

// compare orders dotted versions; "" comes first.
func compare(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(v string) []int {
	var ns []int
	for part := range strings.SplitSeq(v, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		ns = append(ns, n)
	}
	return ns
}
