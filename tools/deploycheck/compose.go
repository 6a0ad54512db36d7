package deploycheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// Compose reads a Compose file with all its profiles as docker compose would: what its
// schema does not know is a fault. It returns the command lines of rewardloop in it.
func Compose(ctx context.Context, file, scratch string) ([]CommandLine, error) {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	project, err := loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: file}},
		Environment: types.Mapping{"REWARDLOOP_TOKEN": "x"},
	}, func(o *loader.Options) { o.Profiles = []string{"*"} })
	if err != nil {
		return nil, err
	}
	var (
		lines  []CommandLine
		faults []error
	)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, s := range project.Services {
		where := "compose service " + s.Name
		for _, c := range s.Configs {
			if f := project.Configs[c.Source].File; f != "" {
				if _, err := os.Stat(f); err != nil {
					fault("%s: config %s: %w", where, c.Source, err)
				}
			}
		}
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			fault("%s: want read_only, cap_drop ALL and no-new-privileges", where)
		}
		if s.Image != "rewardloop" && s.Image != "rewardloop-cuda" {
			continue
		}
		checkCards(fault, where, s)
		line := CommandLine{Where: where, Args: s.Command}
		if s.Build == nil {
			fault("%s: it is not built from the repository", where)
		} else if _, err := os.Stat(filepath.Join(s.Build.Context, "Dockerfile")); err != nil {
			fault("%s: %w", where, err)
		}
		if s.StopGracePeriod != nil {
			line.Grace = time.Duration(*s.StopGracePeriod)
		}
		text, err := os.ReadFile(project.Configs["config"].File)
		if err != nil {
			fault("%s: %w", where, err)
		}
		line.Config = string(text)
		lines = append(lines, line)
		if s.Build != nil && strings.Contains(line.Config, "builtin://ocr") {
			if models := s.Build.Args["MODELS"]; models == nil || !strings.Contains(*models, "ppocr") {
				fault("%s: the build argument MODELS names no model for builtin://ocr", where)
			}
		}
		for _, a := range s.Command {
			checkComposePath(fault, where, s, a)
			for _, m := range address.FindAllStringSubmatch(a, -1) {
				other, ok := project.Services[m[1]]
				if !ok || !shareNetwork(s, other) {
					fault("%s: argument %q: nobody called %s is on a network of it", where, a, m[1])
				}
			}
		}
	}
	conf := filepath.Join(scratch, "compose-nats.conf")
	if err := os.WriteFile(conf, []byte(project.Configs["nats"].Content), 0o600); err != nil {
		return nil, err
	}
	if _, err := readNATS(conf); err != nil {
		faults = append(faults, err)
	}
	return lines, errors.Join(faults...)
}

// checkCards: who runs models on a card is given one, and has the image that can.
func checkCards(fault func(string, ...any), where string, s types.ServiceConfig) {
	if !slices.ContainsFunc(s.Command, func(a string) bool { return onCard.MatchString(a) }) {
		return
	}
	given := s.Deploy != nil && s.Deploy.Resources.Reservations != nil &&
		slices.ContainsFunc(s.Deploy.Resources.Reservations.Devices, func(d types.DeviceRequest) bool {
			return d.Driver == "nvidia" && slices.Contains(d.Capabilities, "gpu")
		})
	if !given {
		fault("%s: a model runs on a card, and no device of nvidia with the capability gpu is reserved", where)
	}
	if s.Build != nil && s.Build.Target != "cuda" {
		fault("%s: a model runs on a card, and the image's target is %q, want cuda", where, s.Build.Target)
	}
}

// checkComposePath: each file that an argument names is one of the service's.
func checkComposePath(fault func(string, ...any), where string, s types.ServiceConfig, arg string) {
	_, file, _ := strings.Cut(arg, "=")
	if !strings.HasPrefix(file, "/") {
		return
	}
	for _, c := range s.Configs {
		if c.Target == file {
			return
		}
	}
	for _, c := range s.Secrets {
		if c.Target == file {
			return
		}
	}
	fault("%s: argument %q: nothing is mounted at %s", where, arg, file)
}

func shareNetwork(a, b types.ServiceConfig) bool {
	for name := range a.Networks {
		if _, ok := b.Networks[name]; ok {
			return true
		}
	}
	return false
}
