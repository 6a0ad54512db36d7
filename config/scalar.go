package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The units of sizes, largest first, so that printing finds the shortest form.
func sizeUnits() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{
		{"TiB", 1 << 40},
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"TB", 1e12},
		{"GB", 1e9},
		{"MB", 1e6},
		{"KB", 1e3},
		{"B", 1},
	}
}

// parseSize reads "64MiB", "1.5 GiB", "500MB" or a plain number of bytes.
func parseSize(s string) (int64, error) {
	digits, factor := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(digits, u.name); ok {
			digits, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/factor {
		return n * factor, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(f >= 0) || f*float64(factor) >= math.MaxInt64 || strings.ContainsAny(digits, "xXpPnNiI_") {
		return 0, fmt.Errorf("want a size such as 64MiB, got %q", s)
	}
	return int64(f * float64(factor)), nil
}

func formatSize(n int64) string {
	for _, u := range sizeUnits() {
		if u.bytes > 1 && n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseDuration reads "120s", "2m30s", "250ms" or a plain number of seconds.
func parseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return d, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > math.MaxInt64/float64(time.Second)/2 {
		return 0, fmt.Errorf("want a duration such as 120s, got %q", s)
	}
	return time.Duration(f * float64(time.Second)), nil
}

// formatDuration writes whole seconds as such, because that is how the field
// compares deadlines, and all else as package time does.
func formatDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// quote writes text as a YAML scalar: plain where that is beyond doubt, else in
// double quotes.
func quote(s string) string {
	plain := s != ""
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 && r != '/' || !strings.ContainsRune("0123456789_-./+", r)) {
			plain = false
			break
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return printable(encode(s))
}

// printable is JSON as YAML takes it: the same, but for control characters that
// JSON leaves as they are.
func printable(raw json.RawMessage) string {
	var b strings.Builder
	for _, c := range string(raw) {
		if c >= 0x7f && c < 0xa0 || c == 0xfeff || c == 0xfffe || c == 0xffff || c == 0x2028 || c == 0x2029 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}
