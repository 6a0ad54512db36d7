package bundle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// magic begins every part; then come the bundle's id and the part's place, 4 bytes with the
// high one first.
const (
	magic      = "rlbundl1"
	headerSize = len(magic) + sha256.Size + 4
	// window is how far back the compression looks. Joining takes as much memory.
	window = 128 << 20
)

// File is a file to pack.
type File struct {
	Name string // path in the bundle, with slashes
	Path string // path on this machine
}

// Options are the options of Pack.
type Options struct {
	// Name is the beginning of the names of the parts: 1 to 64 lower-case letters, digits, dots,
	// hyphens and underscores.
	Name string
	// PartSize is the maximum size of a part in bytes, 64 to MaxPart; 0: DefaultPart.
	PartSize int64
	// Limit is the maximum total size of all files in bytes; 0: DefaultLimit.
	Limit int64
	// Fast selects a compression that takes less than a hundredth of the time, for weights, which
	// hardly compress.
	Fast bool
	// Progress is called with the number of bytes of all files that are packed; nil: no call.
	Progress func(done int64)
}

// Tree lists the files below a folder, sorted by name. Pack refuses those that are not regular
// files, such as links.
func Tree(folder string) (files []File, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		files = append(files, File{Name: filepath.ToSlash(name), Path: path})
		return nil
	})
	return files, err
}

// Pack writes a bundle of the files, in their order, to a folder that must not contain a bundle
// with that name. Similar files should be next to one another. If Pack fails, it removes the files
// that it wrote.
func Pack(ctx context.Context, folder string, o Options, files []File) (m Manifest, err error) {
	o.PartSize = cmp.Or(o.PartSize, DefaultPart)
	m = Manifest{Format: Format, Name: o.Name}
	if !nameForm.MatchString(o.Name) || o.PartSize < 64 || o.PartSize > MaxPart {
		return m, fmt.Errorf("bundle: name %q and parts of %d bytes, want a name in small letters and 64 to %d bytes", o.Name, o.PartSize, MaxPart)
	}
	if len(files) < 1 || len(files) > maxFiles {
		return m, fmt.Errorf("bundle: %d files, want 1 to %d", len(files), maxFiles)
	}
	for _, f := range files {
		e, err := entry(ctx, f)
		if err != nil {
			return m, err
		}
		m.Files = append(m.Files, e)
	}
	if err := checkFiles(m.Files, o.Limit); err != nil {
		return m, err
	}
	id := m.id()
	m.ID = hex.EncodeToString(id[:])
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // what travels is for everybody
		return m, err
	}
	c := &cutter{ctx: ctx, folder: folder, m: &m, id: id, size: o.PartSize}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.discard())
		}
	}()
	if err := c.fill(files, o); err != nil {
		return m, err
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(folder, ManifestName), append(text, '\n'), 0o644) //nolint:gosec // as above
}

// entry describes a regular file.
func entry(ctx context.Context, f File) (Entry, error) {
	info, err := os.Lstat(f.Path)
	if err != nil {
		return Entry{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return Entry{}, fmt.Errorf("%w: %s", ErrLink, f.Path)
	}
	if !info.Mode().IsRegular() {
		return Entry{}, fmt.Errorf("bundle: %s is not a regular file", f.Path)
	}
	sum := sha256.New()
	n, err := read(ctx, f.Path, sum)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Name: f.Name, Mode: fmt.Sprintf("%03o", info.Mode().Perm()), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// read copies a file's content.
func read(ctx context.Context, path string, to io.Writer) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close() // only read
	return io.Copy(to, cancellable{ctx, file})
}

// cancellable is a reader that ends with its context.
type cancellable struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// cutter is a writer that cuts a stream into parts.
type cutter struct {
	ctx    context.Context //nolint:containedctx // of one call
	folder string
	m      *Manifest
	id     [sha256.Size]byte
	size   int64

	file    *os.File
	written int64
	sum     hash.Hash
	made    []string
}

// fill writes the contents of the files.
func (c *cutter) fill(files []File, o Options) error {
	// One goroutine: with more the blocks, and so the parts, are the same, and a package that
	// packs seldom has no pool to close.
	options := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window)}
	if o.Fast {
		options = []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest)}
	}
	z, err := zstd.NewWriter(c, options...)
	if err != nil {
		return err
	}
	packed := &counter{tell: o.Progress}
	for i, f := range files {
		sum := sha256.New()
		if _, err := read(c.ctx, f.Path, io.MultiWriter(z, sum, packed)); err != nil {
			return errors.Join(err, z.Close())
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.m.Files[i].SHA256 {
			return errors.Join(fmt.Errorf("bundle: %s changed during packing: pack the bundle again", f.Path), z.Close())
		}
	}
	return errors.Join(z.Close(), c.end())
}

// counter tells how many bytes were written to it.
type counter struct {
	n    int64
	tell func(n int64)
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.tell != nil {
		c.tell(c.n)
	}
	return len(p), nil
}

// Write implements io.Writer.
func (c *cutter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if c.file == nil {
			if err := c.begin(); err != nil {
				return n, err
			}
		}
		k, err := c.put(p[n:min(len(p), n+int(c.size-c.written))])
		n += k
		if err != nil {
			return n, err
		}
		if c.written == c.size {
			if err := c.end(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (c *cutter) put(p []byte) (int, error) {
	n, err := c.file.Write(p)
	c.sum.Write(p[:n])
	c.written += int64(n)
	return n, err
}

// begin opens the next part.
func (c *cutter) begin() error {
	if len(c.m.Parts) == maxParts {
		return fmt.Errorf("bundle: more than %d parts of %d bytes", maxParts, c.size)
	}
	path := filepath.Join(c.folder, c.m.PartName(len(c.m.Parts)))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as above
	if err != nil {
		return err
	}
	c.file, c.written, c.sum = file, 0, sha256.New()
	c.made = append(c.made, path)
	_, err = c.put(header(c.id, len(c.m.Parts)))
	return err
}

// end closes the part that is open.
func (c *cutter) end() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	c.m.Parts = append(c.m.Parts, Part{Size: c.written, SHA256: hex.EncodeToString(c.sum.Sum(nil))})
	return err
}

// discard removes what was written.
func (c *cutter) discard() error {
	var errs []error
	if c.file != nil {
		errs = append(errs, c.file.Close())
	}
	for _, path := range c.made {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// header begins part i.
func header(id [sha256.Size]byte, i int) []byte {
	h := append([]byte(magic), id[:]...)
	return binary.BigEndian.AppendUint32(h, uint32(i)) //nolint:gosec // at most maxParts
}
