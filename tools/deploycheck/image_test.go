package deploycheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// dockerfile is the text of the repository's.
func dockerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	return string(text)
}

func TestTheImageBringsTheModelsOfItsFirstConfiguration(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`(?m)^ARG MODELS="([^"]*)"$`).FindStringSubmatch(dockerfile(t))
	require.NotNil(t, m, "the Dockerfile names the models that it brings")
	brought := strings.Fields(m[1])
	text, err := os.ReadFile(filepath.Join(deploy, "config.yaml"))
	require.NoError(t, err)
	var config struct {
		Reward struct {
			Functions map[string]map[string]any `yaml:"reward_functions"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	require.NotEmpty(t, config.Reward.Functions)
	for name, of := range config.Reward.Functions {
		switch path, model := of["path"], of["model"]; {
		case model != nil:
			assert.Contains(t, brought, model, "reward_functions.%s", name)
		case path == "builtin://ocr":
			assert.Contains(t, brought, "ppocr-v4-mobile", "reward_functions.%s: its reader's default model", name)
		default:
			// What the list of scorers says needs nothing: a column of "-".
			out, err := exec.CommandContext(t.Context(), rewardloop(t).Path, "scorers").Output()
			require.NoError(t, err)
			scorer := strings.TrimPrefix(path.(string), "builtin://")
			assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(scorer)+` +- `, string(out), "reward_functions.%s needs something: say here what, and which model of the image it is", name)
		}
	}
	for _, name := range brought {
		out, err := exec.CommandContext(t.Context(), rewardloop(t).Path, "models", "list", name).CombinedOutput()
		require.NoError(t, err, "MODELS of the Dockerfile names %s: %s", name, out)
	}
}

func TestBothImagesHaveTheSamePackagesAndLabels(t *testing.T) {
	t.Parallel()
	stages := map[string]string{}
	for _, text := range strings.Split(dockerfile(t), "\nFROM ")[1:] {
		_, rest, _ := strings.Cut(text, " AS ")
		name, body, _ := strings.Cut(rest, "\n")
		stages[name] = body
	}
	for _, name := range []string{"cuda", "runtime"} {
		body := stages[name]
		require.NotEmpty(t, body, name)
		packages := regexp.MustCompile(`(?m)^ +(ca-certificates .*) \$\{RUNTIME_PACKAGES\}`).FindStringSubmatch(body)
		require.NotNil(t, packages, name)
		for _, want := range []string{"ffmpeg", "tesseract-ocr"} {
			assert.Contains(t, strings.Fields(packages[1]), want, name)
		}
		for _, label := range []string{"title", "description", "licenses", "version", "revision", "created", "source"} {
			assert.Contains(t, body, "org.opencontainers.image."+label+"=", name)
		}
		for _, argument := range []string{"VERSION", "REVISION", "CREATED", "SOURCE"} {
			assert.Regexp(t, `(?m)^ARG `+argument+`=`, body, name)
		}
	}
}
