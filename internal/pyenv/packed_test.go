package pyenv_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pyenv"
)

func TestAPackedEnvironmentIsMadeElsewhereOutOfItsWheels(t *testing.T) {
	t.Parallel()
	here, there := newStore(t), newStore(t)
	from, find := wheels(t)
	spec := pyenv.Spec{Requirements: find + "old\n"}
	dir := t.TempDir()
	var plan pyenv.Plan
	p, err := here.Pack(t.Context(), spec, dir, pyenv.Options{Agree: func(_ context.Context, p pyenv.Plan) error { plan = p; return nil }})
	require.NoError(t, err)
	require.NoError(t, p.Validate())
	require.Equal(t, p.Name, plan.Name)
	require.Equal(t, []string{"dep-1.0-py3-none-any.whl", "old-1.0-py3-none-any.whl"}, p.Wheels)
	_, err = here.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing, "packing installs nothing")

	// What is made here is packed by its lock, and nobody is asked.
	made, err := here.Make(t.Context(), spec, pyenv.Options{})
	require.NoError(t, err)
	again, err := here.Pack(t.Context(), spec, t.TempDir(), pyenv.Options{Agree: refuse})
	require.NoError(t, err)
	require.Equal(t, made.Name, again.Name)
	require.Equal(t, p.Digest, again.Digest)
	require.Equal(t, p.Wheels, again.Wheels)

	require.NoError(t, os.RemoveAll(from))
	_, err = there.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	require.NoError(t, there.Suits(t.Context(), p))
	e, err := there.Unpack(t.Context(), p, dir, pyenv.Options{})
	require.NoError(t, err)
	require.Equal(t, made.Name, e.Name)
	found, err := there.Find(spec)
	require.NoError(t, err, "it is what a configuration looks for")
	require.Equal(t, e.Interpreter, found.Interpreter)
	require.Equal(t, "1.0", says(t, e, "import dep, old; print(dep.__version__)"))
	require.NoError(t, os.RemoveAll(dir))
	_, err = there.Unpack(t.Context(), p, dir, pyenv.Options{})
	require.NoError(t, err, "it is made: no wheel is looked for")
}

func TestWhatWasPackedForAnotherKindOfMachineIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	dir := t.TempDir()
	p, err := s.Pack(t.Context(), pyenv.Spec{Requirements: find + "new\n"}, dir, pyenv.Options{})
	require.NoError(t, err)
	other := p
	other.Platform = "cpython-plan9-mips-libc-9"
	_, err = s.Unpack(t.Context(), other, dir, pyenv.Options{})
	require.ErrorIs(t, err, pyenv.ErrPlatform)
	require.ErrorContains(t, err, p.Name+": the wheels are for cpython-plan9-mips")
	older := p
	older.Python = "3.1.4"
	require.ErrorIs(t, s.Suits(t.Context(), older), pyenv.ErrPython)
	require.ErrorContains(t, s.Suits(t.Context(), older), "the wheels are for Python 3.1")
	newer := p
	newer.Platform = p.Platform + ".1" // of the C library, which pip compares by the wheels' tags
	require.NoError(t, s.Suits(t.Context(), newer))
}

func TestAWheelThatIsNotTheLockedOneIsNotInstalled(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, find := wheels(t)
	dir := t.TempDir()
	spec := pyenv.Spec{Requirements: find + "new\n"}
	p, err := s.Pack(t.Context(), spec, dir, pyenv.Options{})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, p.Wheels[0]))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, p.Wheels[0]), append(text, 0), 0o600))
	_, err = s.Unpack(t.Context(), p, dir, pyenv.Options{Pip: true})
	require.ErrorIs(t, err, pyenv.ErrHash)
	_, err = s.Find(spec)
	require.ErrorIs(t, err, pyenv.ErrMissing)
	_, unfinished, err := s.List()
	require.NoError(t, err)
	require.Empty(t, unfinished)
}

func TestWhatPackHasNotWrittenIsRefused(t *testing.T) {
	t.Parallel()
	good := pyenv.Packed{
		Name: "py3.11-0123456789abcdef", Digest: strings.Repeat("0", 20), Python: "3.11.2",
		Packages: []pyenv.Package{{Name: "dep", Version: "1.0", SHA256: strings.Repeat("0", 64)}}, Wheels: []string{"dep-1.0-py3-none-any.whl"},
	}
	require.NoError(t, good.Validate())
	for name, change := range map[string]func(p *pyenv.Packed){
		"a name that is a path":       func(p *pyenv.Packed) { p.Name = "../x" },
		"a digest that is a path":     func(p *pyenv.Packed) { p.Digest = "../../../../../../x" },
		"a Python that is a path":     func(p *pyenv.Packed) { p.Python = "/bin/sh" },
		"a package that is an option": func(p *pyenv.Packed) { p.Packages[0].Name = "--index-url" },
		"a version with a line":       func(p *pyenv.Packed) { p.Packages[0].Version = "1\n-e x" },
		"a sum that is none":          func(p *pyenv.Packed) { p.Packages[0].SHA256 = "x" },
		"a wheel elsewhere":           func(p *pyenv.Packed) { p.Wheels[0] = "../x.whl" },
		"a wheel too many":            func(p *pyenv.Packed) { p.Wheels = append(p.Wheels, "x.whl") },
	} {
		p := good
		p.Packages, p.Wheels = append([]pyenv.Package{}, good.Packages...), append([]string{}, good.Wheels...)
		change(&p)
		require.ErrorIs(t, p.Validate(), pyenv.ErrSpec, name)
	}
}
