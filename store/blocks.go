package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// The samples and results of some successive rows lie together in a block, compressed: the members of a group have one prompt, and all
// have the same keys. That is half of the bytes that go through SQLite's log and its file.

const (
	// blockRows is how many rows a block has at most, and a statement writes, which costs half as much as a statement for each of them.
	blockRows = 32
	// blockBytes is where a block ends sooner: who reads one row expands its whole block.
	blockBytes = 256 << 10
)

// block gathers the JSON of samples and results: for each row the length of the one, the one, and the same of the other.
type block struct{ raw, compressed []byte }

func (b *block) add(head []byte) {
	b.raw = append(binary.AppendUvarint(b.raw, uint64(len(head))), head...)
}

func (b *block) reset() {
	if b.raw = b.raw[:0]; cap(b.raw) > 2*blockBytes { // of large rows, which are rare
		b.raw = nil
	}
}

// data is the block as it is written. It is valid until the next call.
func (b *block) data() []byte {
	b.compressed = s2.Encode(b.compressed[:cap(b.compressed)], b.raw)
	return b.compressed
}

// blockReader reads blocks, one after the other as rows mostly do.
type blockReader struct {
	conn        *sql.Conn
	first, last int64 // keys of the rows in raw
	raw         []byte
}

var errBlock = errors.New("the block of the result is damaged")

// of returns the JSON of a row's sample and result, which are valid until the next call.
func (b *blockReader) of(ctx context.Context, key int64) (head, result []byte, err error) {
	if b.raw == nil || key < b.first || key > b.last {
		var data []byte
		b.raw = nil
		if err := b.conn.QueryRowContext(ctx, "SELECT first, last, data FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1", key).Scan(&b.first, &b.last, &data); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				err = errBlock
			}
			return nil, nil, err
		}
		if b.raw, err = s2.Decode(nil, data); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errBlock, err)
		}
	}
	if key > b.last {
		return nil, nil, errBlock
	}
	rest := b.raw
	for range 2 * (key - b.first) {
		if _, rest, err = piece(rest); err != nil {
			return nil, nil, err
		}
	}
	if head, rest, err = piece(rest); err == nil {
		result, _, err = piece(rest)
	}
	return head, result, err
}

// piece cuts the first piece off.
func piece(raw []byte) (first, rest []byte, err error) {
	n, at := binary.Uvarint(raw)
	if at <= 0 || n > uint64(len(raw)-at) {
		return nil, nil, errBlock
	}
	end := at + int(n) //nolint:gosec // less than what is there
	return raw[at:end:end], raw[end:], nil
}
