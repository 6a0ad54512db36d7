package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxFile bounds a model in bytes; PP-OCR's have 2 to 21 MB, the server ones 110.
const maxFile = 512 << 20

// File folds the model at path into folder, which File creates. It returns the path and the SHA-256
// of the file to load: the folded file, whose name comes from the name and the content of the
// source, or the source itself if no rule applies. want is the required SHA-256 of the source in
// lower-case hexadecimal; an empty want is not checked. An existing folded file is rewritten if any
// byte is wrong. The file is written atomically, even if several processes write it.
func File(path, want, folder string) (folded, sum string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("fold %s: %w", path, err)
		}
	}()
	info, err := os.Stat(path)
	if err != nil {
		return "", "", err
	}
	if info.Size() > maxFile {
		return "", "", fmt.Errorf("%d bytes, want at most %d", info.Size(), maxFile)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	have := hash(source)
	if want != "" && have != want {
		return "", "", fmt.Errorf("SHA-256 is %s, want %s", have, want)
	}
	out, r, err := model(source)
	if err != nil {
		return "", "", err
	}
	if !r.Changed() {
		return path, have, nil
	}
	folded = filepath.Join(folder, strings.TrimSuffix(filepath.Base(path), ".onnx")+"-"+have[:12]+".folded.onnx")
	if old, err := os.ReadFile(folded); err == nil && bytes.Equal(old, out) {
		return folded, hash(out), nil
	}
	return folded, hash(out), replace(folded, out)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// replace writes a file beside its place and moves it there.
func replace(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // models are for everybody
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
