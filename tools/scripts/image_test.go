package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
)

// image runs scripts/image.sh with a docker that notes what it is asked, and fails where buildx or the engine is asked for that is not there.
func image(t *testing.T, buildx, engine bool, env ...string) (said, asked string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	bin, notes := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	fails := map[bool]string{true: "exit 0", false: "exit 1"}
	executable.Write(t, filepath.Join(bin, "docker"), `#!/bin/sh
case "$1 $2" in
"buildx version") `+fails[buildx]+` ;;
"info ") `+fails[engine]+` ;;
esac
echo "$@" >>`+notes+"\n")
	cmd := exec.CommandContext(t.Context(), "scripts/image.sh", "1.2.3.dev4+g0", "0123abc", "amd64 arm64", "dist")
	cmd.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SOURCE_DATE_EPOCH=1767323045", "IMAGE=", "SOURCE="), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(notes)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(out), string(text)
}

func TestAReleaseBuildsItsImageWhereDockerIsAndSaysInALineWhereItIsNot(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		buildx, engine bool
		env            string
	}{
		"docker with buildx is not here":  {false, true, "IMAGE="},
		"docker's engine does not answer": {true, false, "IMAGE="},
		"IMAGE is off":                    {true, true, "IMAGE=off"},
	} {
		said, asked := image(t, c.buildx, c.engine, c.env)
		assert.Contains(t, said, "no image was built: "+want)
		assert.Empty(t, asked)
	}
	_, asked := image(t, true, true)
	labels := "--build-arg VERSION=1.2.3.dev4+g0 --build-arg REVISION=0123abc --build-arg CREATED=2026-01-02T03:04:05Z --build-arg SOURCE="
	assert.Equal(t, "buildx build --platform linux/amd64,linux/arm64 "+labels+" --tag rewardloop:1.2.3.dev4-g0 --output type=oci,dest=dist/rewardloop-1.2.3.dev4+g0-image.tar .\n", asked)
	_, asked = image(t, true, true, "IMAGE=registry.example/a/b", "SOURCE=https://example.com/a/b")
	assert.Equal(t, "buildx build --platform linux/amd64,linux/arm64 "+labels+"https://example.com/a/b --tag registry.example/a/b:1.2.3.dev4-g0 --push .\n", asked, "a development version is not the latest")
}
