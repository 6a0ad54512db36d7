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

// QueueName returns the name of the queue that carries the tickets of a profile. Profiles with the
// same name and different configurations have different queues: digest is that of the
// configuration, or "" if it does not matter.
//
// Each pair of arguments has its own name, of 1 to 100 bytes from a-z, 0-9, - and _. A name is
// therefore valid as a token of a NATS subject and as a file name, even if the file system does not
// distinguish upper and lower case. The bytes a-z, 0-9 and - stay as they are, every other byte
// becomes _ and two hexadecimal digits, and __ precedes the digest. The default profile, whose name
// is empty, becomes _. A longer name becomes _-, 160 bits of SHA-256 in hexadecimal, -, and the
// beginning of the longer name.
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
