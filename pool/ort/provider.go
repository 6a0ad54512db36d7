package ort

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Provider describes a CUDA provider by its file and the files on this machine. Nothing of it has
// been loaded.
type Provider struct {
	// Path is the path of libonnxruntime_providers_cuda.so.
	Path string `json:"path"`
	// Major is the CUDA version for which the provider was built, such as 13. It is 0 if the file
	// does not contain the version.
	Major int `json:"major,omitempty"`
	// Found contains the CUDA libraries that the provider needs and that exist, with their folders.
	Found []string `json:"found,omitempty"`
	// Folders contains the folders of these libraries that the loader only searches if they are in
	// LD_LIBRARY_PATH, as in the environment of the child process.
	Folders []string `json:"folders,omitempty"`
	// Missing contains the needed libraries that were not found. Others contains, for each of them,
	// a file of another version if there is one.
	Missing []string `json:"missing,omitempty"`
	Others  []string `json:"others,omitempty"`
	// Fault is the reason why the file could not be read. It is empty if the file could be read.
	Fault string `json:"fault,omitempty"`
}

// The libraries that no file names as needed: the provider opens them when it runs.
const (
	cudnnFile = "libcudnn.so.9"
	nvrtcFile = "libnvrtc.so."
	// driverFile belongs to the driver, which is the machine's and not the container's.
	driverFile = "libcuda.so.1"
)

// FindCUDA is like Find, but finds a library with the CUDA provider and also returns a description
// of the provider. The CUDA libraries are searched in the loader's folders, next to the provider,
// below /usr/local/cuda, and in the folders nvidia/*/lib and torch/lib of Python environments.
// These are the environment of the interpreter or, if it is empty, those of the program in
// REWARDLOOP_PYTHON, of an active environment, and of python3 on PATH.
func FindCUDA(configured, interpreter string) (Library, Provider, error) {
	env, _ := os.LookupEnv(LibraryEnv)
	sites := sitePackages(interpreter)
	lib, err := find(configured, env, places(sites), true)
	if err != nil {
		return lib, Provider{}, err
	}
	return lib, examineProvider(filepath.Join(filepath.Dir(lib.Path), cudaFile), loaderFolders(), cudaFolders(filepath.Dir(lib.Path), sites)), nil
}

// String describes the provider for people.
func (p Provider) String() string {
	if p.Fault != "" {
		return fmt.Sprintf("%s: %s", p.Path, p.Fault)
	}
	built := "for a CUDA version that its file does not name"
	if p.Major > 0 {
		built = fmt.Sprintf("for CUDA %d", p.Major)
	}
	out := fmt.Sprintf("built %s, at %s", built, p.Path)
	if len(p.Found) > 0 {
		out += "; found " + strings.Join(p.Found, ", ")
	}
	if len(p.Missing) > 0 {
		out += "; missing " + strings.Join(p.Missing, ", ")
	}
	return out
}

// Remedy returns what must be done so that the provider can be loaded, or "" if nothing is missing.
func (p Provider) Remedy() string {
	if p.Fault != "" {
		return "restore the file from the GPU package of the same version"
	}
	var out []string
	missing := slices.Clone(p.Missing)
	if i := slices.Index(missing, driverFile); i >= 0 {
		missing = slices.Delete(missing, i, i+1)
		out = append(out, driverFile+" is the driver's: install NVIDIA's driver, or start the container with the card (--gpus)")
	}
	if len(missing) == 0 {
		return strings.Join(out, "; ")
	}
	wanted := "CUDA's libraries"
	if p.Major > 0 {
		wanted = fmt.Sprintf("the libraries of CUDA %d", p.Major)
	}
	if len(p.Others) > 0 {
		out = append(out, fmt.Sprintf("the machine has %s, but the provider needs %s: use an ONNX Runtime that was built for the installed version, or install %s",
			strings.Join(p.Others, " and "), strings.Join(missing, ", "), wanted))
	} else {
		out = append(out, fmt.Sprintf("install %s and cuDNN 9, with PyTorch in the environment that pool.python.interpreter or REWARDLOOP_PYTHON names, or name their folders in LD_LIBRARY_PATH",
			wanted))
	}
	return strings.Join(out, "; ")
}

// examineProvider looks for what a provider needs: first in the loader's own folders, then in the
// others.
func examineProvider(path string, loaders, others []string) Provider {
	p := Provider{Path: path}
	needed, err := neededBy(path)
	if err != nil {
		p.Fault = err.Error()
		return p
	}
	p.Major = cudaMajor(needed)
	if !slices.Contains(needed, cudnnFile) {
		needed = append(needed, cudnnFile)
	}
	if p.Major > 0 {
		needed = append(needed, nvrtcFile+strconv.Itoa(p.Major))
	}
	for _, name := range needed {
		if name == sharedFile {
			continue // ONNX Runtime itself loads it, from beside it
		}
		of := regexp.MustCompile(`^lib(cu|nv)`).MatchString(name) // the others are the system's
		if dir := folderOf(name, loaders); dir != "" {
			if of {
				p.Found = append(p.Found, filepath.Join(dir, name))
			}
			continue
		}
		if dir := folderOf(name, others); dir != "" {
			p.Found = append(p.Found, filepath.Join(dir, name))
			if !slices.Contains(p.Folders, dir) {
				p.Folders = append(p.Folders, dir)
			}
			continue
		}
		if !of {
			continue // where a system keeps its own is for its loader to know
		}
		p.Missing = append(p.Missing, name)
		if other := otherVersion(name, slices.Concat(loaders, others)); other != "" {
			p.Others = append(p.Others, other)
		}
	}
	return p
}

// neededBy are the libraries that a shared library says it needs.
func neededBy(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("not a shared library, or a part of one: %w", err)
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// cudaMajor is the CUDA whose runtime or cuBLAS is needed: both have its number.
func cudaMajor(needed []string) int {
	for _, name := range needed {
		for _, prefix := range []string{"libcudart.so.", "libcublas.so.", "libcublasLt.so."} {
			if v, ok := strings.CutPrefix(name, prefix); ok {
				if n, err := strconv.Atoi(strings.Split(v, ".")[0]); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// folderOf is the first folder that holds a file; "": none does.
func folderOf(name string, folders []string) string {
	i := slices.IndexFunc(folders, func(dir string) bool { return exists(filepath.Join(dir, name)) })
	if i < 0 {
		return ""
	}
	return folders[i]
}

// otherVersion is a file of the same library with another number, such as libcudart.so.12 for
// libcudart.so.13; "": there is none.
func otherVersion(name string, folders []string) string {
	stem, _, numbered := strings.Cut(name, ".so.")
	if !numbered {
		return ""
	}
	for _, dir := range folders {
		found, _ := filepath.Glob(filepath.Join(escape(dir), stem+".so.*")) // the pattern is good
		for _, f := range found {
			if regexp.MustCompile(`\.so\.\d+$`).MatchString(f) && filepath.Base(f) != name {
				return f
			}
		}
	}
	return ""
}

// loaderFolders are those in which the loader of a child looks by itself.
func loaderFolders() []string {
	out := filepath.SplitList(os.Getenv(loaderEnv))
	out = append(out, configuredFolders("/etc/ld.so.conf", 0)...)
	if triple := triple(); triple != "" {
		out = append(out, filepath.Join("/lib", triple), filepath.Join("/usr/lib", triple))
	}
	return slices.DeleteFunc(append(out, "/lib64", "/usr/lib64", "/lib", "/usr/lib"), func(dir string) bool { return dir == "" })
}

// configuredFolders reads a file of the loader's configuration and those that it includes.
func configuredFolders(file string, depth int) []string {
	f, err := os.Open(file)
	if err != nil || depth > 4 {
		return nil
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line = strings.TrimSpace(line)
		if pattern, ok := strings.CutPrefix(line, "include "); ok {
			if pattern = strings.TrimSpace(pattern); !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			found, _ := filepath.Glob(pattern) // a bad pattern includes nothing
			for _, name := range found {
				out = append(out, configuredFolders(name, depth+1)...)
			}
		} else if line != "" {
			out = append(out, line)
		}
	}
	return out
}

// cudaFolders are those in which the libraries of CUDA may lie besides, that of the provider first.
func cudaFolders(beside string, sites []string) []string {
	patterns := []string{"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"}
	for _, site := range sites {
		patterns = append(patterns, filepath.Join(escape(site), "nvidia", "*", "lib"), filepath.Join(escape(site), "torch", "lib"))
	}
	out := []string{beside}
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // the patterns are good
		out = append(out, found...)
	}
	return out
}

// sitePackages are the folders of packages of the interpreter, or with "" of the Python environments
// that this process can know of.
func sitePackages(interpreter string) []string {
	programs := []string{cmp.Or(interpreter, os.Getenv("REWARDLOOP_PYTHON"))}
	prefixes := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if programs[0] == "" {
		programs = append(programs, "python3")
	} else {
		prefixes = nil
	}
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		// An environment's interpreter is a link to that which it was made of.
		for _, resolve := range []func(string) (string, error){filepath.Abs, filepath.EvalSymlinks} {
			if at, err := resolve(path); err == nil {
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(at)))
			}
		}
	}
	out := filepath.SplitList(os.Getenv("PYTHONPATH"))
	for _, prefix := range prefixes {
		if prefix == "" {
			continue
		}
		for _, pattern := range []string{"lib*/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(escape(prefix), pattern)) // the patterns are good
			out = append(out, found...)
		}
	}
	var once []string
	for _, dir := range out { // lib64 is often a link to lib
		if dir, err := filepath.EvalSymlinks(dir); err == nil && dir != "" && !slices.Contains(once, dir) {
			once = append(once, dir)
		}
	}
	return once
}

// triple names this architecture in the folders of Debian; "" is unknown.
func triple() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
}

// noCUDA says what to do for a CUDA device.
func noCUDA(lib Library) error {
	return infer.Marked(infer.ErrMissing, fmt.Errorf("%w: %s and %s are missing in the folder of %s: copy them from the GPU package of the same version, or write device: cpu",
		infer.ErrUnavailable, cudaFile, sharedFile, lib.Path))
}
