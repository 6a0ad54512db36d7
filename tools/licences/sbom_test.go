package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABillOfMaterialsNamesEachModuleWithItsLicence(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "bom.json")
	require.NoError(t, writeBOM(at, "1.2.3", []module{{path: "example.org/a/v2", version: "v2.1.0", licence: "MIT AND BSD-3-Clause"}}))
	text, err := os.ReadFile(at)
	require.NoError(t, err)
	var got bom
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, "CycloneDX", got.Format)
	assert.Equal(t, "1.2.3", got.Metadata.Component.Version)
	assert.Equal(t, []component{{
		Type: "library", Name: "example.org/a/v2", Version: "v2.1.0", PURL: "pkg:golang/example.org/a/v2@v2.1.0", Licences: []bomLicence{{"MIT AND BSD-3-Clause"}},
	}}, got.Components)
}
