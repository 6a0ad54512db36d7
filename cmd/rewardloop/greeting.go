package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// greeting says in a few lines what serve serves, and where.
func greeting(cfg *config.Config, addr string) string {
	var b strings.Builder
	line := func(what, text string) { fmt.Fprintf(&b, "%-8s %s\n", what, text) }
	page := pageOf(cfg, reachable(addr))
	line("page", page)
	line("stream", "ws"+strings.TrimPrefix(page, "http")+"v1/stream")
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		var parts []string
		for _, t := range cfg.Profiles[name].Components {
			if t.Key == t.Scorer {
				parts = append(parts, t.Key)
			} else {
				parts = append(parts, fmt.Sprintf("%s (%s)", t.Key, t.Scorer))
			}
		}
		line("reward", name+": "+strings.Join(parts, ", "))
	}
	for _, text := range readersOf(cfg) {
		line("reader", text)
	}
	for _, text := range startedBy(cfg) {
		line("engine", text)
	}
	token := "none: every process that reaches the address may use it"
	if cfg.Server.TokenFile != "" {
		token = "that of " + cfg.Server.TokenFile
	}
	line("token", token)
	line("metrics", page+"metrics")
	if cfg.NumWorkers == 0 {
		line("workers", "none here: start rewardloop worker on machines that score")
	}
	return b.String()
}

// startedBy says which engines the process starts, and where to see how they are.
func startedBy(cfg *config.Config) (out []string) {
	for _, name := range cfg.EngineNames() {
		e := cfg.Engines[name]
		switch {
		case e.Managed == nil || cfg.NumWorkers == 0:
		case cfg.Pool.Colocated && e.Managed.Frees:
			out = append(out, fmt.Sprintf("%s: %d × %s of %s starts with the first reward phase; `rewardloop engines` says how it is", name, e.Managed.Servers, e.Managed.Kind, e.Model))
		default:
			out = append(out, fmt.Sprintf("%s: %d × %s of %s starts; `rewardloop engines --wait` returns when it is ready", name, e.Managed.Servers, e.Managed.Kind, e.Model))
		}
	}
	return out
}

// reachable is an address with the machine's name where it is every address of the machine.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	name, unnamed := os.Hostname()
	if ip := net.ParseIP(host); err != nil || unnamed != nil || ip == nil || !ip.IsUnspecified() {
		return addr
	}
	return net.JoinHostPort(name, port)
}

// pageOf is where a browser finds the status page.
func pageOf(cfg *config.Config, addr string) string {
	scheme := "http"
	if cfg.Server.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + addr + "/"
}

// askedReaders are the text readers that the rewards of the configuration ask for, each
// once, in the order of the file.
func askedReaders(cfg *config.Config) []ocr.ReaderOptions {
	var out []ocr.ReaderOptions
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		for _, t := range cfg.Profiles[name].Components {
			if t.Scorer != "ocr" {
				continue
			}
			// Options that are wrong are what the check of the rewards reports.
			if o, err := ocr.ParseOptions(t.Options); err == nil && !slices.Contains(out, o.ReaderOptions) {
				out = append(out, o.ReaderOptions)
			}
		}
	}
	return out
}

// readersOf says who reads text in this process, and what is not as it should be.
func readersOf(cfg *config.Config) []string {
	asked := askedReaders(cfg)
	if len(asked) == 0 || !scores(cfg) {
		return nil
	}
	readers, err := node.NewReaders(cfg.Pool)
	if err != nil {
		return nil // the rewards that need one say so
	}
	defer readers.Close() // nothing was started
	var out []string
	for _, o := range asked {
		choice, err := readers.Choose(o)
		switch {
		case err != nil:
			out = append(out, err.Error())
		case choice.Instead != nil:
			out = append(out, choice.Detail+", which makes more mistakes than PP-OCR: "+choice.Instead.Error())
		default:
			out = append(out, choice.Detail)
		}
	}
	return out
}
