package keys

import (
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

// ParseSize parses "64MiB", "1.5 GiB", "500MB" or a plain number of bytes.
func ParseSize(s string) (int64, error) {
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

// FormatSize formats a number of bytes with the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range sizeUnits() {
		if u.bytes > 1 && n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseDuration parses "120s", "2m30s", "250ms" or a plain number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return d, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > math.MaxInt64/float64(time.Second)/2 {
		return 0, fmt.Errorf("want a duration such as 120s, got %q", s)
	}
	return time.Duration(f * float64(time.Second)), nil
}

// FormatDuration formats whole seconds as seconds, as is usual for deadlines, and all other
// durations as package time does.
func FormatDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// Format formats a value as in a configuration file, without quotes.
func Format(v any) string {
	switch v := v.(type) {
	case int64:
		return FormatSize(v)
	case time.Duration:
		return FormatDuration(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}
