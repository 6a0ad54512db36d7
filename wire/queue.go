package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// longestQueue bounds the name of a queue in bytes. It is part of a subject and of the name
// of a consumer, which NATS makes a folder's.
const longestQueue = 100

// QueueName is the queue that carries the tickets of a profile. Profiles of equal name and
// different configuration do not share one: digest is of the configuration, "" where it does
// not matter.
//
// The name is distinct for each distinct pair, has 1 to 100 bytes, and consists of a-z, 0-9,
// - and _ only, so that it is a token of a subject, and a file's name also where these do not
// tell upper case from lower: a-z, 0-9 and - stand for themselves, every other byte is _ and
// two hexadecimal digits, and __ stands before the digest. The default profile, whose name is
// empty, is _ alone. What would be longer is _-, 160 bits of SHA-256, - and the beginning of
// what it would have been.
func QueueName(profile, digest string) string {
	var b strings.Builder
	if profile == "" {
		b.WriteByte('_')
	}
	writeToken(&b, profile)
	if digest != "" {
		b.WriteString("__")
		writeToken(&b, digest)
	}
	if b.Len() <= longestQueue {
		return b.String()
	}
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint64(len(profile))) // a hash takes everything
	h.Write([]byte(profile))
	h.Write([]byte(digest))
	return "_-" + hex.EncodeToString(h.Sum(nil)[:20]) + "-" + b.String()[:48]
}

// writeToken writes a name with a-z, 0-9, - and _ alone, in which no _ follows another.
func writeToken(b *strings.Builder, name string) {
	const hexDigits = "0123456789abcdef"
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		default:
			b.WriteByte('_')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
}
