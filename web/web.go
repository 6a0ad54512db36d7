// Package web embeds the status page, which is built from web/src. Its script asks the server for
// everything that it shows, so that nothing here is secret.
//
// `make web` builds dist anew; `make test-web` fails where it is not what the source builds to.
package web

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
)

//go:embed dist
var dist embed.FS

// Policy is the Content-Security-Policy of the page: its own script and style sheet, pictures
// that the script has fetched, and nothing of another site.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Page is index.html.
func Page() ([]byte, error) {
	page, err := dist.ReadFile("dist/index.html")
	if err != nil {
		return nil, fmt.Errorf("the status page is not in this build: run make web: %w", err)
	}
	return page, nil
}

// Asset is a file of the page by its name in assets/. The name holds the digest of the content, so
// that a copy never goes out of date. ok is false where there is no such file.
func Asset(name string) (content []byte, contentType string, ok bool) {
	if name != path.Base(name) {
		return nil, "", false
	}
	content, err := fs.ReadFile(dist, "dist/assets/"+name)
	if err != nil {
		return nil, "", false
	}
	switch path.Ext(name) {
	case ".js":
		contentType = "text/javascript; charset=utf-8"
	case ".css":
		contentType = "text/css; charset=utf-8"
	default:
		contentType = "application/octet-stream"
	}
	return content, contentType, true
}

// Assets are the names of the files in assets/.
func Assets() ([]string, error) {
	entries, err := dist.ReadDir("dist/assets")
	if err != nil {
		return nil, fmt.Errorf("the status page is not in this build: run make web: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
