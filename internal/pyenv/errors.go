package pyenv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The classes of errors. The errors that wrap them describe the place and what to do.
var (
	// ErrMissing means that the environment has not been made.
	ErrMissing = errors.New("the environment is not made")
	// ErrSpec means that a Spec is invalid.
	ErrSpec = errors.New("bad environment")
	// ErrPython means that no working Python of the requested version was found.
	ErrPython = errors.New("no such Python")
	// ErrResolve means that the requirements contradict each other or that no index has a package.
	ErrResolve = errors.New("the requirements cannot be resolved")
	// ErrNetwork means that an index cannot be reached.
	ErrNetwork = errors.New("the package index cannot be reached")
	// ErrHash means that a package does not have the hash of the lock.
	ErrHash = errors.New("a hash does not match")
	// ErrSpace means that the disk is full or has not enough space for the packages.
	ErrSpace = errors.New("not enough room on the disk")
	// ErrInstall means that the packages could not be installed for another reason.
	ErrInstall = errors.New("the packages cannot be installed")
	// ErrRefused means that Options.Agree returned an error.
	ErrRefused = errors.New("nothing was downloaded")
	// ErrPlatform means that the packed wheels are for another kind of machine or Python.
	ErrPlatform = errors.New("of another platform")
	// ErrBusy means that another process makes or uses the environment.
	ErrBusy = errors.New("the environment is busy")
	// ErrUnknown means that there is no environment with that name.
	ErrUnknown = errors.New("unknown environment")
)

// sign is a text in a tool's output by which a failure is known, and its class.
type sign struct {
	text   string
	class  error
	advice string
}

// signs are looked for in this order: after lines about the network pip also says that it found
// nothing.
func signs() []sign {
	const network = "check the network, the proxy and the index of pip's configuration, and run the command again; downloaded packages are in pip's cache"
	const space = "free some, or name another folder in REWARDLOOP_ENVS"
	const hash = "the file at the index differs from the locked file: do not use it; if the file was replaced on purpose, make a new lock without the hashes"
	return []sign{
		{"No space left on device", ErrSpace, space},
		{"Disk quota exceeded", ErrSpace, space},
		{"DO NOT MATCH THE HASHES", ErrHash, hash},
		{"Hash mismatch", ErrHash, hash},
		{"Failed to establish a new connection", ErrNetwork, network},
		{"Temporary failure in name resolution", ErrNetwork, network},
		{"Name or service not known", ErrNetwork, network},
		{"Network is unreachable", ErrNetwork, network},
		{"Cannot connect to proxy", ErrNetwork, network},
		{"Connection refused", ErrNetwork, network},
		{"ConnectTimeoutError", ErrNetwork, network},
		{"Read timed out", ErrNetwork, network},
		{"CERTIFICATE_VERIFY_FAILED", ErrNetwork, network},
		{"Could not fetch URL", ErrNetwork, network},
		{"dns error", ErrNetwork, network},
		{"In --require-hashes mode", ErrHash, "a file with hashes must list every package with its version and hash: write the file with `rewardloop env make -r FILE --lock LOCK`"},
		{"ResolutionImpossible", ErrResolve, "loosen one of the versions that are in conflict"},
		{"conflicting dependencies", ErrResolve, "loosen one of the versions that are in conflict"},
		{"requires a different Python", ErrResolve, "name another Python"},
		{"No matching distribution found", ErrResolve, "correct the name or version, or name another Python; a package without a wheel for this Python needs --allow-source"},
		{"Invalid requirement", ErrResolve, "correct the line"},
	}
}

// failure is the error of a tool that ended badly, by what it said.
func failure(what, said string, err, class error) error {
	advice := ""
	for _, s := range signs() {
		if strings.Contains(said, s.text) {
			class, advice = s.class, ": "+s.advice
			break
		}
	}
	return fmt.Errorf("%w: %s: %w%s. Its output: %s", class, what, err, advice, tail(reason(said)))
}

// reason leaves out of what pip says how it got there, and all of its attempts but the last.
func reason(said string) string {
	var kept []string
	attempt := -1
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\r\n")
		bare := strings.TrimSpace(line)
		retry := strings.HasPrefix(bare, "WARNING: Retrying")
		switch {
		case bare == "" || slices.ContainsFunc(routine(), func(start string) bool { return strings.HasPrefix(bare, start) }):
		case retry && attempt >= 0:
			kept[attempt] = line
		default:
			if retry {
				attempt = len(kept)
			}
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// routine is how lines of pip begin that are no reason for anything.
func routine() []string {
	return []string{"Looking in ", "Collecting ", "Using cached ", "Downloading ", "Processing ", "Requirement already satisfied", "[notice]"}
}

// tail keeps the end of what a program said, where the reason stands.
func tail(text string) string {
	const limit = 1500
	text = strings.TrimSpace(text)
	if len(text) > limit {
		text = "…" + strings.ToValidUTF8(text[len(text)-limit:], "")
	}
	return text
}
