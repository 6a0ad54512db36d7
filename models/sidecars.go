package models

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
)

// sidecars describe models to the scorers where the repositories they come from do
// not: scorer.json and judge.json.
//
//go:embed sidecars/*.json
var sidecars embed.FS

// sidecar is a file of a model that the program brings itself. name is where it
// lies, from is what it is called here.
func sidecar(name, from string) File {
	f := File{Role: "sidecar", Name: name, Source: "embed://" + from}
	if text, err := sidecars.ReadFile("sidecars/" + from); err == nil {
		sum := sha256.Sum256(text)
		f.Size, f.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	}
	return f
}
