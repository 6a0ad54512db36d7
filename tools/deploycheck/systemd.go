package deploycheck

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unitKeys are the keys of unit files that deploy/systemd uses, by section. Another one is
// added here once the manual has been read: systemd itself ignores what it does not know.
func unitKeys() map[string][]string {
	return map[string][]string{
		"Unit":    {"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec", "StartLimitBurst"},
		"Install": {"WantedBy"},
		"Service": {
			"Type", "Environment", "EnvironmentFile", "ExecStart", "ExecReload", "LoadCredential", "KillSignal", "KillMode", "TimeoutStopSec",
			"Restart", "RestartSec", "RestartPreventExitStatus", "LimitNOFILE", "DynamicUser", "CacheDirectory", "StateDirectory", "UMask",
			"NoNewPrivileges", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset", "PrivateTmp",
			"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectHostname", "ProtectKernelLogs",
			"ProtectKernelModules", "ProtectKernelTunables", "ProtectControlGroups", "RestrictAddressFamilies",
			"RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "SystemCallArchitectures",
			"SystemCallFilter", "SystemCallErrorNumber",
		},
	}
}

// unit is a unit file: section and key to its values in order.
type unit map[string]map[string][]string

// readUnit reads a unit file; what is not in unitKeys is a fault.
func readUnit(file string) (unit, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var (
		u               = unit{}
		section, before string
		faults          []error
		number          int
	)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		number++
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "#") || line == "" && before == "" {
			continue
		}
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			before += rest
			continue
		}
		line, before = before+line, ""
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			if _, ok := unitKeys()[section]; !ok {
				faults = append(faults, fmt.Errorf("%s:%d: no section [%s]", filepath.Base(file), number, section))
			}
			u[section] = map[string][]string{}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !slices.Contains(unitKeys()[section], key) {
			faults = append(faults, fmt.Errorf("%s:%d: section [%s] has no key %q", filepath.Base(file), number, section, key))
			continue
		}
		u[section][key] = append(u[section][key], value)
	}
	return u, errors.Join(faults...)
}

// last is a setting of which the last line counts.
func (u unit) last(key string) string {
	if values := u["Service"][key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// Unit reads a service's unit and returns its command line, as systemd would expand it.
// config is the file that it finds as /etc/rewardloop/config.yaml.
func Unit(file, config string) (CommandLine, error) {
	where := "systemd unit " + filepath.Base(file)
	u, err := readUnit(file)
	if err != nil {
		return CommandLine{}, err
	}
	var faults []error
	for key, want := range map[string]string{"Type": "exec", "KillSignal": "SIGTERM", "KillMode": "mixed", "RestartPreventExitStatus": "2"} {
		if got := u.last(key); got != want {
			faults = append(faults, fmt.Errorf("%s: %s=%s, want %s", where, key, got, want))
		}
	}
	values := map[string]string{}
	for _, line := range u["Service"]["Environment"] {
		for pair := range strings.FieldsSeq(line) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				faults = append(faults, fmt.Errorf("%s: Environment=%s", where, line))
			}
			values[name] = value
		}
	}
	specifiers := strings.NewReplacer("%d", "/run/credentials", "%H", "host", "%i", "0", "%C", "/var/cache", "%S", "/var/lib", "%%", "%")
	var args []string
	for word := range strings.FieldsSeq(u.last("ExecStart")) {
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") { // split, and nothing if empty
			args = append(args, strings.Fields(values[name])...)
			continue
		}
		args = append(args, specifiers.Replace(os.Expand(word, func(name string) string { return values[name] })))
	}
	if len(args) < 2 || args[0] != "/usr/local/bin/rewardloop" {
		return CommandLine{}, errors.Join(append(faults, fmt.Errorf("%s: ExecStart=%s", where, u.last("ExecStart")))...)
	}
	for _, a := range args {
		_, name, ok := strings.Cut(a, "/run/credentials/")
		if ok && !slices.ContainsFunc(u["Service"]["LoadCredential"], func(c string) bool { return strings.HasPrefix(c, name+":") }) {
			faults = append(faults, fmt.Errorf("%s: argument %q: no LoadCredential is called %s", where, a, name))
		}
	}
	text, err := os.ReadFile(config)
	if err != nil {
		return CommandLine{}, err
	}
	grace, err := time.ParseDuration(u.last("TimeoutStopSec") + "s")
	if err != nil {
		faults = append(faults, fmt.Errorf("%s: TimeoutStopSec: %w", where, err))
	}
	return CommandLine{Where: where, Args: args[1:], Config: string(text), Grace: grace}, errors.Join(faults...)
}
