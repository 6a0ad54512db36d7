package payload

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Errors of Key.Check.
var (
	// ErrToken means that the token was not made with this key for this attempt.
	ErrToken = errors.New("wrong claim token")
	// errTokenExpired: it was, and its time is over.
	errTokenExpired = errors.New("expired claim token")
)

// Key signs claim tokens. A Key is random and lives as long as the gateway's process, like the
// gateway's samples. It is safe for concurrent use.
type Key struct{ secret [32]byte }

// NewKey returns a new random key.
func NewKey() *Key {
	k := new(Key)
	_, _ = rand.Read(k.secret[:]) // never fails: crypto/rand ends the process instead
	return k
}

// tokenVersion begins every token.
const tokenVersion = "v1."

// Sign returns the token for one attempt, which is valid until the end of the second that contains
// until. The token has the form "v1.<unix seconds>.<base64url of HMAC-SHA256>".
func (k *Key) Sign(key wire.AttemptKey, until time.Time) string {
	expiry := until.Unix()
	return tokenVersion + strconv.FormatInt(expiry, 10) + "." + base64.RawURLEncoding.EncodeToString(k.mac(key, expiry))
}

// Check returns nil if Sign made the token for the attempt and the token is valid at now. Otherwise
// the error wraps ErrToken, or an unexported error if the token is only expired.
func (k *Key) Check(token string, key wire.AttemptKey, now time.Time) error {
	rest, ok := strings.CutPrefix(token, tokenVersion)
	at, mac, found := strings.Cut(rest, ".")
	if !ok || !found || len(token) > wire.MaxTokenBytes {
		return fmt.Errorf("%w: not of the form v1.<seconds>.<mac>", ErrToken)
	}
	expiry, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the expiry is not a number", ErrToken)
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(got, k.mac(key, expiry)) {
		return fmt.Errorf("%w: not signed by this gateway for attempt %d at sample %q", ErrToken, key.Attempt, key.ID)
	}
	if now.Unix() > expiry {
		return fmt.Errorf("%w: the token of attempt %d at sample %q expired %s ago", errTokenExpired, key.Attempt, key.ID, now.Sub(time.Unix(expiry, 0)).Truncate(time.Second))
	}
	return nil
}

// mac signs the fields one after the other, each text with its length before it, so that no
// two attempts have the same bytes.
func (k *Key) mac(key wire.AttemptKey, expiry int64) []byte {
	b := make([]byte, 0, 256)
	for _, s := range [...]string{wire.ClaimProtocol, key.Gateway, key.Run, key.ID} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint64(b, key.Epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(key.Attempt)) //nolint:gosec // its bits, whatever they are
	b = binary.LittleEndian.AppendUint64(b, uint64(expiry))      //nolint:gosec // likewise
	h := hmac.New(sha256.New, k.secret[:])
	h.Write(b)
	return h.Sum(nil)
}
