package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Check reads the manifest and every part of the bundle in a folder, and returns the errors of all
// parts. limit is as for Read.
func Check(ctx context.Context, folder string, limit int64) (Manifest, error) {
	m, err := Read(folder, limit)
	if err != nil {
		return m, err
	}
	var errs []error // all of them: what is missing is fetched in one go
	for i := range m.Parts {
		errs = append(errs, m.CheckPart(ctx, folder, i))
	}
	return m, errors.Join(errs...)
}

// CheckPart reads part i of the bundle in a folder. The error wraps ErrMissing, ErrDamaged or
// ErrForeign, or is an error of the file system or of ctx.
func (m Manifest) CheckPart(ctx context.Context, folder string, i int) error {
	name, want := m.PartName(i), m.Parts[i]
	path := filepath.Join(folder, name)
	info, err := os.Stat(path) // a link to a part serves as well: what it leads to is checked
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s, one of %d, is not in %s", ErrMissing, name, len(m.Parts), folder)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: part %s is not a regular file", ErrDamaged, name)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	head, sum := make([]byte, headerSize), sha256.New()
	short, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	sum.Write(head[:short])
	n, err := io.Copy(sum, io.LimitReader(cancellable{ctx, file}, want.Size))
	if err != nil {
		return err
	}
	own, end := header(m.id(), i), len(magic)+sha256.Size
	switch {
	case short == headerSize && bytes.HasPrefix(head, []byte(magic)) && !bytes.Equal(head[:end], own[:end]):
		return fmt.Errorf("%w: %s belongs to bundle %x, but the manifest belongs to bundle %s", ErrForeign, name, head[len(magic):len(magic)+6], m.ID[:12])
	case int64(short)+n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256:
		return fmt.Errorf("%w: part %s has %d bytes, but %d bytes were packed: copy the part again", ErrDamaged, name, info.Size(), want.Size)
	}
	return nil
}

// Join checks the bundle in a folder and unpacks it to root, which must not exist or must be an
// empty folder. If Join fails, root is not changed. limit is as for Read.
func Join(ctx context.Context, folder, root string, limit int64) (m Manifest, err error) {
	if m, err = Check(ctx, folder, limit); err != nil {
		return m, err
	}
	root = filepath.Clean(root)
	half, err := os.MkdirTemp(filepath.Dir(root), ".joining-")
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(half))
		}
	}()
	if err := m.unpack(ctx, folder, half); err != nil {
		return m, err
	}
	if err := os.Chmod(half, 0o755); err != nil { //nolint:gosec // as the umask would have it
		return m, err
	}
	return m, os.Rename(half, root)
}

// unpack writes the files below root.
func (m Manifest) unpack(ctx context.Context, folder, root string) (err error) {
	below, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, below.Close()) }()
	return m.Each(ctx, folder, func(e Entry, content io.Reader) error { return e.write(below, content) })
}

// Each calls take for each file of the bundle in a folder, in order, and discards the content that
// take does not read. The parts must have been checked before. If a content differs from the
// manifest, Each returns an error after the call of take, or content returns an error.
func (m Manifest) Each(ctx context.Context, folder string, take func(e Entry, content io.Reader) error) (err error) {
	parts := &sequence{folder: folder, m: m}
	defer func() { err = errors.Join(err, parts.Close()) }()
	z, err := zstd.NewReader(cancellable{ctx, parts}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	for _, e := range m.Files {
		sum := sha256.New()
		content := &counted{r: io.TeeReader(io.LimitReader(z, e.Size), sum)}
		err := take(e, content)
		if err == nil {
			_, err = io.Copy(io.Discard, content)
		}
		switch {
		case content.err != nil && ctx.Err() == nil:
			return fmt.Errorf("%w: file %q: %w", ErrDamaged, e.Name, content.err)
		case err != nil:
			return err
		case content.n != e.Size || hex.EncodeToString(sum.Sum(nil)) != e.SHA256:
			return fmt.Errorf("%w: file %q unpacks to %d bytes that differ from the %d bytes that were packed", ErrDamaged, e.Name, content.n, e.Size)
		}
	}
	switch n, err := io.ReadFull(z, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: the parts unpack to more than the %d bytes that the manifest declares", ErrBomb, m.Bytes())
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("%w: unexpected data after the last file of the bundle: %w", ErrDamaged, err)
	}
	return nil
}

// write takes one file from the stream.
func (e Entry) write(root *os.Root, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(e.Name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(e.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	if err == nil {
		err = file.Chmod(e.perm())
	}
	return errors.Join(err, file.Close())
}

// counted is a reader that remembers how many bytes it gave, and how it failed.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// sequence reads the parts without their headers, one behind the other.
type sequence struct {
	folder string
	m      Manifest
	next   int
	file   *os.File
}

// Read implements io.Reader.
func (s *sequence) Read(p []byte) (int, error) {
	for {
		if s.file == nil {
			if s.next == len(s.m.Parts) {
				return 0, io.EOF
			}
			file, err := os.Open(filepath.Join(s.folder, s.m.PartName(s.next)))
			if err != nil {
				return 0, err
			}
			s.file = file
			s.next++
			if _, err := file.Seek(int64(headerSize), io.SeekStart); err != nil {
				return 0, err
			}
		}
		n, err := s.file.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := s.Close(); err != nil {
			return 0, err
		}
	}
}

// Close closes the part that is open.
func (s *sequence) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
