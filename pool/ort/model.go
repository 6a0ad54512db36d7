package ort

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// maxModel bounds a model's file: no protobuf message is larger. Larger models
// keep their weights in files beside it.
const maxModel = 2 << 30

// checkFile says what is wrong with a model's file before ONNX Runtime reads it.
// The error wraps infer.ErrModel and has the path.
func checkFile(m infer.Model) error {
	if err := examine(m); err != nil {
		return fmt.Errorf("%w: %q from %s: %w", infer.ErrModel, m.Name, m.Path, err)
	}
	return nil
}

func examine(m infer.Model) error {
	st, err := os.Stat(m.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file; `rewardloop models pull` fetches known models")
	case err != nil:
		return err
	case st.IsDir():
		return errors.New("a folder, want the .onnx file inside")
	case !st.Mode().IsRegular(): // opening a pipe would wait for its writer
		return errors.New("not a regular file")
	case st.Size() == 0:
		return errors.New("the file is empty")
	case st.Size() > maxModel:
		return fmt.Errorf("the file has %d bytes, want at most %d: keep the weights of larger models in separate files", st.Size(), maxModel)
	}
	f, err := os.Open(m.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if what := otherKind(head[:n]); what != "" {
		return fmt.Errorf("the file is %s, not an ONNX model", what)
	}
	if m.SHA256 == "" {
		return nil
	}
	hash := sha256.New()
	hash.Write(head[:n])
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(sum, m.SHA256) {
		return fmt.Errorf("SHA-256 is %s, want %s: fetch the file again", sum, strings.ToLower(m.SHA256))
	}
	return nil
}

// otherKind names what a file is that begins like this, if it is a kind that
// people mistake for a model; "" if it may be one.
func otherKind(head []byte) string {
	kinds := []struct{ magic, name string }{
		{"\x89PNG", "a PNG picture"},
		{"\xff\xd8\xff", "a JPEG picture"},
		{"PK\x03\x04", "a ZIP archive (such as a PyTorch checkpoint)"},
		{"\x1f\x8b", "a gzip archive: unpack it"},
		{"GGUF", "a GGUF file"},
		{"\x89HDF", "an HDF5 file"},
		{"\x80\x02", "a Python pickle"},
		{"\x7fELF", "a program or library"},
		{"version https://git-lfs", "a pointer of Git LFS: `git lfs pull` fetches the file itself"},
	}
	for _, k := range kinds {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return k.name
		}
	}
	// A model soon has bytes that no text has: lengths and field numbers.
	if !slices.ContainsFunc(head, func(b byte) bool { return b < ' ' && b != '\n' && b != '\r' && b != '\t' }) {
		return fmt.Sprintf("text that begins %.40q", head)
	}
	return ""
}
