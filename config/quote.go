package config

import (
	"encoding/json"
	"fmt"
	"strings"
)

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
