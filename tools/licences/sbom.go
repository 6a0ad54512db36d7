package main

import (
	"encoding/json"
	"os"
)

// bom is a list of what is in the program, in the form of CycloneDX 1.6.
type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    bomMetadata `json:"metadata"`
	Components  []component `json:"components"`
}

type bomMetadata struct {
	Component component `json:"component"`
}

type component struct {
	Type     string       `json:"type"`
	Name     string       `json:"name"`
	Version  string       `json:"version"`
	PURL     string       `json:"purl,omitempty"`
	Licences []bomLicence `json:"licenses,omitempty"`
}

type bomLicence struct {
	Expression string `json:"expression"`
}

// billOfMaterials is that of a release: the modules of Go that are linked, each with its licence.
func billOfMaterials(release string, linked []module) bom {
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: bomMetadata{component{
		Type: "application", Name: "rewardloop", Version: release, Licences: []bomLicence{{"Apache-2.0"}},
	}}}
	for _, m := range linked {
		b.Components = append(b.Components, component{
			Type: "library", Name: m.path, Version: m.version, PURL: "pkg:golang/" + m.path + "@" + m.version, Licences: []bomLicence{{m.licence}},
		})
	}
	return b
}

// writeBOM writes it into a file.
func writeBOM(path, release string, linked []module) error {
	text, err := json.MarshalIndent(billOfMaterials(release, linked), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
