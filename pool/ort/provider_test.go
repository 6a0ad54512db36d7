package ort_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/executable"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// The files of the CUDA provider.
const (
	providerFile = "libonnxruntime_providers_cuda.so"
	bridgeFile   = "libonnxruntime_providers_shared.so"
)

// stub writes a shared library that needs others and has nothing else.
func stub(tb testing.TB, path string, needed ...string) {
	tb.Helper()
	names, dynamic := []byte{0}, []elf.Dyn64{}
	for _, name := range needed {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names = append(append(names, name...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	sections := []byte("\x00.dynstr\x00.dynamic\x00.shstrtab\x00")
	const head, section = 64, 64
	at := uint64(head)
	size := uint64(16 * len(dynamic))
	table := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names)), Addralign: 1},
		{Name: 9, Type: uint32(elf.SHT_DYNAMIC), Off: at + uint64(len(names)), Size: size, Link: 1, Entsize: 16, Addralign: 1},
		{Name: 18, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(names)) + size, Size: uint64(len(sections)), Addralign: 1},
	}
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Shoff: table[3].Off + table[3].Size, Ehsize: head, Shentsize: section, Shnum: uint16(len(table)), Shstrndx: 3,
	}
	var out bytes.Buffer
	for _, part := range []any{header, names, dynamic, sections, table} {
		require.NoError(tb, binary.Write(&out, binary.LittleEndian, part))
	}
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(tb, os.WriteFile(path, out.Bytes(), 0o600))
}

// cuda13 is what the provider of ONNX Runtime 1.29 needs.
func cuda13() []string {
	return []string{"libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13", "libcuda.so.1", "libonnxruntime_providers_shared.so", "libc.so.6"}
}

func TestTheLibrariesOfAProviderAreFoundInAnEnvironmentWithPyTorch(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	provider, driver := filepath.Join(dir, providerFile), filepath.Join(dir, "driver")
	stub(t, provider, cuda13()...)
	stub(t, filepath.Join(driver, "libcuda.so.1"))
	site := filepath.Join(dir, "venv", "lib", "python3.12", "site-packages")
	cu13, cudnn := filepath.Join(site, "nvidia", "cu13", "lib"), filepath.Join(site, "nvidia", "cudnn", "lib")
	for _, name := range []string{"libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13", "libnvrtc.so.13"} {
		stub(t, filepath.Join(cu13, name))
	}
	stub(t, filepath.Join(cudnn, "libcudnn.so.9"))
	stub(t, filepath.Join(site, "torch", "lib", "libtorch.so"))
	python := filepath.Join(dir, "venv", "bin", "python")
	require.NoError(t, os.MkdirAll(filepath.Dir(python), 0o700))
	executable.Write(t, python, "#!/bin/false")

	sites := ort.SitePackages(python)
	require.Contains(t, sites, site)
	p := ort.ExamineProvider(provider, []string{driver}, ort.CUDAFolders(dir, sites))
	require.Equal(t, 13, p.Major)
	require.Equal(t, []string{cu13, cudnn}, p.Folders, "and not that of the driver, which the loader knows")
	require.Empty(t, p.Missing)
	require.Empty(t, p.Remedy())
	require.Contains(t, p.String(), "built for CUDA 13, at "+provider)
	require.Contains(t, p.String(), filepath.Join(cu13, "libcudart.so.13"))
	require.NotContains(t, p.String(), "missing")
}

func TestWhatAProviderLacksIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	provider := filepath.Join(dir, providerFile)
	stub(t, provider, cuda13()...)
	p := ort.ExamineProvider(provider, nil, nil)
	require.Equal(t, []string{"libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13", "libcuda.so.1", "libcudnn.so.9", "libnvrtc.so.13"}, p.Missing)
	require.Contains(t, p.Remedy(), "libcuda.so.1 is the driver's: install NVIDIA's driver")
	require.Contains(t, p.Remedy(), "install the libraries of CUDA 13 and cuDNN 9, with PyTorch in the environment that pool.python.interpreter")

	twelve := filepath.Join(dir, "nvidia", "cuda_runtime", "lib")
	stub(t, filepath.Join(twelve, "libcudart.so.12"))
	p = ort.ExamineProvider(provider, nil, ort.CUDAFolders(dir, []string{dir}))
	require.Equal(t, []string{filepath.Join(twelve, "libcudart.so.12")}, p.Others)
	require.Contains(t, p.Remedy(), "the machine has "+filepath.Join(twelve, "libcudart.so.12")+", but the provider needs ")
	require.Contains(t, p.Remedy(), "an ONNX Runtime that was built for the installed version, or install the libraries of CUDA 13")

	stub(t, provider, "libsomething.so.1")
	p = ort.ExamineProvider(provider, nil, nil)
	require.Zero(t, p.Major)
	require.Equal(t, []string{"libcudnn.so.9"}, p.Missing)
	require.Contains(t, p.String(), "built for a CUDA version that its file does not name")
	for name, data := range map[string]string{"empty": "", "text": "version https://git-lfs.github.com"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
		p = ort.ExamineProvider(path, nil, nil)
		require.Contains(t, p.String(), "not a shared library")
		require.Contains(t, p.Remedy(), "GPU package of the same version")
	}
}

func TestALibraryWithItsProviderIsFoundInAWheelsFolder(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	site := t.TempDir()
	wheel := filepath.Join(site, "onnxruntime", "capi")
	require.NoError(t, os.MkdirAll(wheel, 0o700))
	plain := t.TempDir()
	for _, dir := range []string{wheel, plain} {
		require.NoError(t, os.Symlink(lib.Path, filepath.Join(dir, "libonnxruntime.so.1.29.0")))
	}
	stub(t, filepath.Join(wheel, providerFile), cuda13()...)
	stub(t, filepath.Join(wheel, bridgeFile))
	require.Equal(t, wheel, ort.LastPlace([]string{site}), "the Python environments come last")
	got, err := ort.FindAmong(false, plain, wheel)
	require.NoError(t, err)
	require.Equal(t, plain, filepath.Dir(got.Path), "the first will do for the CPU")
	got, err = ort.FindAmong(true, plain, wheel)
	require.NoError(t, err)
	require.Equal(t, wheel, filepath.Dir(got.Path), "and for a card the one with the provider")

	_, err = ort.FindAmong(true, plain)
	require.ErrorIs(t, err, infer.ErrMissing)
	require.ErrorContains(t, err, providerFile+" and "+bridgeFile+" are missing in the folder of")
	_, provider, err := ort.FindCUDA(wheel, "")
	require.NoError(t, err)
	require.Equal(t, 13, provider.Major)
}

func TestTheLoadersOwnFoldersAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("ld.so.conf", "/first # one\ninclude *.list\n\n/last\n")
	write("a.list", "/second\n")
	write("b.list", "include b.list\n/third\n") // itself
	got := ort.ConfiguredFolders(filepath.Join(dir, "ld.so.conf"), 0)
	require.Equal(t, "/first", got[0])
	require.Contains(t, got, "/second")
	require.Contains(t, got, "/third")
	require.Equal(t, "/last", got[len(got)-1])
	require.Less(t, len(got), 10, "a file that includes itself ends")
	require.Empty(t, ort.ConfiguredFolders(filepath.Join(dir, "none"), 0))
}
