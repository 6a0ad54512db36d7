package web_test

import (
	"bytes"
	"compress/gzip"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/web"
)

// most is how many bytes the page may take on the wire, compressed.
const most = 300 << 10

func page(t *testing.T) string {
	t.Helper()
	text, err := web.Page()
	require.NoError(t, err)
	return string(text)
}

func TestThePageAndItsFilesAreSmall(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	write := func(content []byte) {
		require.NotEmpty(t, content)
		_, err := z.Write(content)
		require.NoError(t, err)
		require.NoError(t, z.Flush())
	}
	write([]byte(page(t)))
	names, err := web.Assets()
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		content, _, ok := web.Asset(name)
		require.True(t, ok, name)
		write(content)
	}
	require.NoError(t, z.Close())
	assert.Less(t, out.Len(), most)
}

func TestEveryFileThatThePageNamesIsThereUnderItsDigest(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:src|href)="assets/([^"]*)"`).FindAllStringSubmatch(page(t), -1)
	require.Len(t, named, 2)
	for _, n := range named {
		_, contentType, ok := web.Asset(n[1])
		require.True(t, ok, n[1])
		assert.Regexp(t, `^[a-z]+-[0-9A-Z]{8}\.(js|css)$`, n[1])
		assert.Equal(t, map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}[path.Ext(n[1])], contentType)
	}
	names, err := web.Assets()
	require.NoError(t, err)
	assert.Len(t, names, len(named), "nothing lies there that the page does not name")
}

func TestThePageHasNoScriptAndNoStyleOfItsOwn(t *testing.T) {
	t.Parallel()
	text := page(t)
	for _, tag := range regexp.MustCompile(`<script[^>]*>`).FindAllString(text, -1) {
		assert.Contains(t, tag, ` src="assets/`)
	}
	assert.NotContains(t, text, "<style")
	assert.NotRegexp(t, `\sstyle=`, text)
	assert.NotRegexp(t, `\son[a-z]+=`, text)
	assert.Contains(t, text, `<noscript>`)
}

func TestNoFileNamesAnotherSite(t *testing.T) {
	t.Parallel()
	names, err := web.Assets()
	require.NoError(t, err)
	for _, name := range names {
		content, _, _ := web.Asset(name)
		// Names of XML's vocabularies are no addresses that a browser asks for.
		for _, address := range regexp.MustCompile(`https?://[^"'\x60 )]*`).FindAllString(string(content), -1) {
			assert.True(t, strings.HasPrefix(address, "http://www.w3.org/"), "%s names %s", name, address)
		}
	}
}

func TestAFileOutsideOfAssetsIsNotThere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../index.html", "index.html", "/etc/passwd", "app.js"} {
		_, _, ok := web.Asset(name)
		assert.False(t, ok, name)
	}
}
