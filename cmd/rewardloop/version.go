package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker.
var version, commit string //nolint:gochecknoglobals // the linker can set no other

// release is the version that was linked in, else the one Go knows.
func release() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		info = new(debug.BuildInfo)
	}
	return cmp.Or(version, info.Main.Version, "unknown")
}

// program is what version --json prints.
type program struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Tags     []string `json:"tags"`
}

func thisProgram() program {
	p := program{Version: release(), Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Tags: []string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				p.Commit = cmp.Or(p.Commit, s.Value)
			case s.Key == "-tags" && s.Value != "":
				p.Tags = strings.Split(s.Value, ",")
			}
		}
	}
	p.Commit = cmp.Or(p.Commit, "unknown")
	return p
}

func versionCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", GroupID: groupProgram, Args: nothingElse,
		Short:   "print version, commit, Go and build tags",
		Long:    "Prints the version, commit, Go release, platform and build tags of the program.\n`rewardloop --version` prints the same.",
		Example: "rewardloop version",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return printVersion(e, *asJSON) }
	return cmd
}

func printVersion(e *env, asJSON bool) error {
	p := thisProgram()
	if asJSON {
		return e.json(p)
	}
	fmt.Fprintf(e.stdout, "rewardloop %s\ncommit  %s\ngo      %s %s\ntags    %s\n", p.Version, p.Commit, p.Go, p.Platform, cmp.Or(strings.Join(p.Tags, ", "), "none"))
	return nil
}
